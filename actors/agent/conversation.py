"""The decisions of the agent loop: what to log before a request, and when a turn is over.

Nothing here waits or sends; :mod:`.agent` and :mod:`.async_agent` do, each in its own way.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from interlock.actors.tools.outcome import describe, shorten
from interlock.actors.tools.spec import ToolSpec

from .answer import Accumulator, Answer
from .chunks import Chunk
from .history import History
from .model import ModelConfig, ModelRequest, declarations

#: Steps of one turn, after which an agent that still calls tools is stopped.
MAX_STEPS = 100

#: Under this name the agent's system prompt stands in the log.
PLUGIN = "interlock"

ABORTED = {"kind": "aborted", "reason": {"kind": "user"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An event to append."""

    type: str
    data: dict[str, Any]
    surface_op: Literal["append"] | tuple[int, int] | None = None
    sources: tuple[int, ...] | None = None


class Conversation:
    """What one agent knows between its steps: its history, and what the log says about requests."""

    def __init__(self, config: ModelConfig, system: str, history: History) -> None:
        self.history = history
        self._config = config
        self._system = system
        self._header: dict[str, Any] | None = None

    def opening(self, turn: int, step: int, prompt: str | None) -> list[Entry]:
        """Return what to append at the beginning of a step: system prompt, then the user's message.

        A system message can only lead the surface, or replace the one that leads it; in a session
        that began without one the prompt goes with the request alone.
        """
        entries = []
        if self._system and (self.history.empty or self.history.head is not None):
            head = self.history.head
            if head is None or self.history.system() != self._system:
                entries.append(self._system_message(turn, step, head))
        if prompt is not None:
            entries.append(_user_message(prompt))
        return entries

    def request(self, tools: Sequence[ToolSpec]) -> ModelRequest:
        """Return the request for the next answer, from the history as it is now."""
        return ModelRequest(
            config=self._config,
            system=self._system or self.history.system(),
            messages=self.history.messages(),
            tools=declarations(tools),
        )

    def announcement(self, request: ModelRequest) -> list[Entry]:
        """Return what to append before a request leaves: its header, where that is new."""
        header = request.header
        if header == self._header:
            return []
        known, first = self.history.header, self._header is None
        reason = "initial" if known is None else "resume" if first else "change"
        self._header = header
        context = {"provider": self._config.provider, "model": self._config.model}
        return [
            Entry(type="request/header", data={"header": header, "reason": reason}),
            Entry(type="request/context", data=context),
        ]

    def _system_message(self, turn: int, step: int, head: int | None) -> Entry:
        message = {
            "id": f"system-{uuid.uuid4().hex}",
            "role": "system",
            "content": [{"type": "text", "text": self._system}],
            "source": {"kind": "plugin", "plugin": PLUGIN},
        }
        return Entry(
            type="system/message",
            data={"turn": turn, "step": step, "message": message},
            surface_op="append" if head is None else (head, head),
            sources=None if head is None else (head,),
        )


def _user_message(text: str) -> Entry:
    data = {
        "id": f"user-{uuid.uuid4().hex}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }
    return Entry(type="user/message", data=data, surface_op="append")


class Hearing:
    """Takes the chunks of one answer and says what became of it."""

    def __init__(self, config: ModelConfig) -> None:
        self._accumulator = Accumulator(config.provider, config.model)
        self._failure: dict[str, Any] | None = None
        self._interrupted = False

    def add(self, chunk: Chunk, time: int) -> None:
        """Take a chunk that arrived at ``time`` (wall clock, ms)."""
        self._accumulator.add(chunk, time)

    @property
    def ended(self) -> bool:
        """Whether the model has said its last."""
        return self._accumulator.finish is not None

    def failed(self, error: BaseException) -> None:
        """The model raised."""
        code = getattr(error, "code", None)
        known = isinstance(code, str) and code
        self._failure = {
            "message": shorten(describe(error), 2000),
            "code": str(code) if known else type(error).__name__,
        }

    def interrupted(self) -> None:
        """The answer was cut off by us."""
        self._interrupted = True

    def answer(self) -> Answer | None:
        """Return what to record as a message; ``None``: the chunks were an attempt, or nothing."""
        if self.failure is not None:
            return None
        answer = self._accumulator.answer(interrupted=self._interrupted)
        return None if self._interrupted and not answer.content else answer

    @property
    def stream(self) -> list[dict[str, Any]]:
        """The records of the chunks so far."""
        return self._accumulator.stream

    @property
    def failure(self) -> dict[str, Any] | None:
        """Why there is no answer, as a ``failure`` of the format."""
        if self._failure is not None or self._interrupted:
            return self._failure
        finish = self._accumulator.finish
        if finish is None:
            return {"message": "the stream ended before the answer did", "code": "STREAM_CUT"}
        if finish["kind"] in ("error", "aborted"):
            failure: dict[str, Any] = finish["failure"]
            return failure
        return None

    def ending(self, step: int, stopped: bool) -> dict[str, Any] | None:
        """Return the reason for which the turn is over; ``None``: the agent goes on."""
        if self._interrupted:
            return ABORTED
        if self.failure is not None:
            return {"kind": "error", "error": self.failure}
        answer = self._accumulator.answer()
        if answer.finish["kind"] == "max-tokens":
            return {"kind": "max-tokens"}
        if not answer.calls:
            return {"kind": "completed"}
        if stopped:
            return ABORTED
        if step >= MAX_STEPS:
            message = f"the agent still called tools after {MAX_STEPS} steps of one turn"
            return {"kind": "error", "error": {"message": message, "code": "STEP_LIMIT"}}
        return None
