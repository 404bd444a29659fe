"""The history that a model is shown, derived from a session's events.

The surface events in surface order, with two things mended in what is shown (never in the log):
results stand right behind their message in the order of its calls (P3), whatever order they became
known in, and a call without a result gets one that says so (R1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from interlock.backends.grammar import NOT_STARTED_TEXT
from interlock.backends.repair import NO_RESULT_TEXT

from .model import Message

#: Identity of a call within its session: seq of its message, and call id.
CallKey = tuple[int, str]


class HistoryEvent(Protocol):
    """What is read of an event (``interlock.backends.event.Event`` has all of it)."""

    @property
    def type(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def data(self) -> Mapping[str, Any]: ...
    @property
    def surface_op(self) -> Any: ...


class History:
    """The surface of one session, kept up to date event by event; in one thread."""

    def __init__(self) -> None:
        self._surface: list[int] = []
        self._shown: dict[int, HistoryEvent] = {}
        self._advertised: dict[str, int] = {}
        self._belongs: dict[int, CallKey] = {}
        self._started: set[CallKey] = set()
        #: The ``seq`` of the next event to :meth:`add`.
        self.next_seq = 0
        #: The last ``request/header`` in the log, if there is one.
        self.header: Mapping[str, Any] | None = None

    def add(self, events: Iterable[HistoryEvent]) -> None:
        """Take in further events, in order of ``seq``; ones seen before are passed over."""
        for event in events:
            if event.seq < self.next_seq:
                continue
            self.next_seq = event.seq + 1
            if event.surface_op is not None:
                self._enter(event)
            elif event.type == "request/header":
                self.header = event.data["header"]
            elif event.type == "tool/call":
                call_id = event.data["callId"]
                self._started.add((self._advertised.get(call_id, -1), call_id))

    @property
    def head(self) -> int | None:
        """The ``seq`` of the system message that leads the surface, if one does."""
        first = self._shown[self._surface[0]] if self._surface else None
        return first.seq if first is not None and first.type == "system/message" else None

    @property
    def empty(self) -> bool:
        """Whether nothing is on the surface yet."""
        return not self._surface

    def system(self) -> str:
        """Return the system prompt in force: that of the last system message."""
        for seq in reversed(self._surface):
            event = self._shown[seq]
            if event.type == "system/message":
                return _text(event.data["message"]["content"])
        return ""

    def messages(self) -> list[Message]:
        """Return the messages to hand to a model."""
        results: dict[CallKey, dict[str, Any]] = {}
        for seq in self._surface:
            if seq in self._belongs:
                block = self._shown[seq].data["message"]["content"][0]
                results[self._belongs[seq]] = block
        messages: list[Message] = []
        for seq in self._surface:
            event = self._shown[seq]
            if event.type == "user/message":
                messages.append(Message("user", event.data["content"]))
            elif event.type == "assistant/message":
                messages += self._exchange(event, results)
        return messages

    def _enter(self, event: HistoryEvent) -> None:
        operation = event.surface_op
        if operation == "append":
            self._surface.append(event.seq)
            if event.type == "tool/result":
                call_id = event.data["message"]["source"]["callId"]
                # R1, P9: an id belongs to the last message that advertised it.
                self._belongs[event.seq] = (self._advertised.get(call_id, -1), call_id)
        else:
            self._replace(event, operation.start_seq, operation.end_seq)
        self._shown[event.seq] = event
        if event.type == "assistant/message":
            for block in event.data["message"]["content"]:
                if block["type"] == "tool-call":
                    self._advertised[block["id"]] = event.seq

    def _replace(self, event: HistoryEvent, start_seq: int, end_seq: int) -> None:
        start = self._surface.index(start_seq)
        end = self._surface.index(end_seq) + 1
        hidden = self._surface[start:end]
        if event.type == "tool/result" and start_seq in self._belongs:
            self._belongs[event.seq] = self._belongs[start_seq]
        self._surface[start:end] = [event.seq]
        for seq in hidden:
            del self._shown[seq]
            self._belongs.pop(seq, None)

    def _exchange(
        self, event: HistoryEvent, results: Mapping[CallKey, dict[str, Any]]
    ) -> list[Message]:
        content = event.data["message"]["content"]
        if not content:
            return []  # an interrupted answer without a word is nothing to show
        calls = [block["id"] for block in content if block["type"] == "tool-call"]
        messages = [Message("assistant", content)]
        if calls:
            shown = [self._result(results, (event.seq, call_id)) for call_id in calls]
            messages.append(Message("user", shown))
        return messages

    def _result(self, results: Mapping[CallKey, dict[str, Any]], key: CallKey) -> dict[str, Any]:
        found = results.get(key)
        if found is not None:
            return found
        # R1: an old turn that ended without it; the past is not rewritten, what is known is shown.
        text = NO_RESULT_TEXT if key in self._started else NOT_STARTED_TEXT
        return {
            "type": "tool-result",
            "toolCallId": key[1],
            "content": [{"type": "text", "text": text}],
            "isError": True,
        }


def _text(content: list[dict[str, Any]]) -> str:
    return "\n".join(block["text"] for block in content if block["type"] == "text")
