"""Clients of a runtime: one in this thread, many on an event loop, made and ended together.

One client waits in its own thread (:class:`~interlock.actors.Runtime`); several share an event loop
(:class:`~interlock.actors.AsyncRuntime`), as programs with one agent and with many do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..runtime.aio import AsyncRuntime, AsyncSession
from ..runtime.sync import Runtime, Session
from .slices import AsyncOperation, Load, Operation, Slice, run_many, run_one

#: Makes the operation of one client; what it opens is ended by the stack.
MakeOne = Callable[[Session, ExitStack], Operation]
MakeMany = Callable[[AsyncSession, AsyncExitStack], Awaitable[AsyncOperation]]


@contextmanager
def one_client(root: Path, tools: Sequence[Any], make: MakeOne, durability: str) -> Iterator[Load]:
    """A runtime with one session, used from this thread; it has run once when this yields."""
    with Runtime(root, tools=tools, durability=durability) as runtime, ExitStack() as stack:
        operation = make(runtime.create(), stack)
        operation()
        yield lambda seconds: run_one(operation, seconds)


@contextmanager
def many_clients(
    root: Path, tools: Sequence[Any], make: MakeMany, counts: Sequence[int], durability: str
) -> Iterator[dict[int, Load]]:
    """A runtime with as many sessions as the largest of ``counts``; a load for each count.

    The load of ``n`` clients uses the first ``n`` sessions, the others stay open and idle. Each has
    run once when this yields: publishing a new log takes more syncs than a flush.
    """
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()

        async def prepare() -> list[AsyncOperation]:
            made_of = AsyncRuntime(root, tools=tools, durability=durability)
            runtime = await stack.enter_async_context(made_of)
            sessions = await asyncio.gather(*(runtime.create() for _ in range(max(counts))))
            made = [await make(session, stack) for session in sessions]
            await asyncio.gather(*(operation() for operation in made))
            return made

        try:
            operations = runner.run(prepare())
            yield {count: _load(runner, operations[:count]) for count in counts}
        finally:
            runner.run(stack.aclose())


def _load(runner: asyncio.Runner, operations: Sequence[AsyncOperation]) -> Load:
    def load(seconds: float) -> Slice:
        return runner.run(run_many(operations, seconds))

    return load


@contextmanager
def clients(
    root: Path,
    counts: Sequence[int],
    tools: Sequence[Any],
    one: MakeOne,
    many: MakeMany,
    *,
    durability: str = "journal",
    system: str = "interlock",
) -> Iterator[dict[tuple[str, int], Load]]:
    """A load for each of ``counts``, by ``system`` and how many clients it has."""
    loads: dict[int, Load] = {}
    several = [count for count in counts if count > 1]
    with ExitStack() as stack:
        if 1 in counts:
            loads[1] = stack.enter_context(one_client(root, tools, one, durability))
        if several:
            loads |= stack.enter_context(many_clients(root, tools, many, several, durability))
        yield {(system, count): loads[count] for count in counts}
