"""K: no body before its record is acknowledged as durable, with real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from interlock.actors import Runtime, SessionError, ToolCall
from interlock.backends.codes import Code
from interlock.backends.reading import read_log
from spine_support import InThread, until

Start = Callable[..., Runtime]


def test_K2_the_record_is_in_the_file_before_the_body_starts(start: Start, tmp_path: Path) -> None:
    mark, go = tmp_path / "mark", tmp_path / "go"
    session = start().create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant(
            "", [ToolCall("c1", "touch_and_wait", {"path": str(mark), "until": str(go)})]
        )
        running = InThread(step.execute)
        until(lambda: mark.exists() and mark.read_text())
        types = [event.type for event in read_log(session.path).events]
        go.touch()
        [result] = running.result()
    assert types[-1] == "tool/call", "the body ran and its call was not on disk"
    assert result.value == "waited"


def test_K2_a_stopped_writer_releases_nothing_and_continued_it_does(
    start: Start, tmp_path: Path
) -> None:
    runtime = start()
    mark = tmp_path / "mark"
    session = runtime.create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "touch", {"path": str(mark)})])
        os.kill(runtime.processes["writer"], signal.SIGSTOP)
        running = InThread(step.execute)
        until(lambda: dispatcher_calls(runtime) == 1)
        assert running.running
        assert not mark.exists()
        os.kill(runtime.processes["writer"], signal.SIGCONT)
        [result] = running.result()
    assert not result.is_error
    assert mark.read_text() == "c1\n"


def test_K3_a_killed_writer_ends_the_call_and_the_body_never_ran(
    start: Start, tmp_path: Path
) -> None:
    runtime = start()
    mark = tmp_path / "mark"
    session = runtime.create("s", cwd=tmp_path)
    turn = session.turn("work")
    turn.__enter__()
    step = turn.step()
    step.__enter__()
    step.assistant("", [ToolCall("c1", "touch", {"path": str(mark)})])
    session.flush()
    os.kill(runtime.processes["writer"], signal.SIGSTOP)
    running = InThread(step.execute)
    until(lambda: dispatcher_calls(runtime) == 1)
    os.kill(runtime.processes["writer"], signal.SIGKILL)
    [result] = running.result()
    assert result.code == Code.CHECKPOINT_FAILED
    assert not mark.exists()
    with pytest.raises(SessionError) as closed:
        turn.__exit__(None, None, None)
    assert closed.value.code == Code.SESSION_CLOSED

    # F2: a new writer has taken over; the session opens in the same runtime and goes on.
    reopened = runtime.open("s")
    assert not mark.exists()
    codes = [e.data["error"]["code"] for e in reopened.events if e.type == "tool/result"]
    assert codes == [Code.TOOL_NOT_STARTED]
    with reopened.turn("again") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "touch", {"path": str(mark)})])
        [result] = step.execute()
    assert not result.is_error
    assert [r["actor"] for r in runtime.stats()["restarts"]] == ["writer"]


def test_K4_cancelled_while_it_waits_for_the_acknowledgement(start: Start, tmp_path: Path) -> None:
    runtime = start()
    mark = tmp_path / "mark"
    session = runtime.create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "touch", {"path": str(mark)})])
        os.kill(runtime.processes["writer"], signal.SIGSTOP)
        running = InThread(step.execute)
        until(lambda: dispatcher_calls(runtime) == 1)
        step.cancel("changed my mind")
        until(lambda: dispatcher_calls(runtime) == 1)  # the cancellation is ahead of this
        os.kill(runtime.processes["writer"], signal.SIGCONT)
        [result] = running.result()
    assert result.code == Code.ABORTED_BEFORE_DISPATCH
    assert "changed my mind" in result.message
    assert not mark.exists()


def test_K1_a_step_starts_behind_a_barrier(start: Start, tmp_path: Path) -> None:
    session = start().create(cwd=tmp_path)
    with session.turn("work") as turn:
        with turn.step() as step:
            step.assistant("no calls")
        last = session.events[-1].seq
        with turn.step():
            assert session.durable_seq >= last
            assert [e.type for e in read_log(session.path).events][-1] == "step/end"


def test_P9_the_same_step_executed_again_returns_the_recorded_results(
    start: Start, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    session = start().create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "touch", {"path": str(mark)})])
        first = step.execute()
        step._core.results = None  # as after a reconnect: the host has forgotten them
        assert step.execute() == first
    assert mark.read_text() == "c1\n", "the body ran twice"


def test_P9_one_id_twice_in_a_message_is_refused_at_append(start: Start, tmp_path: Path) -> None:
    from interlock.actors import LogError

    session = start().create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        calls = [ToolCall("c1", "add", {"a": 1, "b": 2}), ToolCall("c1", "add", {"a": 1, "b": 2})]
        with pytest.raises(LogError) as refused:
            step.assistant("", calls)
        assert refused.value.code == Code.EVENT_INVALID
        assert "c1" in refused.value.message


def dispatcher_calls(runtime: Runtime) -> int:
    """How many calls the dispatcher has taken; it answers while the writer does not."""
    from interlock.actors.messages import StatsRequest
    from interlock.actors.roles import Role

    reply = runtime._core._host.request(Role.DISPATCHER, StatsRequest, 10.0).result()
    calls: int = reply.counters["calls"]
    return calls
