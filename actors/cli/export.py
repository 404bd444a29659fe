"""``sessions export``: a log as its current event stream, or as a page to read."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from interlock.backends import jsontext
from interlock.backends.event import Event, to_json
from interlock.backends.fold import LogFold

from .locate import Found
from .markdown import page
from .output import CommandFailed, explain
from .reader import Log
from .standing import dropped_words, missing

FORMATS = ("jsonl", "markdown")


def export(found: Found, kind: str, *, repaired: bool, output: Path | None) -> None:
    """Write the events of a log, with ``repaired`` also those that opening to write would append.

    A damaged log is refused: an export never looks like a shorter, whole log. A torn end is said
    on stderr. ``output`` must not exist yet: nothing is overwritten (L13).
    """
    log = Log(found)
    if log.refused is not None:
        raise CommandFailed(str(log.refused))
    if found.pending:
        explain(f"{found.path}: with events that so far only a dead writer's journal holds")
    if log.dropped is not None:
        explain(f"{found.path}: {dropped_words(log.dropped)}")
    events = _events(log, repaired)
    pieces = _jsonl(events) if kind == "jsonl" else page(log.header, events)
    if output is None:
        sys.stdout.flush()
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    _write(output, pieces)


def _events(log: Log, repaired: bool) -> Iterator[Event]:
    yield from log.events()
    if repaired:
        fold: LogFold = log.fold
        yield from fold.admit(missing(fold, log.dropped), fold.last_time)


def _jsonl(events: Iterator[Event]) -> Iterator[bytes]:
    for event in events:
        yield jsontext.dumps(to_json(event)) + b"\n"


def _write(output: Path, pieces: Iterator[bytes]) -> None:
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise CommandFailed(f"{output} exists already; name a new file") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            for piece in pieces:
                file.write(piece)
    except BaseException:
        # Ours, and incomplete: it must not be taken for the whole log.
        output.unlink(missing_ok=True)
        raise
