"""A log as a story: turns, steps, calls with their approvals and results, told in model order.

Pure decisions over events; :mod:`.render`, :mod:`.markdown` and ``show --json`` print them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from interlock.backends.event import Event, to_json

from .output import one_line

#: How repair's own results are told from real ones: by the id of their message (the log's format).
_SYNTHETIC = "interrupted-tool-result-"
#: Events that stand elsewhere in the story, or only mark what it shows anyway.
_QUIET = frozenset({"interlock/writer", "step/start"})


@dataclass
class Message:
    """What somebody said: a person, a plugin, the model, the system."""

    kind: str
    seq: int
    time: int
    role: str
    source: str
    text: str
    reasoning: str = ""


@dataclass
class Note:
    """An event with no place of its own, in one line."""

    kind: str
    seq: int
    time: int
    type: str
    text: str


@dataclass
class Approval:
    """One request and what became of it. ``by`` says who decided, where the log knows."""

    id: str
    tool: str
    reason: str
    asked_at: int
    outcome: str | None = None
    decided_at: int | None = None
    by: str | None = None
    note: str | None = None
    sandbox: dict[str, Any] | None = None


@dataclass
class Nested:
    """A call that a body made, recorded under its parent."""

    sub_call_id: str
    parent_call_id: str
    name: str
    arguments: Any
    time: int
    ended_at: int | None = None
    is_error: bool = False
    text: str = ""


@dataclass
class Result:
    """The result of a call; ``repaired`` where repair wrote it and no body returned it."""

    seq: int
    time: int
    is_error: bool
    code: str | None
    text: str
    repaired: bool
    spill: str | None
    meta: dict[str, Any]


@dataclass
class Call:
    """One advertised call. ``seq`` is its ``tool/call``, None where it was never recorded."""

    kind: str
    call_id: str
    name: str
    arguments: str
    message_seq: int
    seq: int | None = None
    time: int | None = None
    approvals: list[Approval] = field(default_factory=list)
    nested: list[Nested] = field(default_factory=list)
    result: Result | None = None

    @property
    def code(self) -> str | None:
        """``OK``, the result's code, or None while there is no result."""
        if self.result is None:
            return None
        return (self.result.code or "ERROR") if self.result.is_error else "OK"

    @property
    def took(self) -> int | None:
        """From the moment the call could start (record, grant) to its result, in ms."""
        if self.result is None or self.result.repaired or self.time is None:
            return None
        granted = [a.decided_at for a in self.approvals if a.decided_at is not None]
        return max(0, self.result.time - max([self.time, *granted]))


Entry = Message | Note | Call


@dataclass
class Step:
    """One model answer and its calls."""

    step: int
    started_at: int
    ended_at: int | None = None
    entries: list[Entry] = field(default_factory=list)


@dataclass
class Chapter:
    """A turn, or (``turn`` None) what happened outside of one."""

    turn: int | None
    started_at: int
    before: list[Entry] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    after: list[Entry] = field(default_factory=list)
    ended_at: int | None = None
    reason: dict[str, Any] | None = None

    @property
    def open(self) -> bool:
        """Whether the turn has no end in the log."""
        return self.turn is not None and self.reason is None

    @property
    def calls(self) -> Iterator[Call]:
        """Every call of the turn."""
        for step in self.steps:
            for entry in step.entries:
                if isinstance(entry, Call):
                    yield entry


def tell(events: Iterable[Event]) -> Iterator[Chapter]:
    """Yield the chapters of a log in order; only one of them is in memory at a time."""
    teller = _Teller()
    for event in events:
        yield from teller.take(event)
    if teller.chapter is not None:
        yield teller.chapter


class _Teller:
    """Puts each event into its place in the open chapter."""

    def __init__(self) -> None:
        self.chapter: Chapter | None = None
        self._step: Step | None = None
        self._calls: dict[str, Call] = {}
        self._approvals: dict[str, Approval] = {}
        self._nested: dict[str, Nested] = {}

    def take(self, event: Event) -> Iterator[Chapter]:
        if event.type == "turn/start":
            if self.chapter is not None:
                yield self.chapter
            self.chapter = Chapter(event.data["turn"], event.time)
            self._step, self._calls, self._approvals, self._nested = None, {}, {}, {}
            return
        if event.type == "turn/end" and self.chapter is not None:
            self.chapter.reason, self.chapter.ended_at = event.data["reason"], event.time
            yield self.chapter
            self.chapter = self._step = None
            return
        place = _PLACES.get(event.type)
        if place is not None:
            place(self, event)
        elif event.type not in _QUIET:
            self._add(Note("note", event.seq, event.time, event.type, note_text(event)))

    def _add(self, entry: Entry) -> None:
        if self._step is not None:
            self._step.entries.append(entry)
            return
        if self.chapter is None:
            self.chapter = Chapter(None, entry.time or 0)
        chapter = self.chapter
        (chapter.after if chapter.steps else chapter.before).append(entry)

    def _step_start(self, event: Event) -> None:
        self._step = Step(event.data["step"], event.time)
        self._calls = {}
        if self.chapter is None:
            self.chapter = Chapter(event.data["turn"], event.time)
        self.chapter.steps.append(self._step)

    def _step_end(self, event: Event) -> None:
        if self._step is not None:
            self._step.ended_at = event.time
        self._step = None

    def _user(self, event: Event) -> None:
        self._add(_message(event, event.data))

    def _system(self, event: Event) -> None:
        self._add(_message(event, event.data["message"]))

    def _assistant(self, event: Event) -> None:
        message = event.data["message"]
        said = _message(event, message)
        if said.text or said.reasoning:
            self._add(said)
        for block in message["content"]:
            if block.get("type") == "tool-call":
                call = Call("call", block["id"], block["name"], block["arguments"], event.seq)
                self._calls[call.call_id] = call
                self._add(call)

    def _call(self, event: Event) -> None:
        data = event.data
        call = self._calls.get(data["callId"])
        if call is None:  # recorded without being advertised: shown all the same
            call = Call("call", data["callId"], data["name"], data["arguments"], -1)
            self._calls[call.call_id] = call
            self._add(call)
        call.seq, call.time = event.seq, event.time

    def _result(self, event: Event) -> None:
        message = event.data["message"]
        call = self._calls.get(message["source"]["callId"])
        if event.surface_op != "append" or call is None:
            self._add(Note("note", event.seq, event.time, event.type, note_text(event)))
            return
        block = message["content"][0]
        error, meta = event.data.get("error"), event.data.get("meta")
        meta = meta if isinstance(meta, dict) else {}
        spill = meta.get("spill")
        call.result = Result(
            event.seq,
            event.time,
            bool(block.get("isError", False)),
            error["code"] if error else None,
            text_of(block["content"]),
            str(message["id"]).startswith(_SYNTHETIC),
            spill.get("file") if isinstance(spill, dict) else None,
            meta,
        )

    def _asked(self, event: Event) -> None:
        data = event.data
        approval = Approval(data["id"], data["toolName"], data.get("reason", ""), event.time)
        self._approvals[approval.id] = approval
        call = self._calls.get(data.get("callId", ""))
        if call is None:
            text = f"approval of {approval.tool} was asked for: {one_line(approval.reason)}"
            self._add(Note("note", event.seq, event.time, event.type, text))
        else:
            call.approvals.append(approval)

    def _decided(self, event: Event) -> None:
        approval = self._approvals.get(event.data["id"])
        if approval is not None:
            approval.outcome, approval.decided_at = event.data["outcome"], event.time

    def _audit(self, event: Event) -> None:
        data = event.data
        approval = self._approvals.get(str(data.get("id")))
        if approval is None:
            return
        if data.get("state") == "decided":
            approval.by, approval.note = data.get("by"), data.get("note")
        elif isinstance(data.get("sandbox"), dict):
            approval.sandbox = data["sandbox"]

    def _nested_start(self, event: Event) -> None:
        data = event.data
        nested = Nested(
            data["subCallId"], data["parentCallId"], data["name"], data["arguments"], event.time
        )
        self._nested[nested.sub_call_id] = nested
        call = self._calls.get(data["rootCallId"])
        if call is not None:
            call.nested.append(nested)

    def _nested_end(self, event: Event) -> None:
        nested = self._nested.get(event.data["subCallId"])
        if nested is not None:
            nested.ended_at, nested.is_error = event.time, bool(event.data["isError"])
            nested.text = text_of(event.data["content"])


_PLACES = {
    "step/start": _Teller._step_start,
    "step/end": _Teller._step_end,
    "user/message": _Teller._user,
    "system/message": _Teller._system,
    "assistant/message": _Teller._assistant,
    "tool/call": _Teller._call,
    "tool/result": _Teller._result,
    "approval/asked": _Teller._asked,
    "approval/decided": _Teller._decided,
    "interlock/approval": _Teller._audit,
    "tool/ptc-dispatch-start": _Teller._nested_start,
    "tool/ptc-dispatch": _Teller._nested_end,
}


def text_of(content: Any, kind: str = "text") -> str:
    """Return the text of a message's blocks; a block of another kind is named in brackets."""
    parts = []
    for block in content if isinstance(content, list) else []:
        found = block.get("type") if isinstance(block, dict) else None
        if found == kind:
            parts.append(str(block.get("text", "")))
        elif kind == "text" and found not in ("reasoning", "tool-call"):
            parts.append(f"[{found}]")
    return "\n".join(parts)


def note_text(event: Event) -> str:
    """Return an event's payload in one line of JSON."""
    from interlock.backends import jsontext

    return jsontext.dumps(to_json(event)["data"]).decode("utf-8", "surrogatepass")


def _message(event: Event, message: dict[str, Any]) -> Message:
    source = message.get("source") or {}
    named = [source.get(key) for key in ("plugin", "provider", "model")]
    words = dict.fromkeys(str(word) for word in [source.get("kind"), *named] if word)
    return Message(
        "message",
        event.seq,
        event.time,
        str(message.get("role", "")),
        " ".join(words),
        text_of(message.get("content")),
        text_of(message.get("content"), "reasoning"),
    )
