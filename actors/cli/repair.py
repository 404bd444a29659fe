"""``sessions repair``: complete an interrupted log, by default only saying how."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
from interlock.backends.disk import OsDisk
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.log import SessionLog
from interlock.backends.repair import closers

from .locate import Found
from .output import CommandFailed, Line, clean, console, emit, one_line, put
from .reader import Log
from .standing import closer, closer_words, dropped_words, holder_words, missing, standing


def repair(found: Found, *, write: bool, as_json: bool) -> None:
    """Show what completes the log, or with ``write`` append it durably, after a copy was made.

    Refuses a log that somebody has open (R5) and a damaged one, with the reason.
    """
    log = Log(found)
    if log.refused is not None:
        raise CommandFailed(f"{log.refused}. Repair only completes a log that is whole")
    now = standing(found, log.fold, log.dropped, log.name)
    if now.held:
        raise CommandFailed(
            f"SESSION_LOCKED: session {log.name!r} is open for writing by "
            f"{holder_words(now.holder)}; close it there, or end that process"
        )
    drafts = [closer(draft) for draft in missing(log.fold, log.dropped)]
    document: dict[str, Any] = {
        "id": log.header.id,
        "path": str(found.path),
        "journal_pending": found.pending,
        "written": False,
        "backup": None,
        "cut": None if log.dropped is None else msgspec.to_builtins(log.dropped),
        "repair": drafts,
        "last_seq": log.good - 1,
    }
    if write and (drafts or log.dropped is not None or found.pending):
        document |= _write(found, log.header.id)
    if as_json:
        emit(document)
    else:
        _tell(log, document, write)


def _write(found: Found, session_id: str) -> dict[str, Any]:
    """Repair under the session's lock. What was shown may have changed since: derive it again."""
    backend = JsonlBackend(found.root)
    try:
        log = backend.open(session_id)
        try:
            if log.path.resolve() != found.path.resolve():
                raise CommandFailed(
                    f"{found.path} is not the log that session {session_id!r} opens: that is "
                    f"{log.path}; repair that one"
                )
            dropped = log.recovered
            backup = _copy_aside(log.path)
            log.mend()
            drafts = closers(
                log.fold,
                dropped_acknowledged=dropped is not None and dropped.may_be_acknowledged,
            )
            _append(log, drafts)
            return {
                "written": True,
                "backup": str(backup),
                "repair": [closer(draft) for draft in drafts],
                "last_seq": log.fold.next_seq - 1,
            }
        finally:
            log.close()
    finally:
        backend.close()


def _append(log: SessionLog, drafts: list[Any]) -> None:
    if not drafts:
        return
    log.append(drafts, log.fold.last_time)
    batch = log.seal()
    if batch is not None:
        log.acknowledge(log.write(batch))


def _copy_aside(path: Path) -> Path:
    """Copy the log beside itself, durably, under a name that no reader takes for a log."""
    number = 1
    while True:
        target = path.with_name(f"{path.name}.before-repair-{number}")
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as copy, path.open("rb") as original:
            shutil.copyfileobj(original, copy, 1 << 20)
            copy.flush()
            os.fsync(copy.fileno())
        OsDisk().sync_directory(path.parent)
        return target


def _tell(log: Log, document: dict[str, Any], write: bool) -> None:
    out = console()
    name = one_line(log.header.id)
    if log.dropped is not None:
        out.print(dropped_words(log.dropped), style="yellow")
    drafts = document["repair"]
    if document["journal_pending"]:
        written = "has been" if document["written"] else "would be"
        out.print(f"{name}: what its writer's journal holds for it {written} put into its file.")
    elif not drafts and log.dropped is None:
        out.print(f"{name}: nothing to repair.", style="green")
        return
    done = document["written"]
    if drafts:
        out.print(f"{name}: {len(drafts)} events {'were' if done else 'would be'} appended:")
    for entry in drafts:
        put(out, Line(2, clean(closer_words(entry))))
        if entry["text"]:
            put(out, Line(4, clean(entry["text"]), "dim"))
    if done:
        put(out, Line(0, f"The log as it was is kept in {document['backup']}", whole=True))
    elif not write:
        out.print("Nothing was changed. Do it with --write.", style="bold")
