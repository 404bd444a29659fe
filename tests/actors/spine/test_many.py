"""Many sessions, other transports, the async surface, following a session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from interlock.actors import AsyncRuntime, Runtime, StreamedEvent, ToolCall, ToolContext, tool
from interlock.backends.codes import Code
from interlock.backends.errors import SessionError
from interlock.backends.files import OPEN_FILES
from spine_support import TOOLS, InThread, until

Start = Callable[..., Runtime]


@pytest.mark.parametrize("transport", ["ipc", "tcp", "inproc"])
def test_the_same_call_over_every_transport(start: Start, tmp_path: Path, transport: str) -> None:
    runtime = start(transport=transport, answerer=lambda request: True)
    session = runtime.create(cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant(
            "", [ToolCall("c1", "add", {"a": 1, "b": 2}), ToolCall("c2", "pay", {"cents": 3})]
        )
        assert [r.value for r in step.execute()] == [3, "paid 3"]


def test_a_thousand_sessions_each_making_a_call(root: Path, tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncRuntime(root, tools=TOOLS, workers=2) as runtime:

            async def one(number: int) -> int:
                session = await runtime.create(f"s{number}", cwd=tmp_path)
                async with session.turn("add") as turn, turn.step() as step:
                    await step.assistant("", [ToolCall("c", "add", {"a": number, "b": 1})])
                    [result] = await step.execute()
                value: int = result.value
                return value

            await one(0)
            writer, dispatcher = (runtime.processes[n] for n in ("writer", "dispatcher"))
            threads = {pid: thread_count(pid) for pid in (writer, dispatcher, os.getpid())}
            descriptors = descriptor_count(dispatcher)
            values = await asyncio.gather(*(one(number) for number in range(1, 1000)))
            assert values == [number + 1 for number in range(1, 1000)]
            stats = await runtime.stats()
            assert stats["writer"]["open_sessions"] == 1000
            # The price: a lock descriptor each, and data files behind a cache of a bounded size.
            assert descriptor_count(writer) <= 1000 + min(1000, OPEN_FILES[1]) + 64
            assert descriptor_count(dispatcher) <= descriptors + 8
            # The writer's pool may have grown to its size; nothing grows with the sessions.
            for pid, count in threads.items():
                assert thread_count(pid) <= count + 16
            assert len([r async for r in listed(runtime)]) == 1000

    async def listed(runtime: AsyncRuntime):
        for listing in runtime.sessions():
            yield listing

    asyncio.run(main())


def thread_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def descriptor_count(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_L11_a_second_runtime_gets_the_holders_name_at_once(start: Start, tmp_path: Path) -> None:
    first, second = start(), start()
    session = first.create("s", cwd=tmp_path)
    session.append("user/message", user("hello"), flush=True)
    with pytest.raises(SessionError) as refused:
        second.open("s")
    assert refused.value.code == Code.SESSION_LOCKED
    assert str(first.processes["writer"]) in refused.value.message
    with pytest.raises(SessionError) as again:
        first.open("s")
    assert again.value.code == Code.SESSION_LOCKED
    session.close()
    assert second.open("s").durable_seq == session.durable_seq


def test_L7_two_runtimes_creating_one_id(start: Start, tmp_path: Path) -> None:
    first, second = start(), start()
    one, other = first.create("s", cwd=tmp_path), second.create("s", cwd=tmp_path)
    one.append("user/message", user("first"), flush=True)
    with pytest.raises(SessionError) as refused:
        other.append("user/message", user("second"), flush=True)
    assert refused.value.code in (Code.SESSION_EXISTS, Code.SESSION_LOCKED)
    assert [e.type for e in one.events] == ["interlock/writer", "user/message"]


def test_following_a_session_from_any_point(start: Start, tmp_path: Path) -> None:
    session = start().create(cwd=tmp_path)
    for number in range(5):
        session.append("user/message", user(str(number)))
    session.flush()
    stream = session.subscribe(2)
    seen: list[StreamedEvent] = []

    def follow() -> None:
        seen.extend(item for item in stream if isinstance(item, StreamedEvent))

    following = InThread(follow)
    for number in range(300):
        session.append("user/message", user(str(number)))
    until(lambda: len(seen) == 4 + 300)
    session.close()
    following.result()
    assert [item.event.seq for item in seen] == list(range(2, 306))
    assert seen[0].durable, "what was flushed before is told as durable"
    assert len({item.incarnation for item in seen}) == 1


@tool(effect="read", place="host")
async def host_loop(ctx: ToolContext) -> int:
    """Say on which loop this runs."""
    return id(asyncio.get_running_loop())


@tool(effect="write")
async def sleepy(ctx: ToolContext, mark: str) -> str:
    """Sleep until cancelled."""
    from pathlib import Path

    Path(mark).touch()
    await asyncio.sleep(600)
    return "never"


def test_async_bodies_run_on_the_callers_loop_and_a_cancelled_task_cancels_its_calls(
    root: Path, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"

    async def main() -> None:
        async with AsyncRuntime(root, tools=[host_loop, sleepy], workers=1) as runtime:
            session = await runtime.create("s", cwd=tmp_path)
            async with session.turn("loop") as turn, turn.step() as step:
                await step.assistant("", [ToolCall("c1", "host_loop")])
                [result] = await step.execute()
            assert result.value == id(asyncio.get_running_loop())

            async def sleeps() -> None:
                async with session.turn("sleep") as turn, turn.step() as step:
                    await step.assistant("", [ToolCall("c2", "sleepy", {"mark": str(mark)})])
                    await step.execute()

            task = asyncio.create_task(sleeps())
            while not mark.exists():
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            events = await session.events
            last = [e for e in events if e.type == "tool/result"][-1]
            assert last.data["error"]["code"] == Code.ABORTED
            assert events[-1].data["reason"]["kind"] == "aborted"

    asyncio.run(main())


def user(text: str) -> dict:
    return {
        "id": f"m-{os.urandom(8).hex()}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }
