"""The agent loop, for threads: ask the model, run what it calls, until it has no more to call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing

from .chunks import Chunk
from .conversation import Conversation, Entry, Hearing
from .history import History
from .model import Model, ModelRequest
from .running import AgentOutcome, Running
from .session_log import SessionLog, StepLog, TurnLog


class Agent:
    """Runs a model on a session. In order, for each step of a turn:

    1. the step is opened, behind the barrier of K1;
    2. the system prompt and the user's message are appended, if they are new, and the request's
    header; 3. when the model's stream is first consumed, everything so far is made durable (K1),
       then the request leaves;
    4. the answer is appended with its stream, or an attempt if the model failed;
    5. its calls are run, each behind its own checkpoint, and the next step begins.

    :param session: the session; an agent is its only user while it runs.
    :param model: what to ask.
    :param system: the system prompt.
    :param on_chunk: told of every chunk as it arrives, on the agent's thread.
    """

    def __init__(
        self,
        session: SessionLog,
        model: Model,
        system: str = "",
        *,
        on_chunk: Callable[[Chunk], None] | None = None,
    ) -> None:
        self._session = session
        self._model = model
        self._talk = Conversation(model.config, system, History())
        self._on_chunk = on_chunk
        self._stopped = threading.Event()
        self._step: StepLog | None = None

    def run(self, prompt: str) -> AgentOutcome:
        """Run one turn: from the user's message to the model's last word. Blocks until then.

        A failing model ends the turn with the reason ``error``, which the outcome holds.

        :raises InterlockError: the log or the runtime failed; the turn is ended as far as possible.
        """
        self._stopped.clear()
        with self._session.turn() as turn:
            running = Running(turn.number)
            try:
                while running.reason is None:
                    with turn.step() as step:
                        self._step = step
                        self._take_step(turn, step, prompt if running.steps == 0 else None, running)
            finally:
                self._step = None
            turn.end(running.reason)
        return running.outcome()

    def stop(self) -> None:
        """End the running turn: cut off the model, cancel the calls, record what there is (P4).

        From any thread; :meth:`run` returns when all is recorded.
        """
        self._stopped.set()
        step = self._step
        if step is not None:
            step.cancel("the agent was stopped")

    def _take_step(
        self, turn: TurnLog, step: StepLog, prompt: str | None, running: Running
    ) -> None:
        talk = self._talk
        self._catch_up()
        self._append(talk.opening(turn.number, step.number, prompt))
        self._catch_up()
        request = talk.request(self._session.tools)
        self._append(talk.announcement(request))
        hearing = Hearing(self._model.config)
        try:
            self._listen(request, hearing)
        except BaseException:
            # Ctrl-C: what was heard is recorded before it goes on its way.
            hearing.interrupted()
            self._record(step, hearing)
            raise
        self._record(step, hearing)
        answer = hearing.answer()
        results = step.execute() if answer is not None and answer.calls else []
        running.stepped(answer, results, hearing.ending(step.number, self._stopped.is_set()))

    def _listen(self, request: ModelRequest, hearing: Hearing) -> None:
        with closing(self._released(request, hearing)) as chunks:
            for chunk in chunks:
                hearing.add(chunk, time.time_ns() // 1_000_000)
                if self._on_chunk is not None:
                    self._on_chunk(chunk)
                if hearing.ended:
                    return
                if self._stopped.is_set():
                    hearing.interrupted()
                    return

    def _released(self, request: ModelRequest, hearing: Hearing) -> Generator[Chunk, None, None]:
        # K1, K3: the barrier stands where the stream is first consumed; no durability, no request.
        self._session.flush()
        try:
            yield from self._model.stream(request)
        except Exception as error:
            hearing.failed(error)

    def _record(self, step: StepLog, hearing: Hearing) -> None:
        answer = hearing.answer()
        if answer is not None:
            step.record(answer)
        elif hearing.stream:
            step.attempt(hearing.stream)

    def _append(self, entries: list[Entry]) -> None:
        for entry in entries:
            self._session.append(
                entry.type, entry.data, surface_op=entry.surface_op, sources=entry.sources
            )

    def _catch_up(self) -> None:
        self._talk.history.add(self._session.read(self._talk.history.next_seq))
