"""Tools and helpers of the tests with real processes."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from interlock.actors import ToolContext, tool


@tool(effect="write")
def touch(ctx: ToolContext, path: str) -> dict[str, str]:
    """Leave a file, so that the test can see whether the body ran."""
    with open(path, "a") as file:
        file.write(ctx.call_id + "\n")
    return {"call": ctx.call_id, "key": ctx.idempotency_key}


@tool(effect="write")
def touch_and_wait(ctx: ToolContext, path: str, until: str) -> str:
    """Leave a file, then wait until another one is there."""
    import os
    import time

    with open(path, "a") as file:
        file.write(ctx.call_id + "\n")
    while not os.path.exists(until) and not ctx.wait_cancelled(0.01):
        time.sleep(0)
    return "cancelled" if ctx.cancelled else "waited"


@tool(effect="read", parallel=True)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(effect="write", approval="ask")
def pay(cents: int) -> str:
    """Pay, if allowed."""
    return f"paid {cents}"


TOOLS = [touch, touch_and_wait, add, pay]


class InThread:
    """Runs something in a thread; ``result`` waits for it, with a bound."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._work()
        except BaseException as error:
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self, timeout: float = 60.0) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), "it still runs"
        if self._error is not None:
            raise self._error
        return self._value


def until(condition: Callable[[], Any], timeout: float = 30.0) -> Any:
    """Wait until another process has done something; its time is not ours to know."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def ended(pid: int, timeout: float) -> bool:
    """Whether process ``pid`` ends within ``timeout`` s (waited for, not polled)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return bool(poller.poll(timeout * 1000))
    finally:
        os.close(descriptor)


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            tasks = os.listdir(f"/proc/{parent}/task")
        except FileNotFoundError:
            continue
        for task in tasks:
            try:
                with open(f"/proc/{parent}/task/{task}/children") as file:
                    children = [int(child) for child in file.read().split()]
            except FileNotFoundError:
                continue
            found += children
            waiting += children
    return found
