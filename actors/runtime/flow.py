"""One logic under two surfaces.

What a session, turn or step does is written once, as a *flow*: a generator that yields futures and
is sent their results. :func:`run_sync` waits for each in the calling thread, :func:`run_async`
awaits it on the caller's event loop. An interruption (Ctrl-C, a cancelled task) is thrown into the
flow, which cleans up through further futures before it passes it on.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from .reply import Reply

T = TypeVar("T")
#: What a flow may wait for.
Awaited = Future[Any] | Reply[Any]
Flow = Generator[Awaited, Any, T]


def run_sync(flow: Flow[T]) -> T:
    """Run ``flow`` to its end in this thread."""
    try:
        future = next(flow)
        while True:
            try:
                value = future.result()
            except BaseException as error:  # also Ctrl-C: the flow decides what to do about it
                future = flow.throw(error)
            else:
                future = flow.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


async def run_async(flow: Flow[T]) -> T:
    """Run ``flow`` to its end as part of the current task."""
    wakeups: _Wakeups | None = None
    try:
        future = next(flow)
        while True:
            try:
                if not future.done():
                    wakeups = wakeups or _wakeups_of(asyncio.get_running_loop())
                    await wakeups.until(future)
                value = future.result()
            except BaseException as error:  # also CancelledError
                future = flow.throw(error)
            else:
                future = flow.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


class _Wakeups:
    """Tasks of one event loop that wait for futures of other threads, woken several at a time.

    The loop is woken once for all futures that are done by the time it looks, not once for each.
    """

    def __init__(self) -> None:
        self._due: deque[asyncio.Future[None]] = deque()
        self._told = False

    async def until(self, future: Awaited) -> None:
        """Wait until ``future`` is done; being cancelled leaves it alone."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda _: self._wake(waiter))
        await waiter

    def _wake(self, waiter: asyncio.Future[None]) -> None:
        """Called in whatever thread the future was done in."""
        self._due.append(waiter)
        if not self._told:
            self._told = True
            # A loop that has been closed has nobody left who waits.
            with suppress(RuntimeError):
                waiter.get_loop().call_soon_threadsafe(self._look)

    def _look(self) -> None:
        # First: what is appended from here on tells the loop again.
        self._told = False
        while self._due:
            waiter = self._due.popleft()
            if not waiter.done():
                waiter.set_result(None)


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Wakeups] = WeakKeyDictionary()


def _wakeups_of(loop: asyncio.AbstractEventLoop) -> _Wakeups:
    found = _loops.get(loop)
    if found is None:
        found = _loops[loop] = _Wakeups()
    return found


def in_thread(work: Callable[[], T]) -> Future[T]:
    """Run blocking ``work`` on a thread of its own, so that no event loop waits for it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="interlock-blocking", daemon=True).start()
    return future
