"""What a body's context gives it, without a runtime."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import Future

import pytest
from interlock.actors.tools import CallCancelled, Outcome, ToolContext, ToolResult
from interlock.actors.tools.context import PROGRESS_LIMIT


class Nested:
    """Answers nested calls as a runtime would: later, from somewhere else."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bytes]] = []
        self.future: Future[ToolResult] = Future()

    def __call__(self, name: str, arguments: bytes) -> Future[ToolResult]:
        self.calls.append((name, arguments))
        return self.future


def result(value: object) -> ToolResult:
    return ToolResult.of("c/1", "inner", Outcome.success(value))


def test_a_context_is_built_by_hand() -> None:
    ctx = ToolContext(call_id="c1", idempotency_key="k")
    assert (ctx.call_id, ctx.idempotency_key, ctx.attempt, ctx.cancelled) == ("c1", "k", 1, False)
    assert ctx.remaining() == float("inf")
    ctx.raise_if_cancelled()
    ctx.progress({"percent": 3})


def test_remaining_never_goes_below_zero() -> None:
    now = time.monotonic()
    assert 0 < ToolContext(deadline=now + 1000).remaining() <= 1000
    assert ToolContext(deadline=now - 5).remaining() == 0.0


def test_a_cancellation_wakes_a_waiting_body_and_survives_except_exception() -> None:
    ctx = ToolContext()
    seen: list[str] = []

    def body() -> None:
        assert ctx.wait_cancelled(30)
        try:
            try:
                ctx.raise_if_cancelled()
            except Exception:
                seen.append("swallowed")
        except CallCancelled as stop:
            seen.append(str(stop))

    thread = threading.Thread(target=body)
    thread.start()
    ctx.cancel("the user asked")
    ctx.cancel("again")
    thread.join(30)
    assert seen == ["the user asked"]
    assert ctx.cancelled


def test_progress_is_checked_and_sent_as_json() -> None:
    sent: list[bytes] = []
    ctx = ToolContext(progress=sent.append)
    ctx.progress({"done": 1, "text": "half \ud83d"})
    assert json.loads(sent[0]) == {"done": 1, "text": "half \ud83d"}
    with pytest.raises(TypeError, match="type set"):
        ctx.progress({1, 2})
    with pytest.raises(ValueError, match="at most"):
        ctx.progress("x" * PROGRESS_LIMIT)
    ctx.end()
    ctx.progress("late")
    assert len(sent) == 1


def test_K5_a_nested_call_waits_for_its_result() -> None:
    nested = Nested()
    nested.future.set_result(result({"n": 1}))
    ctx = ToolContext(nested=nested)
    assert ctx.call("inner", {"a": 1}).value == {"n": 1}
    assert nested.calls == [("inner", b'{"a":1}')]


def test_K5_a_nested_call_needs_a_running_parent() -> None:
    nested = Nested()
    with pytest.raises(RuntimeError, match="outside a running call"):
        ToolContext(tool="t").call("inner")
    ctx = ToolContext(call_id="c1", nested=nested)
    ctx.end()
    with pytest.raises(RuntimeError, match="call c1 has ended"):
        ctx.call("inner")
    ctx = ToolContext(nested=nested)
    ctx.cancel("stop")
    with pytest.raises(CallCancelled):
        ctx.call("inner")
    assert nested.calls == []


def test_a_nested_call_waits_no_longer_than_the_parent_may() -> None:
    with pytest.raises(TimeoutError):
        ToolContext(deadline=time.monotonic() - 1, nested=Nested()).call("inner")


def test_a_nested_call_does_not_block_an_event_loop() -> None:
    nested = Nested()
    ctx = ToolContext(nested=nested)

    async def body() -> object:
        with pytest.raises(RuntimeError, match=r"await ctx\.acall"):
            ctx.call("inner")
        pending = asyncio.create_task(ctx.acall("inner", {}))
        await asyncio.sleep(0)
        threading.Thread(target=lambda: nested.future.set_result(result(5))).start()
        return (await pending).value

    assert asyncio.run(body()) == 5
    assert len(nested.calls) == 1
