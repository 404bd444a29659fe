"""The forced flush: append one event and wait until it survives power loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from ..runtime.aio import AsyncSession
from ..runtime.sync import Session
from .clients import clients
from .harness import NotThereError, harness_loads
from .measure import Measurement, measure
from .slices import AsyncOperation, Load, Operation
from .sqlite import sqlite_loads

#: How many sessions, each with one flush outstanding.
SESSIONS = (1, 16, 64, 256, 1000)


#: What is acknowledged has been synced, here and by every peer.
SYSTEMS = (("interlock", "journal"), ("interlock-file", "file"))
#: The most clients of a peer: with more it only takes longer to measure.
PEER_CLIENTS = 1000


def bench_flush(
    root: Path,
    sessions: Sequence[int] = SESSIONS,
    seconds: float = 25.0,
    *,
    peers: bool = False,
    skipped: Callable[[str], None] = lambda why: None,
) -> Measurement:
    """Measure forced flushes for each number of sessions, and the floor between them.

    Both durabilities are measured, ``"file"`` as ``interlock-file``.

    :param root: an empty directory on the file system to measure; the logs are left in it.
    :param sessions: how many sessions have a flush outstanding, one row each.
    :param seconds: time for measuring, without starting and ending (a few seconds more).
    :param peers: measure SQLite and the harness's npm packages in the same rounds.
    :param skipped: told in one line of a peer that is not there.
    :raises RuntimeFailureError: ``ACTOR_LOST``: the runtime could not be started.
    :raises LogError: ``LOG_WRITE_FAILED``: the disk did not take a flush.
    """
    loads: dict[tuple[str, int], Load] = {}
    with ExitStack() as stack:
        for system, durability in SYSTEMS:
            place = root / system
            place.mkdir()
            made = clients(place, sessions, (), _one, _many, durability=durability, system=system)
            loads |= stack.enter_context(made)
        if peers:
            counts = [count for count in sessions if count <= PEER_CLIENTS]
            for name, peer in (("sqlite", sqlite_loads), ("harness", harness_loads)):
                try:
                    found = stack.enter_context(peer(root, counts))
                except NotThereError as why:
                    skipped(f"{name} is left out: {why}")
                else:
                    loads |= {(name, count): load for count, load in found.items()}
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
