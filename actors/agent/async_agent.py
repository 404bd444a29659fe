"""The agent loop, for an event loop: as :mod:`.agent`, with coroutines."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from .chunks import Chunk
from .conversation import Conversation, Entry, Hearing
from .history import History
from .model import AsyncModel, ModelRequest
from .running import AgentOutcome, Running
from .session_log import AsyncSessionLog, StepLog, TurnLog


class AsyncAgent:
    """Runs a model on a session from one event loop; the steps and parameters are those of
    :class:`~.agent.Agent`. Cancelling the task of :meth:`run` ends the turn as P4 says.
    """

    def __init__(
        self,
        session: AsyncSessionLog,
        model: AsyncModel,
        system: str = "",
        *,
        on_chunk: Callable[[Chunk], None] | None = None,
    ) -> None:
        self._session = session
        self._model = model
        self._talk = Conversation(model.config, system, History())
        self._on_chunk = on_chunk

    async def run(self, prompt: str) -> AgentOutcome:
        """Run one turn: from the user's message to the model's last word.

        A failing model ends the turn with the reason ``error``, which the outcome holds.

        :raises InterlockError: the log or the runtime failed; the turn is ended as far as possible.
        """
        async with self._session.turn() as turn:
            running = Running(turn.number)
            while running.reason is None:
                async with turn.step() as step:
                    first = prompt if running.steps == 0 else None
                    await self._take_step(turn, step, first, running)
            await turn.end(running.reason)
        return running.outcome()

    async def _take_step(
        self, turn: TurnLog, step: StepLog, prompt: str | None, running: Running
    ) -> None:
        talk = self._talk
        await self._catch_up()
        await self._append(talk.opening(turn.number, step.number, prompt))
        await self._catch_up()
        request = talk.request(self._session.tools)
        await self._append(talk.announcement(request))
        hearing = Hearing(self._model.config)
        try:
            await self._listen(request, hearing)
        except BaseException:
            # Cancelled: what was heard is recorded before the cancellation goes on its way.
            hearing.interrupted()
            await self._record(step, hearing)
            raise
        await self._record(step, hearing)
        answer = hearing.answer()
        results = await step.execute() if answer is not None and answer.calls else []
        running.stepped(answer, results, hearing.ending(step.number, stopped=False))

    async def _listen(self, request: ModelRequest, hearing: Hearing) -> None:
        async with aclosing(self._released(request, hearing)) as chunks:
            async for chunk in chunks:
                hearing.add(chunk, time.time_ns() // 1_000_000)
                if self._on_chunk is not None:
                    self._on_chunk(chunk)
                if hearing.ended:
                    return

    async def _released(
        self, request: ModelRequest, hearing: Hearing
    ) -> AsyncGenerator[Chunk, None]:
        # K1, K3: the barrier stands where the stream is first consumed; no durability, no request.
        await self._session.flush()
        try:
            async for chunk in self._model.astream(request):
                yield chunk
        except Exception as error:
            hearing.failed(error)

    async def _record(self, step: StepLog, hearing: Hearing) -> None:
        answer = hearing.answer()
        if answer is not None:
            await step.record(answer)
        elif hearing.stream:
            await step.attempt(hearing.stream)

    async def _append(self, entries: list[Entry]) -> None:
        for entry in entries:
            await self._session.append(
                entry.type, entry.data, surface_op=entry.surface_op, sources=entry.sources
            )

    async def _catch_up(self) -> None:
        self._talk.history.add(await self._session.read(self._talk.history.next_seq))
