"""``sessions show``: the story of one log, and how the session stands."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from interlock.backends.event import encode_line

from .locate import Found
from .output import CommandFailed, Line, clean, console, emit, moment, one_line, put, size
from .reader import Log
from .render import Filter, lines
from .standing import Standing, standing
from .story import Chapter, tell

_STYLES = {"interrupted": "bold yellow", "waiting": "bold yellow", "complete": "dim"}


def show(found: Found, wanted: Filter, *, full: bool, raw: bool, as_json: bool) -> None:
    """Print a log; one that is damaged up to its damage, then fail saying where it is."""
    log = Log(found)
    if raw:
        _raw(log, wanted)
    elif as_json:
        _json(log, wanted)
    else:
        _text(log, wanted, full)
    if log.refused is not None:
        raise CommandFailed(str(log.refused))


#: What is said of a log whose file a dead writer's journal completes.
PENDING = (
    "a crash left events of it in its writer's journal only: they are shown here, and written into "
    "the file when the session is next opened to write"
)


def story_json(chapter: Chapter) -> dict[str, Any]:
    """Return a chapter as JSON; each call has its ``code`` (``OK`` for a success)."""
    document = asdict(chapter)
    for step, told in zip(document["steps"], chapter.steps, strict=True):
        for entry, told_entry in zip(step["entries"], told.entries, strict=True):
            if told_entry.kind == "call":
                entry["code"] = told_entry.code  # type: ignore[union-attr]
    return document


def header_json(log: Log, now: Standing | None) -> dict[str, Any]:
    """Return what there is to say about a session besides its events."""
    header, dropped = log.header, log.dropped
    return {
        "id": header.id,
        "path": str(log.found.path),
        "journal_pending": log.found.pending,
        "version": log.version,
        "created_at": header.created_at,
        "cwd": header.cwd,
        "bytes": log.bytes,
        "stored_events": log.good,
        "last_seq": log.good - 1,
        "state": "damaged" if now is None else now.state,
        "explanation": [] if now is None else now.words,
        "holder": None if now is None else now.holder,
        "repair": [] if now is None else now.closers,
        "dropped": None
        if dropped is None
        else {
            "bytes": dropped.bytes,
            "records": dropped.records,
            "offset": dropped.offset,
            "recovered": dropped.recovered,
        },
        "code": None if log.refused is None else str(log.refused.code),
        "message": None if log.refused is None else log.refused.message,
    }


def _standing(log: Log) -> Standing | None:
    if log.refused is not None:
        return None
    return standing(log.found, log.fold, log.dropped, log.name)


def _chapters(log: Log, wanted: Filter) -> Any:
    for chapter in tell(log.events()):
        selected = wanted.select(chapter)
        if selected is not None:
            yield selected


def _json(log: Log, wanted: Filter) -> None:
    document = {"session": header_json(log, _standing(log))}
    emit(document | {"turns": [story_json(chapter) for chapter in _chapters(log, wanted)]})


def _raw(log: Log, wanted: Filter) -> None:
    """Print the rows as they stand in the log; of one turn, the rows from its start to its end."""
    turn: int | None = None
    calls: dict[str, str] = {}
    for event in log.events():
        if event.type == "turn/start":
            turn = event.data["turn"]
        if event.type == "tool/call":
            calls[event.data["callId"]] = event.data["name"]
        shown = wanted.turn is None or turn == wanted.turn
        shown = shown and wanted.in_time(event.time, event.time)
        if shown and wanted.tool is not None:
            shown = _tool_of(event.data, calls) == wanted.tool
        if shown and wanted.code is not None:
            error = event.data.get("error")
            shown = isinstance(error, dict) and error.get("code") == wanted.code.upper()
        if shown:
            sys.stdout.write(encode_line(event).decode("utf-8", "surrogatepass"))
        if event.type == "turn/end":
            turn = None


def _tool_of(data: dict[str, Any], calls: dict[str, str]) -> str | None:
    """Which tool an event is about, if any."""
    message = data.get("message")
    source = message.get("source") if isinstance(message, dict) else None
    call_id = data.get("callId") or (source.get("callId") if isinstance(source, dict) else None)
    named = data.get("toolName") or (calls.get(call_id) if isinstance(call_id, str) else None)
    return named if isinstance(named, str) else None


def _text(log: Log, wanted: Filter, full: bool) -> None:
    out = console()
    for line in _head(log):
        put(out, line)
    some = False
    for chapter in _chapters(log, wanted):
        some = True
        for line in lines(chapter, full=full):
            put(out, line)
    if not some:
        put(out, Line(0, "Nothing in this log is like that." if log.good else "No events."))
    now = _standing(log)
    if now is not None:
        put(out, Line(0, ""))
        put(out, Line(0, now.state, _STYLES.get(now.state, "bold green")))
        for word in now.words:
            put(out, Line(2, clean(word)))


def _head(log: Log) -> list[Line]:
    header = log.header
    kind = "zstd" if log.found.path.name.endswith(".zstd") else "plain"
    told = [
        Line(0, f"session {one_line(header.id)}", "bold"),
        Line(2, f"created {moment(header.created_at, date=True)}", "dim"),
    ]
    if header.cwd is not None:
        told.append(Line(2, f"cwd {one_line(header.cwd)}", "dim"))
    told.append(Line(2, f"log {one_line(str(log.found.path))}", "dim", whole=True))
    stored = f"format v{log.version}" + (" (shown as v3)" if log.version < 3 else "")
    told.append(Line(2, f"{log.good} events, {size(log.bytes)}, {stored}, {kind}", "dim"))
    if log.found.pending:
        told.append(Line(2, PENDING, "yellow", whole=True))
    writer = next((e for e in log.events() if e.type == "interlock/writer"), None)
    if writer is not None and writer.data.get("durability") == "none":
        told.append(
            Line(2, "written with durability 'none': not made to survive power loss", "yellow")
        )
    return told
