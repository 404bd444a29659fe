"""A slice: a closed loop that runs for a given time, from one thread or from one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from .histogram import Histogram

#: One operation; returns how many ns of it count as its latency.
Operation = Callable[[], int]
AsyncOperation = Callable[[], Awaitable[int]]
#: Runs one slice of about so many seconds.
Load = Callable[[float], "Slice"]

#: The most operations of one client in one slice, so that a fast disk bounds no less than time.
MOST = 50_000


@dataclass
class Slice:
    """What a closed loop did: latencies, whole cycles of the loop, and the time it took."""

    latency: Histogram = field(default_factory=Histogram)
    cycle: Histogram = field(default_factory=Histogram)
    elapsed_ns: int = 0

    def add(self, other: Slice) -> None:
        """Take in another slice of the same load, run at another time."""
        self.latency.merge(other.latency)
        self.cycle.merge(other.cycle)
        self.elapsed_ns += other.elapsed_ns

    @property
    def per_second(self) -> float:
        """Completed operations per second, of all clients together."""
        return self.latency.count * 1e9 / self.elapsed_ns


def run_one(operation: Operation, seconds: float) -> Slice:
    """Repeat ``operation`` in this thread for ``seconds``, at least once."""
    done = Slice()
    begin = now = perf_counter_ns()
    until = begin + int(seconds * 1e9)
    for _ in range(MOST):
        done.latency.record(operation())
        before, now = now, perf_counter_ns()
        done.cycle.record(now - before)
        if now >= until:
            break
    done.elapsed_ns = now - begin
    return done


async def run_many(operations: Sequence[AsyncOperation], seconds: float) -> Slice:
    """Repeat each of ``operations`` in a task of its own for ``seconds``, at least once.

    The slice ends with the last operation, so the ones still under way at the end count too.
    """
    done = Slice()
    begin = perf_counter_ns()
    until = begin + int(seconds * 1e9)

    async def client(operation: AsyncOperation) -> None:
        now = begin
        for _ in range(MOST):
            done.latency.record(await operation())
            before, now = now, perf_counter_ns()
            done.cycle.record(now - before)
            if now >= until:
                return

    try:
        async with asyncio.TaskGroup() as tasks:
            for operation in operations:
                tasks.create_task(client(operation))
    except ExceptionGroup as failures:  # the first says it; the others have been cancelled
        raise failures.exceptions[0] from None
    done.elapsed_ns = perf_counter_ns() - begin
    return done
