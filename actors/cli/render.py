"""The story of a log as text for a person, on a terminal of any width or through a pipe."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from .output import Line, clean, duration, moment, one_line
from .story import Approval, Call, Chapter, Entry, Message, Nested, Note, Result, Step

#: How much of one text is shown unless everything is asked for: lines and characters.
LINES = 12
CHARACTERS = 1200
#: Codes that a person must not overlook: nobody knows, or may know, what the call did.
UNKNOWN = frozenset({"TOOL_OUTCOME_UNKNOWN", "TOOL_TIMEOUT", "ABORTED"})
#: Codes that say for sure that no body ran.
NEVER_RAN = frozenset(
    {
        "TOOL_NOT_STARTED",
        "ABORTED_BEFORE_DISPATCH",
        "UNKNOWN_TOOL",
        "INVALID_ARGS",
        "TOOL_DENIED",
        "APPROVAL_REJECTED",
        "APPROVAL_CANCELLED",
        "APPROVAL_UNAVAILABLE",
        "CHECKPOINT_FAILED",
        "SANDBOX_UNAVAILABLE",
    }
)
_OUTCOMES = {
    "allowed-once": ("allowed once", "green"),
    "rejected": ("rejected", "red"),
    "cancelled": ("cancelled", "yellow"),
    "unavailable": ("nobody could decide", "yellow"),
}


@dataclass(frozen=True)
class Filter:
    """Which part of a log to show; None: everything."""

    turn: int | None = None
    tool: str | None = None
    code: str | None = None
    #: Of turns and, with ``--raw``, of events; ms since the epoch.
    since: int | None = None
    until: int | None = None

    def select(self, chapter: Chapter) -> Chapter | None:
        """Return the part of a chapter that is asked for, or None."""
        if self.turn is not None and chapter.turn != self.turn:
            return None
        if not self.in_time(chapter.started_at, chapter.ended_at):
            return None
        if self.tool is None and self.code is None:
            return chapter
        steps = []
        for step in chapter.steps:
            calls: list[Entry] = [e for e in step.entries if isinstance(e, Call) and self._fits(e)]
            if calls:
                steps.append(replace(step, entries=calls))
        return replace(chapter, before=[], after=[], steps=steps) if steps else None

    def in_time(self, start: int, end: int | None) -> bool:
        """Tell whether something that lasted from ``start`` to ``end`` (None: still) is shown."""
        before = self.until is None or start <= self.until
        return before and (self.since is None or end is None or end >= self.since)

    def _fits(self, call: Call) -> bool:
        if self.tool is not None and call.name != self.tool:
            return False
        return self.code is None or (call.code or "NONE") == self.code.upper()


def lines(chapter: Chapter, *, full: bool = False) -> Iterator[Line]:
    """Yield the lines of one chapter; ``full`` shortens nothing."""
    yield Line(0, "")
    yield Line(0, _heading(chapter), "bold")
    for entry in chapter.before:
        yield from _entry(entry, 2, full)
    for step in chapter.steps:
        yield from _step(step, full)
    for entry in chapter.after:
        yield from _entry(entry, 2, full)
    if chapter.turn is not None:
        yield _ending(chapter)


def shorten(text: str, *, full: bool, rest: str = "--full shows everything") -> str:
    """Return the beginning of a long text, with a note of what is left out."""
    kept = "\n".join(text.split("\n")[:LINES])[:CHARACTERS]
    if full or len(kept) == len(text):
        return text
    return f"{kept.rstrip()}\n… {len(text) - len(kept):,} more characters ({rest})"


def _heading(chapter: Chapter) -> str:
    name = "outside any turn" if chapter.turn is None else f"turn {chapter.turn}"
    words = [name, moment(chapter.started_at)]
    if chapter.ended_at is not None:
        words.append(duration(max(0, chapter.ended_at - chapter.started_at)))
    return " · ".join(words)


def _ending(chapter: Chapter) -> Line:
    if chapter.reason is None:
        return Line(2, f"turn {chapter.turn} has no end in the log", "bold yellow")
    kind = str(chapter.reason.get("kind"))
    if kind == "completed":
        return Line(2, f"turn {chapter.turn} completed", "dim")
    details = chapter.reason.get("error") or chapter.reason.get("reason") or {}
    words = [str(details[key]) for key in ("code", "kind", "message") if details.get(key)]
    why = f": {one_line(' '.join(words))}" if words else ""
    told = "interrupted; repair closed it" if kind == "interrupted" else kind
    return Line(2, f"turn {chapter.turn} {told}{why}", "bold yellow")


def _step(step: Step, full: bool) -> Iterator[Line]:
    took = (
        "" if step.ended_at is None else f" · {duration(max(0, step.ended_at - step.started_at))}"
    )
    yield Line(2, f"step {step.step} · {moment(step.started_at)}{took}", "dim")
    for entry in step.entries:
        yield from _entry(entry, 4, full)


def _entry(entry: Entry, indent: int, full: bool) -> Iterator[Line]:
    if isinstance(entry, Call):
        yield from _call(entry, indent, full)
    elif isinstance(entry, Message):
        yield from _message(entry, indent, full)
    else:
        yield _note(entry, indent)


def _message(message: Message, indent: int, full: bool) -> Iterator[Line]:
    source = "" if message.source == message.role else f" · {one_line(message.source)}"
    yield Line(indent, f"{message.role}{source}", "bold cyan")
    if message.reasoning:
        yield Line(indent + 2, clean(shorten(message.reasoning, full=full)), "dim italic")
    yield Line(indent + 2, clean(shorten(message.text, full=full)))


def _note(note: Note, indent: int) -> Line:
    loud = note.type in ("interlock/settled", "interlock/notice")
    return Line(indent, one_line(f"{note.type} {note.text}", 300), "yellow" if loud else "dim")


def _call(call: Call, indent: int, full: bool) -> Iterator[Line]:
    yield Line(indent, f"call {one_line(call.call_id)} · {one_line(call.name)}", "bold")
    yield Line(indent + 2, clean(shorten(call.arguments, full=full)))
    for approval in call.approvals:
        yield from _approval(approval, indent + 2)
    for nested in call.nested:
        yield from _nested(nested, indent + 2, full)
    if call.result is not None:
        yield from _result(call, call.result, indent + 2, full)
    elif call.seq is None:
        yield Line(indent + 2, "not recorded as started; no result", "yellow")
    else:
        started = "" if call.time is None else f" at {moment(call.time)}"
        yield Line(indent + 2, f"recorded{started}; no result in the log", "bold yellow")


def _approval(approval: Approval, indent: int) -> Iterator[Line]:
    wider = ""
    if approval.sandbox:
        wider = f" [sandbox {approval.sandbox.get('from')} → {approval.sandbox.get('to')}]"
    yield Line(
        indent,
        f"approval asked {moment(approval.asked_at)}: {one_line(approval.reason)}{one_line(wider)}",
        "dim",
    )
    if approval.outcome is None or approval.decided_at is None:
        yield Line(indent, f"approval {approval.id} is not decided", "bold yellow")
        return
    words, style = _OUTCOMES.get(approval.outcome, (approval.outcome, "yellow"))
    by = f" by {one_line(approval.by)}" if approval.by else ""
    waited = duration(max(0, approval.decided_at - approval.asked_at))
    note = f": {one_line(approval.note)}" if approval.note else ""
    yield Line(indent, f"{words}{by} after {waited}{note}", style)


def _nested(nested: Nested, indent: int, full: bool) -> Iterator[Line]:
    arguments = nested.arguments
    shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    yield Line(
        indent,
        f"calls {one_line(nested.name)} ({one_line(nested.sub_call_id)}) {one_line(shown, 300)}",
    )
    if nested.ended_at is None:
        yield Line(indent + 2, "no end in the log", "yellow")
        return
    took = duration(max(0, nested.ended_at - nested.time))
    word, style = ("error", "red") if nested.is_error else ("ok", "green")
    yield Line(indent + 2, f"{word} after {took}", style)
    yield Line(indent + 2, clean(shorten(nested.text, full=full)), "dim")


def _result(call: Call, result: Result, indent: int, full: bool) -> Iterator[Line]:
    yield Line(indent, _verdict(call, result), _style(result))
    where = _where(result.meta)
    if where and result.code not in NEVER_RAN:
        yield Line(indent, where, "dim")
    yield Line(indent + 2, clean(shorten(result.text, full=full)))
    if result.spill is not None:
        yield Line(indent + 2, _spilled(result), "dim")


def _verdict(call: Call, result: Result) -> str:
    if result.repaired:
        return f"{result.code} · written by repair, no body returned this"
    word = (result.code or "error") if result.is_error else "ok"
    if result.is_error and result.code in NEVER_RAN:
        return f"{word} · it never ran"
    return word if call.took is None else f"{word} after {duration(call.took)}"


def _style(result: Result) -> str:
    if not result.is_error:
        return "green"
    if result.repaired or result.code in UNKNOWN:
        return "bold black on yellow" if result.code == "TOOL_OUTCOME_UNKNOWN" else "bold yellow"
    return "red"


def _where(meta: dict[str, Any]) -> str:
    """Where the body ran and what held it (S10)."""
    place = meta.get("place")
    if place is None:
        return ""
    sandbox = meta.get("sandbox")
    if not isinstance(sandbox, dict):
        return f"ran in the {place}, not confined" if place in ("worker", "host") else ""
    held = "confined" if meta.get("confined") else "not confined"
    named = f"{sandbox.get('backend')}, {sandbox.get('mode')}, {sandbox.get('enforcement')}"
    return one_line(f"ran in the sandbox, {held} ({named})")


def _spilled(result: Result) -> str:
    spill = result.meta["spill"]
    cut = f", {spill['cut']} bytes cut out of its middle" if spill.get("cut") else ""
    whole = f"the whole result ({spill.get('size')} bytes{cut})"
    return one_line(f"{whole} is in {spill.get('file')} beside the log")
