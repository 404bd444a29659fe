"""One logic under two surfaces.

What a session, turn or step does is written once, as a *flow*: a generator that yields futures and
is sent their results. :func:`run_sync` waits for each in the calling thread, :func:`run_async`
awaits it on the caller's event loop. An interruption (Ctrl-C, a cancelled task) is thrown into the
flow, which cleans up through further futures before it passes it on.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
Flow = Generator["Future[Any]", Any, T]


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
    try:
        future = next(flow)
        while True:
            try:
                waited = asyncio.wrap_future(future)
                waited.add_done_callback(_retrieve)
                value = await asyncio.shield(waited)
            except BaseException as error:  # also CancelledError
                future = flow.throw(error)
            else:
                future = flow.send(value)
    except StopIteration as stop:
        result: T = stop.value
        return result


def _retrieve(future: asyncio.Future[Any]) -> None:
    """Note that a failure was seen: an interrupted flow no longer waits for it."""
    if not future.cancelled():
        future.exception()


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
