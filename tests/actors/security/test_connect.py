"""X4: programs that attach to a runtime which another process hosts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import (
    AsyncRuntime,
    LogError,
    Progress,
    Runtime,
    RuntimeFailureError,
    SessionError,
    StreamedEvent,
    ToolCall,
    ToolContext,
    tool,
)
from interlock.actors.keys import ClientKey, KeyPair
from interlock.actors.roles import OWNERS, Role
from interlock.backends.codes import Code
from interlock.backends.reading import read_log
from security_support import Stranger, counted
from spine_support import TOOLS, InThread, ended, until

Start = Callable[..., Runtime]
Program = Callable[..., subprocess.Popen[str]]

CLIENT = """
import json, os, sys
from interlock.actors import Runtime, ToolCall
runtime = Runtime.connect(os.environ["ADDRESS"], os.environ["KEY"])
def say(value):
    print(json.dumps(value), flush=True)
"""

HOST = """
import json, sys
from spine_support import TOOLS
from interlock.actors import Runtime
runtime = Runtime(sys.argv[1], tools=TOOLS, workers=1, transport=sys.argv[2])
print(json.dumps([runtime.address, runtime.client_key, runtime.processes]), flush=True)
sys.stdin.readline()
runtime.close(grace=0.0)
"""


@tool(place="host", effect="read")
def where() -> int:
    """The process that runs this."""
    return os.getpid()


@tool(effect="read")
def chat(ctx: ToolContext) -> str:
    """Say something while it runs."""
    ctx.progress({"half": True})
    return "done"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """Start a Python program of its own; ended when the test ends."""
    started: list[subprocess.Popen[str]] = []
    spine = Path(__file__).parent.parent / "spine"

    def run(source: str, *arguments: str, **env: str) -> subprocess.Popen[str]:
        path = tmp_path / f"program{len(started)}.py"
        path.write_text(textwrap.dedent(source))
        search = os.pathsep.join([str(spine), *filter(None, sys.path)])
        process = subprocess.Popen(
            [sys.executable, str(path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": search} | env,
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def heard(process: subprocess.Popen[str]) -> Any:
    """The next thing a program says."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the program ended without a word"
    return json.loads(line)


def attach(program: Program, runtime: Runtime, source: str) -> subprocess.Popen[str]:
    return program(CLIENT + source, ADDRESS=runtime.address, KEY=runtime.client_key)


def call(session: Any, name: str, arguments: dict[str, Any]) -> Any:
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", name, arguments)])
        [result] = step.execute()
    return result


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
def test_X4_another_process_creates_calls_and_opens(
    transport: str, start: Start, program: Program, tmp_path: Path
) -> None:
    runtime = start(tools=[*TOOLS, where], transport=transport)
    client = attach(
        program,
        runtime,
        f"""
session = runtime.create("s", cwd={str(tmp_path)!r})
with session.turn("work") as turn, turn.step() as step:
    step.assistant("", [ToolCall("c1", "add", {{"a": 1, "b": 2}}), ToolCall("c2", "where", {{}})])
    results = step.execute()
say([results[0].value, results[1].value, os.getpid()])
say([tool.name for tool in session.tools])
runtime.close()
with Runtime.connect(os.environ["ADDRESS"], os.environ["KEY"]) as again:
    say([event.type for event in again.open("s").events])
""",
    )
    three, ran_in, pid = heard(client)
    assert (three, ran_in) == (3, os.getpid()), "a host tool ran outside of the host"
    assert pid != os.getpid()
    assert heard(client) == [*(t.name for t in TOOLS), "where"]
    types = heard(client)
    assert client.wait(30) == 0
    with runtime.open("s", wait=10.0) as session:  # it was let go
        assert [e.type for e in session.events][: len(types)] == types
        assert types.count("tool/result") == 2
    assert runtime.stats()["restarts"] == []


def test_X4_a_client_follows_events_and_progress(start: Start, tmp_path: Path) -> None:
    runtime = start(tools=[chat])
    with Runtime.connect(runtime.address, runtime.client_key) as client:
        session = client.create(cwd=tmp_path)
        follow = session.subscribe(progress=True)
        assert call(session, "chat", {}).value == "done"
        items = []
        for item in follow:
            items.append(item)
            if isinstance(item, StreamedEvent) and item.event.type == "turn/end":
                break
        follow.close()
    types = [item.event.type for item in items if isinstance(item, StreamedEvent)]
    assert types == [e.type for e in read_log(session.path).events]
    assert [item.value for item in items if isinstance(item, Progress)] == [{"half": True}]


def test_X4_async_clients(start: Start, tmp_path: Path) -> None:
    runtime = start()

    async def work(number: int) -> Any:
        async with AsyncRuntime.connect(runtime.address, runtime.client_key) as client:
            session = await client.create(cwd=tmp_path)
            async with session.turn("work") as turn, turn.step() as step:
                await step.assistant("", [ToolCall("c1", "add", {"a": number, "b": 1})])
                [result] = await step.execute()
            await session.close()
            return result.value

    async def all_of_them() -> list[Any]:
        return await asyncio.gather(*(work(number) for number in range(4)))

    assert asyncio.run(all_of_them()) == [1, 2, 3, 4]
    until(lambda: counted(runtime, Role.HOST, "clients")() == 0)


def test_X4_a_client_appends_no_foreign_events(start: Start, tmp_path: Path) -> None:
    runtime = start()
    with Runtime.connect(runtime.address, runtime.client_key) as client:
        session = client.create(cwd=tmp_path)
        for kind in ("tool/call", "tool/result", "approval/decided", "interlock/settled"):
            with pytest.raises(LogError) as refused:
                session.append(kind, {}, ignorable=True)
            assert refused.value.code == Code.EVENT_INVALID
        assert session.events == []


def test_X4_L11_what_one_has_open_nobody_else_opens(start: Start, tmp_path: Path) -> None:
    runtime = start()
    hosts = runtime.create("hosts", cwd=tmp_path)
    hosts.flush()
    with (
        Runtime.connect(runtime.address, runtime.client_key) as one,
        Runtime.connect(runtime.address, runtime.client_key) as other,
    ):
        mine = one.create("mine", cwd=tmp_path)
        mine.flush()
        for runtime_, name in ((other, "mine"), (runtime, "mine"), (one, "hosts")):
            with pytest.raises(SessionError) as locked:
                runtime_.open(name)
            assert locked.value.code == Code.SESSION_LOCKED
        assert {listing.header.id for listing in other.sessions() if listing.header} == {
            "hosts",
            "mine",
        }
        # Nor does it append by guessing the name: each client has a key of its own.
        from interlock.actors.messages import Append
        from interlock.backends.event import draft

        asked = other._core._connection.request(
            Role.WRITER, lambda rid: Append(rid, "mine", [draft("turn/start", {"turn": 1})])
        )
        with pytest.raises(LogError, match="somebody else"):
            asked.result(30)


def test_X4_detaching_closes_its_own_sessions_and_nothing_else(
    start: Start, tmp_path: Path
) -> None:
    runtime = start()
    mine = runtime.create(cwd=tmp_path)
    client = Runtime.connect(runtime.address, runtime.client_key)
    session = client.create("s", cwd=tmp_path)
    seq = session.append("user/message", USER)
    assert client.close() == {"s": seq}
    assert client.close() == {}
    for touch in (lambda: client.create(), session.flush):
        with pytest.raises((RuntimeFailureError, SessionError)) as closed:
            touch()
        assert closed.value.code in (Code.RUNTIME_CLOSED, Code.SESSION_CLOSED)
    until(lambda: counted(runtime, Role.HOST, "clients")() == 0)
    assert call(mine, "add", {"a": 1, "b": 1}).value == 2
    assert runtime.open("s").events[-1].seq == seq


USER = {
    "id": "u1",
    "role": "user",
    "content": [{"type": "text", "text": "hello"}],
    "source": {"kind": "user"},
}


def test_F1_a_client_that_is_killed_leaves_its_sessions_as_a_host_would(
    start: Start, program: Program, tmp_path: Path
) -> None:
    runtime = start()
    mark, go, never = tmp_path / "mark", tmp_path / "go", tmp_path / "never"
    client = attach(
        program,
        runtime,
        f"""
session = runtime.create("s", cwd={str(tmp_path)!r})
idle = runtime.create("idle", cwd={str(tmp_path)!r})
idle.append("user/message", {USER!r})
with session.turn("work") as turn, turn.step() as step:
    step.assistant("", [
        ToolCall("c1", "touch_and_wait", {{"path": {str(mark)!r}, "until": {str(go)!r}}}),
        ToolCall("c2", "touch", {{"path": {str(never)!r}}}),
    ])
    step.execute()
""",
    )
    until(lambda: mark.exists() and mark.read_text())
    client.send_signal(signal.SIGSTOP)
    with pytest.raises(SessionError):  # a stopped client is not a dead one
        runtime.open("idle")
    client.kill()
    client.wait()
    until(lambda: counted(runtime, Role.HOST, "clients")() == 0)
    go.touch()
    with until_open(runtime, "idle") as idle:
        assert [e.type for e in idle.events if e.type == "user/message"]
    session = until_open(runtime, "s")
    results = {
        e.data["message"]["source"]["callId"]: e.data
        for e in session.events
        if e.type == "tool/result"
    }
    assert "error" not in results["c1"], "the body ended and its result is lost"
    assert results["c2"]["error"]["code"] == Code.ABORTED_BEFORE_DISPATCH
    assert not never.exists()
    assert runtime.stats()["restarts"] == []


def until_open(runtime: Runtime, name: str) -> Any:
    """Open a session as soon as whoever had it has let go."""

    def attempt() -> Any:
        with contextlib.suppress(SessionError):
            return runtime.open(name)
        return None

    return until(attempt)


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_X4_when_the_runtime_ends_its_clients_are_told(
    how: str, transport: str, program: Program, root: Path, tmp_path: Path
) -> None:
    host = program(HOST, str(root), transport)
    address, key, processes = heard(host)
    client = Runtime.connect(address, key)
    assert client.processes == processes
    session = client.create("s", cwd=tmp_path)
    follow = session.subscribe()
    mark = tmp_path / "mark"
    turn = session.turn("work")
    turn.__enter__()
    step = turn.step()
    step.__enter__()
    where_to = {"path": str(mark), "until": str(tmp_path / "go")}
    step.assistant("", [ToolCall("c1", "touch_and_wait", where_to)])
    running = InThread(step.execute)
    until(lambda: mark.exists() and mark.read_text())
    if how == "killed":
        host.kill()
    else:
        assert host.stdin is not None
        host.stdin.write("\n")
        host.stdin.flush()
    until(lambda: client._core._connection.failure is not None)
    if how == "killed":
        with pytest.raises(RuntimeFailureError) as lost:
            running.result(30)
        assert lost.value.code == Code.ACTOR_LOST
    else:  # an orderly end says what became of it
        [result] = running.result(30)
        assert result.code == Code.TOOL_OUTCOME_UNKNOWN
    for touch in (
        client.create,
        client.stats,
        session.flush,
        lambda: session.append("user/message", USER),
    ):
        with pytest.raises(RuntimeFailureError) as lost:
            InThread(touch).result(30)
        assert lost.value.code == Code.ACTOR_LOST
    with pytest.raises((RuntimeFailureError, SessionError)):
        InThread(lambda: list(follow)).result(30)
    (tmp_path / "go").touch()
    client.close()
    assert all(ended(pid, 20.0) for pid in processes.values())


def test_F2_F3_a_client_goes_on_with_replaced_owners(start: Start, tmp_path: Path) -> None:
    runtime = start()
    with Runtime.connect(runtime.address, runtime.client_key) as client:
        session = client.create("s", cwd=tmp_path)
        mark, go = tmp_path / "mark", tmp_path / "go"
        go.touch()
        with session.turn("work") as turn, turn.step() as step:
            where_to = {"path": str(mark), "until": str(tmp_path / "later")}
            step.assistant("", [ToolCall("c1", "touch_and_wait", where_to)])
            running = InThread(step.execute)
            until(lambda: mark.exists() and mark.read_text())
            os.kill(runtime.processes["dispatcher"], signal.SIGKILL)
            [result] = running.result()
        assert result.code == Code.TOOL_OUTCOME_UNKNOWN
        assert call(session, "add", {"a": 1, "b": 2}).value == 3
        os.kill(runtime.processes["writer"], signal.SIGKILL)
        until(lambda: session._core._ended is not None)
        with pytest.raises(SessionError) as closed:
            session.flush()
        assert closed.value.code == Code.SESSION_CLOSED
        assert call(client.open("s"), "add", {"a": 2, "b": 2}).value == 4
        assert client.processes == runtime.processes
        assert [r["actor"] for r in client.stats()["restarts"]] == ["dispatcher", "writer"]


def test_X1_a_wrong_key_or_address_is_told_at_once(start: Start, tmp_path: Path) -> None:
    runtime = start()
    right = ClientKey.parse(runtime.client_key)
    strange = ClientKey(KeyPair.generate(), right.host_public)
    elsewhere = ClientKey(right.keys, KeyPair.generate().public)
    for address, key in (
        (runtime.address, strange.text()),
        (runtime.address, elsewhere.text()),
        (f"ipc://{tmp_path}/none", right.text()),
    ):
        with pytest.raises(RuntimeFailureError) as lost:
            InThread(lambda a=address, k=key: Runtime.connect(a, k)).result(30)
        assert lost.value.code == Code.ACTOR_LOST
        assert address in lost.value.message
    for address, key in ((runtime.address, "no key"), ("/no/address", right.text())):
        with pytest.raises(ValueError, match="take runtime"):
            Runtime.connect(address, key)
    assert counted(runtime, Role.HOST, "refused_keys")() >= 1


def test_X1_the_clients_key_opens_the_front_desk_only(
    start: Start, stranger: Callable[..., Stranger]
) -> None:
    from interlock.actors.messages import Hello

    runtime = start()
    keys = ClientKey.parse(runtime.client_key).keys
    for role in OWNERS:
        one = stranger(runtime, role, keys)
        one.say(Hello(1))
        until(lambda: counted(runtime, role, "refused_keys")() > 0)  # noqa: B023 - called at once


def test_X1_an_inproc_runtime_has_no_door(start: Start) -> None:
    runtime = start(transport="inproc")
    with pytest.raises(ValueError, match="inproc"):
        _ = runtime.address
