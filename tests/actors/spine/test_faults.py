"""F, P6: what must hold when a process of the runtime ends, with real processes and real
signals.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from interlock.actors import Command, Runtime, RuntimeFailureError, ToolCall, ToolContext, tool
from interlock.actors.roles import Role
from interlock.backends.codes import Code
from interlock.backends.reading import read_log
from spine_support import TOOLS, InThread, descendants, ended, until

Start = Callable[..., Runtime]
Script = Callable[..., subprocess.Popen[str]]

AGENT = """
import json, sys
from pathlib import Path
from interlock.actors import Runtime, ToolCall, ToolContext, tool

@tool(effect="write")
def slow(ctx: ToolContext, mark: str, go: str) -> str:
    "Write, then take until somebody says go."
    import os, time
    Path(mark).write_text(ctx.call_id)
    while not os.path.exists(go):
        time.sleep(0.01)
    return "done"

@tool(effect="write")
def never(mark: str) -> str:
    "Must not run."
    Path(mark).write_text("ran")
    return "ran"

runtime = Runtime({root!r}, tools=[slow, never], workers=1)
session = runtime.create("s", cwd={tmp!r})
print(json.dumps(runtime.processes), flush=True)
with session.turn("go") as turn, turn.step() as step:
    step.assistant("", [
        ToolCall("c1", "slow", {{"mark": {tmp!r} + "/mark", "go": {tmp!r} + "/go"}}),
        ToolCall("c2", "never", {{"mark": {tmp!r} + "/never"}}),
    ])
    step.execute()
"""


def test_F1_the_agent_dies_and_the_running_bodys_result_is_recorded(
    script: Script, start: Start, root: Path, tmp_path: Path
) -> None:
    agent = script(AGENT.format(root=str(root), tmp=str(tmp_path)))
    assert agent.stdout is not None
    owners = json.loads(agent.stdout.readline())
    until((tmp_path / "mark").exists)
    [path] = root.glob("*/s/session.v3.jsonl.zstd")
    before = [event.type for event in read_log(path).events]
    assert before[-1] == "tool/call"
    processes = [*owners.values(), *descendants(agent.pid)]
    agent.kill()
    agent.wait()
    assert all(not ended(pid, 0) for name, pid in owners.items() if name != "broker")
    (tmp_path / "go").touch()
    assert all(ended(pid, 5.0) for pid in processes), "a process of the runtime stayed"

    runtime = start()
    session = runtime.open("s")  # the lock is free
    results = {
        e.data["message"]["source"]["callId"]: e.data
        for e in session.events
        if e.type == "tool/result"
    }
    assert "error" not in results["c1"], "the body ended and its result is lost"
    assert results["c1"]["message"]["content"][0]["content"][0]["text"] == "done"
    assert results["c2"]["error"]["code"] == Code.ABORTED_BEFORE_DISPATCH
    assert not (tmp_path / "never").exists()
    # The turn was left open for the repair, which closed it.
    assert [e.type for e in session.events][-2:] == ["step/end", "turn/end"]
    assert session.repaired_events >= 2


def test_F1_the_agent_and_an_owner_die_together_and_no_process_stays(
    script: Script, root: Path, tmp_path: Path
) -> None:
    for victim in ("writer", "launcher", "dispatcher"):
        agent = script(AGENT.format(root=str(root / victim), tmp=str(tmp_path / victim)))
        (tmp_path / victim).mkdir()
        assert agent.stdout is not None
        owners = json.loads(agent.stdout.readline())
        until((tmp_path / victim / "mark").exists)
        processes = [*owners.values(), *descendants(agent.pid)]
        # Nobody is left who could tell the others that this one has ended.
        os.kill(owners[victim], signal.SIGKILL)
        agent.kill()
        agent.wait()
        (tmp_path / victim / "go").touch()
        assert all(ended(pid, 10.0) for pid in processes), f"with the {victim} dead, one stayed"


def test_F3_the_dispatcher_dies_and_the_turn_goes_on(start: Start, tmp_path: Path) -> None:
    runtime = start()
    mark, go = tmp_path / "mark", tmp_path / "go"
    session = runtime.create(cwd=tmp_path)
    with session.turn("work") as turn:
        with turn.step() as step:
            calls = [
                ToolCall("c1", "touch_and_wait", {"path": str(mark), "until": str(go)}),
                ToolCall("c2", "add", {"a": 1, "b": 2}),
            ]
            step.assistant("", calls)
            running = InThread(step.execute)
            until(lambda: mark.exists() and mark.read_text())
            workers = descendants(runtime.processes["dispatcher"])
            os.kill(runtime.processes["dispatcher"], signal.SIGKILL)
            results = running.result()
        assert [r.code for r in results] == [Code.TOOL_OUTCOME_UNKNOWN, None]
        assert "Do not repeat it blindly" in results[0].message
        assert results[1].value == 3
        assert all(ended(pid, 5.0) for pid in workers), "a body outlived its dispatcher"
        with turn.step() as step:
            step.assistant("", [ToolCall("c3", "add", {"a": 2, "b": 2})])
            assert step.execute()[0].value == 4
    assert mark.read_text() == "c1\n", "the body ran twice"


@tool(effect="write", place="host")
def host_waits(ctx: ToolContext, mark: str) -> str:
    """Wait in the embedding process until asked to stop."""
    Path(mark).touch()
    ctx.wait_cancelled(60)
    Path(mark).with_name("asked").write_text(str(ctx.cancelled))
    return "stopped"


def test_F3_a_host_body_is_asked_to_stop_when_its_dispatcher_dies(
    start: Start, tmp_path: Path
) -> None:
    runtime = start(tools=[host_waits])
    session = runtime.create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "host_waits", {"mark": str(tmp_path / "mark")})])
        running = InThread(step.execute)
        until((tmp_path / "mark").exists)
        os.kill(runtime.processes["dispatcher"], signal.SIGKILL)
        [result] = running.result()
    assert result.code == Code.TOOL_OUTCOME_UNKNOWN
    assert until((tmp_path / "asked").exists)
    assert (tmp_path / "asked").read_text() == "True"


def test_F4_the_broker_dies_and_what_it_was_asked_is_unavailable(
    start: Start, tmp_path: Path
) -> None:
    asked: list[str] = []
    answer = tmp_path / "answer"

    def answerer(request) -> bool:
        asked.append(request.call_id)
        until(answer.exists)
        return True

    runtime = start(answerer=answerer)
    session = runtime.create(cwd=tmp_path)
    with session.turn("pay") as turn:
        with turn.step() as step:
            step.assistant("", [ToolCall("c1", "pay", {"cents": 5})])
            running = InThread(step.execute)
            until(lambda: asked)
            os.kill(runtime.processes["broker"], signal.SIGKILL)
            [result] = running.result()
        assert result.code == Code.APPROVAL_UNAVAILABLE
        answer.touch()
        runtime._core._host.alive(Role.BROKER).result(30)
        with turn.step() as step:
            step.assistant("", [ToolCall("c2", "pay", {"cents": 6})])
            [result] = step.execute()
        assert result.value == "paid 6"
    decided = [e.data["outcome"] for e in session.events if e.type == "approval/decided"]
    assert decided == ["unavailable", "allowed-once"]


@tool(place="sandbox")
def linger(mark: str) -> Command:
    """Start a child that detaches, say so, and go on for long."""
    return Command(argv=["sh", "-c", f"setsid sleep 300 & echo $$ > {mark}; exec sleep 300"])


def test_F5_the_launcher_dies_and_its_commands_with_it(start: Start, tmp_path: Path) -> None:
    runtime = start(tools=[linger])
    workspace = tmp_path / "ws"
    workspace.mkdir()
    session = runtime.create(cwd=workspace)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "linger", {"mark": str(workspace / "mark")})])
        running = InThread(step.execute)
        until((workspace / "mark").exists)
        launcher = runtime.processes["launcher"]
        below = descendants(launcher)
        assert below
        os.kill(launcher, signal.SIGKILL)
        [result] = running.result()
    assert result.code == Code.TOOL_OUTCOME_UNKNOWN
    assert "launcher" in result.message
    assert all(ended(pid, 5.0) for pid in below), "a command outlived its launcher"


@tool(effect="write", isolate=True)
def kill_me() -> str:
    """Be killed in the middle."""
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


def test_P6_a_dead_worker_is_told_and_every_other_call_goes_on(
    start: Start, tmp_path: Path
) -> None:
    runtime = start(tools=[*TOOLS, kill_me])
    session = runtime.create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "kill_me"), ToolCall("c2", "add", {"a": 1, "b": 1})])
        lost, fine = step.execute()
    assert lost.code == Code.TOOL_OUTCOME_UNKNOWN
    assert "signal 9 (SIGKILL)" in lost.message
    assert fine.value == 2


def test_an_owner_that_cannot_be_kept_alive_closes_the_runtime(
    start: Start, tmp_path: Path
) -> None:
    runtime = start()
    session = runtime.create(cwd=tmp_path)
    seen: set[int] = set()

    def kill_the_next() -> bool:
        pid = runtime.processes["broker"]
        if pid not in seen:
            seen.add(pid)
            os.kill(pid, signal.SIGKILL)
        return runtime._core._host.failure is not None

    until(kill_the_next)
    with pytest.raises(RuntimeFailureError, match="broker") as failed:
        session.flush()
    assert failed.value.code == Code.ACTOR_LOST


CTRL_C = """
import json, sys
from interlock.actors import Runtime, ToolCall, ToolContext, tool

@tool(effect="write")
def stubborn(ctx: ToolContext, mark: str) -> str:
    "Ignore every request to stop."
    import time
    open(mark, "w").close()
    while True:
        time.sleep(0.05)

with Runtime({root!r}, tools=[stubborn], workers=1) as runtime:
    session = runtime.create("s", cwd={tmp!r})
    print(json.dumps(runtime.processes), flush=True)
    with session.turn("go") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "stubborn", {{"mark": {tmp!r} + "/mark"}})])
        step.execute()
"""


def test_ctrl_c_ends_everything_and_leaves_a_resumable_log(
    script: Script, start: Start, root: Path, tmp_path: Path
) -> None:
    program = script(CTRL_C.format(root=str(root), tmp=str(tmp_path)))
    assert program.stdout is not None
    owners = json.loads(program.stdout.readline())
    until((tmp_path / "mark").exists)
    processes = [program.pid, *owners.values(), *descendants(program.pid)]
    program.send_signal(signal.SIGINT)
    # The measure of "within two seconds" is the benchmark's; here a bound that no machine misses.
    program.wait(timeout=20)
    assert all(ended(pid, 10.0) for pid in processes)
    session = start().open("s")
    [result] = [e for e in session.events if e.type == "tool/result"]
    assert result.data["error"]["code"] == Code.TOOL_OUTCOME_UNKNOWN
