"""A runtime and the agents at work on it, as tasks of one event loop; ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any, Self

from ..runtime.aio import AsyncRuntime, AsyncSession
from ..runtime.subscription import Progress, StreamedEvent
from .board import Board
from .screen import Screen

#: Seconds that running calls get at an orderly end; an interruption gives none.
GRACE = 5.0
#: Seconds that agents get to notice that the runtime was closed under them.
SETTLE = 0.3


class Crew:
    """Starts ``runtime``, runs tasks, and closes it. In order, at the end of the block:

    1. the runtime is closed, at once if the block was interrupted: what its calls came to is
       recorded while it closes, so that agents have nothing left to wait for;
    2. ``leave`` is awaited at the same time, for what else is to be ended;
    3. tasks that still run are cancelled.
    """

    def __init__(
        self, runtime: AsyncRuntime, leave: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self.runtime = runtime
        #: The block was interrupted: what fails from now on is no news.
        self.stopping = False
        self._leave = leave
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run an agent."""
        self._tasks.append(asyncio.create_task(work))

    async def all(self) -> None:
        """Wait for every agent; the first one that raises ends the wait."""
        await asyncio.gather(*self._tasks)

    async def __aenter__(self) -> Self:
        await self.runtime.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stopping = error is not None
        ends: list[Awaitable[Any]] = [self.runtime.close(0.0 if self.stopping else GRACE)]
        if self._leave is not None:
            ends.append(self._leave())
        await asyncio.gather(*ends)
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=SETTLE)


async def follow(
    session: AsyncSession,
    name: str,
    board: Board,
    screen: Screen,
    from_seq: int = 0,
    on_progress: Callable[[str, Any], None] | None = None,
) -> None:
    """Keep an agent's row up to date until its session is closed.

    :param on_progress: told of a call's id and what its body reported.
    """
    async for item in await session.subscribe(from_seq, progress=True):
        if isinstance(item, StreamedEvent):
            screen.line(board.event(name, item.event))
        elif isinstance(item, Progress) and item.kind == "progress":
            board.progress(name, item.call_id, item.value)
            if on_progress is not None:
                on_progress(item.call_id, item.value)
