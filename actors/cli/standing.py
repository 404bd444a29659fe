"""How a session stands right now: complete, at work, waiting for somebody, interrupted (U-05)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from interlock.backends.disk import OsDisk
from interlock.backends.event import Draft
from interlock.backends.fold import LogFold
from interlock.backends.lock import held, holder
from interlock.backends.passes import Dropped
from interlock.backends.repair import closers

from .locate import Found


@dataclass(frozen=True)
class Standing:
    """``state`` is ``complete``, ``open``, ``running``, ``waiting`` or ``interrupted``.

    ``words`` explain it, one sentence a line; ``closers`` is what repair would append, in order.
    """

    state: str
    words: list[str]
    held: bool
    holder: dict[str, Any] | None = None
    closers: list[dict[str, Any]] = field(default_factory=list)


def standing(found: Found, fold: LogFold, dropped: Dropped | None, name: str) -> Standing:
    """Judge a log that was read to its end; looks at its lock, changes nothing."""
    disk = OsDisk()
    alive = held(found.directory, disk)
    who = holder(found.directory, disk) if alive else None
    if alive:
        return _held(fold, who)
    words = [] if dropped is None else [dropped_words(dropped)]
    if fold.turn is None:
        return Standing("complete", words or ["No turn is open."], False)
    drafts = missing(fold, dropped)
    words.append(
        f"Turn {fold.turn} is open and nobody has the log open: it was interrupted. "
        f"Opening it to write, or `interlock sessions repair {name} --write`, appends:"
    )
    entries = [closer(draft) for draft in drafts]
    words += [f"  {closer_words(entry)}" for entry in entries]
    return Standing("interrupted", words, False, None, entries)


def missing(fold: LogFold, dropped: Dropped | None) -> list[Draft]:
    """Return the events that would complete the log (R2)."""
    return closers(fold, dropped_acknowledged=dropped is not None and dropped.may_be_acknowledged)


def closer(draft: Draft) -> dict[str, Any]:
    """Return type, code, call id and text of an event that repair appends."""
    data: dict[str, Any] = msgspec.json.decode(draft.data)
    error, message = data.get("error"), data.get("message")
    return {
        "type": draft.type,
        "code": error["code"] if error else None,
        "call_id": message["source"]["callId"] if message else data.get("callId"),
        "text": message["content"][0]["content"][0]["text"] if message else None,
    }


def closer_words(entry: dict[str, Any]) -> str:
    """Return what one closer says, in one line."""
    about = " ".join(str(entry[key]) for key in ("call_id", "code") if entry[key])
    return f"{entry['type']} {about}".rstrip()


def dropped_words(dropped: Dropped) -> str:
    """Say what the end of a log held that is not part of it (L9)."""
    lost = (
        "some of it may have been acknowledged"
        if dropped.may_be_acknowledged
        else "none of it was ever acknowledged as durable"
    )
    return (
        f"The last {dropped.bytes} bytes, from offset {dropped.offset} on, are incomplete: "
        f"{dropped.recovered} events were recovered from them, {dropped.records} given up; {lost}."
    )


def holder_words(line: dict[str, Any] | None) -> str:
    """Name the holder of a lock by what its line says."""
    if line is None:
        return "a process that left no line about itself"
    return (
        f"process {line.get('pid')} on {line.get('host')} ({line.get('command')}) "
        f"since {line.get('since')}"
    )


def _held(fold: LogFold, who: dict[str, Any] | None) -> Standing:
    by = f"Open for writing by {holder_words(who)}."
    if fold.turn is None:
        return Standing("open", [by, "No turn is open."], True, who)
    where = f"Turn {fold.turn}" + (f", step {fold.step}" if fold.step is not None else "")
    waiting = [
        f"{where} waits for approval {approval.id} of {approval.tool_name}"
        + (f" (call {approval.call_id})." if approval.call_id else ".")
        for approval in fold.open_approvals
    ]
    if waiting:
        return Standing(
            "waiting", [by, *waiting, "`interlock approvals list` shows it."], True, who
        )
    running = [
        f"{where}: call {call.call_id} of {call.name} has no result yet."
        for call in fold.calls
        if call.call_seq is not None and call.result_seq is None
    ]
    return Standing("running", [by, *(running or [f"{where} is open."])], True, who)
