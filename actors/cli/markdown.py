"""The story of a log as a Markdown page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from interlock.backends.event import Event
from interlock.backends.header import Header

from .output import clean, duration, moment, one_line
from .story import Call, Chapter, Entry, Message, tell


def page(header: Header, events: Iterable[Event]) -> Iterator[bytes]:
    """Yield the page in pieces. Nothing is shortened."""
    yield _text(f"# Session {_inline(header.id)}\n\n")
    yield _text(f"- created: {moment(header.created_at, date=True)}\n")
    if header.cwd is not None:
        yield _text(f"- working directory: {_inline(header.cwd)}\n")
    for chapter in tell(events):
        for piece in _chapter(chapter):
            yield _text(piece)


def _text(piece: str) -> bytes:
    return piece.encode("utf-8", "backslashreplace")


def _chapter(chapter: Chapter) -> Iterator[str]:
    title = "Outside any turn" if chapter.turn is None else f"Turn {chapter.turn}"
    yield f"\n## {title} ({moment(chapter.started_at, date=True)})\n"
    for entry in chapter.before:
        yield from _entry(entry)
    for step in chapter.steps:
        yield f"\n### Step {step.step}\n"
        for entry in step.entries:
            yield from _entry(entry)
    for entry in chapter.after:
        yield from _entry(entry)
    if chapter.open:
        yield "\n**This turn has no end in the log.**\n"
    elif chapter.reason is not None and chapter.reason.get("kind") != "completed":
        yield f"\n**This turn ended: {one_line(str(chapter.reason.get('kind')))}.**\n"


def _entry(entry: Entry) -> Iterator[str]:
    if isinstance(entry, Call):
        yield from _call(entry)
    elif isinstance(entry, Message):
        yield f"\n**{entry.role}**\n"
        if entry.reasoning:
            yield f"\n{_quote(entry.reasoning)}\n"
        if entry.text:
            yield f"\n{clean(entry.text)}\n"
    else:
        yield f"\n*{one_line(entry.type)}* {_inline(one_line(entry.text))}\n"


def _call(call: Call) -> Iterator[str]:
    yield f"\n#### Call {_inline(call.call_id)}: {_inline(call.name)}\n\n{_fence(call.arguments)}\n"
    for approval in call.approvals:
        outcome = approval.outcome or "not decided"
        by = f" by {_inline(approval.by)}" if approval.by else ""
        note = f": {one_line(approval.note)}" if approval.note else ""
        yield f"\n- approval ({one_line(approval.reason)}): **{outcome}**{by}{note}\n"
    for nested in call.nested:
        word = "no end" if nested.ended_at is None else "error" if nested.is_error else "ok"
        yield f"\n- it called {_inline(nested.name)} ({_inline(nested.sub_call_id)}): {word}\n"
    result = call.result
    if result is None:
        told = "not recorded as started" if call.seq is None else "recorded, without a result"
        yield f"\n**{told}**\n"
        return
    took = "" if call.took is None else f" after {duration(call.took)}"
    made = " (written by repair)" if result.repaired else ""
    yield f"\nResult: **{call.code}**{took}{made}\n\n{_fence(result.text)}\n"
    if result.spill is not None:
        yield f"\nThe whole result is in {_inline(result.spill)} beside the log.\n"


def _fence(text: str) -> str:
    """A code block that its content cannot close."""
    longest = max([2, *(len(run) for run in re.findall(r"`+", text))])
    bar = "`" * (longest + 1)
    return f"{bar}\n{clean(text)}\n{bar}"


def _inline(text: str) -> str:
    longest = max([0, *(len(run) for run in re.findall(r"`+", text))])
    bar = "`" * (longest + 1)
    space = " " if "`" in text else ""
    return f"{bar}{space}{one_line(text)}{space}{bar}"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}" for line in clean(text).split("\n"))
