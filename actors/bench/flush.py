"""The forced flush: append one event and wait until it survives power loss."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from ..runtime.aio import AsyncSession
from ..runtime.sync import Session
from .clients import clients
from .measure import Measurement, measure
from .slices import AsyncOperation, Operation

#: How many sessions, each with one flush outstanding.
SESSIONS = (1, 16, 64, 256, 1000)


def bench_flush(
    root: Path, sessions: Sequence[int] = SESSIONS, seconds: float = 25.0
) -> Measurement:
    """Measure forced flushes for each number of sessions, and the floor between them.

    :param root: an empty directory on the file system to measure; the logs are left in it.
    :param sessions: how many sessions have a flush outstanding, one row each.
    :param seconds: time for measuring, without starting and ending (a few seconds more).
    :raises RuntimeFailureError: ``ACTOR_LOST``: the runtime could not be started.
    :raises LogError: ``LOG_WRITE_FAILED``: the disk did not take a flush.
    """
    with clients(root, sessions, (), _one, _many) as loads:
        return measure(root, "sessions", loads, seconds)


def _event(number: int) -> dict[str, Any]:
    return {
        "id": f"user-{number}",
        "role": "user",
        "content": [{"type": "text", "text": f"ls -la {number}"}],
        "source": {"kind": "user"},
    }


def _one(session: Session, _stack: ExitStack) -> Operation:
    numbers = count()

    def flush() -> int:
        event = _event(next(numbers))
        begin = perf_counter_ns()
        session.append("user/message", event, flush=True)
        return perf_counter_ns() - begin

    return flush


async def _many(session: AsyncSession, _stack: AsyncExitStack) -> AsyncOperation:
    numbers = count()

    async def flush() -> int:
        event = _event(next(numbers))
        begin = perf_counter_ns()
        await session.append("user/message", event, flush=True)
        return perf_counter_ns() - begin

    return flush
