"""What ``interlock sessions verify`` reports about a root, a session directory or a log file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from .codes import Code
from .disk import Disk, OsDisk
from .errors import SessionError
from .event import Draft
from .frames import MAGIC
from .header import VERSION, decode_stored_header
from .journal.overlay import OverlayDisk, overlay_for
from .jsonl import JsonlBackend, Listing
from .lock import held
from .lock import holder as lock_holder
from .passes import Reader
from .paths import parse_log_name
from .reading import open_reader
from .repair import closers
from .source import LogFile, find_log
from .verify_pool import WORTHWHILE, Task, verify_elsewhere

_HEADER_START = b'{"type":"session"'


class NotALog(Exception):  # noqa: N818 - it says what the path is, not that something went wrong
    """The path is neither a log, nor a session's directory, nor a root; the text says what."""


class Report(msgspec.Struct, frozen=True):
    """One entry for each session, as the JSON of the command line has it.

    ``sound`` is whether every session is ``ok`` or ``repairable``.
    """

    sessions: list[dict[str, Any]]

    @property
    def sound(self) -> bool:
        """Whether nothing needs a person."""
        return all(entry["status"] in ("ok", "repairable") for entry in self.sessions)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON object."""
        return {"sessions": self.sessions}


#: Called with how many of all bytes on disk have been verified.
Progress = Callable[[int, int], None]


def verify(
    path: Path,
    *,
    disk: Disk | None = None,
    processes: int = 1,
    progress: Progress | None = None,
) -> Report:
    """Read every log at ``path`` (a root, a session's directory or a log file) and report on each.

    Changes nothing on disk and waits for no lock; a damaged session never hides another (L17).
    What the journals of dead writers hold is laid over the files in memory: ``journal_pending``
    says for which sessions that makes a difference.
    A large root is read by up to ``processes`` other processes at once (on the real disk only).
    Raises :class:`NotALog`, in one line, where there is no log at all, and ``OSError`` if another
    process cannot be started.
    """
    real = disk is None
    path = Path(path).absolute()
    disk = overlay_for(path, disk or OsDisk())
    try:
        is_directory = path.is_dir()
        if not is_directory and not path.exists():
            raise NotALog(f"{path}: no such file or directory")
    except OSError as error:
        raise NotALog(f"{path}: cannot be read: {error.strerror}") from error
    if not is_directory:
        _recognize(path, disk)
        return Report([verify_log(path, None, disk)])
    try:
        names = disk.listdir(path)
    except OSError as error:
        raise NotALog(f"{path}: cannot be read: {error.strerror}") from error
    if any(parse_log_name(name) for name in names) or disk.pending_in(path):
        return Report([_verify_directory(path, disk)])
    listings = list(JsonlBackend(path, disk=disk).list())
    if not any(listing.path is not None for listing in listings):
        raise NotALog(f"{path}: a directory without sessions, neither a root nor a session's own")
    return Report(_verify_root(path, listings, disk, processes if real else 1, progress))


def _verify_root(
    root: Path,
    listings: list[Listing],
    disk: OverlayDisk,
    processes: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    entries: dict[int, dict[str, Any]] = {}
    tasks: list[Task] = []
    for index, listing in enumerate(listings):
        refused = _refused(listing)
        if refused is None and listing.path is not None and listing.header is not None:
            size = _size(listing.path, disk)
            tasks.append(Task(index, listing.path, listing.header.id, size))
        elif refused is not None:
            entries[index] = refused
    total, seen = sum(task.size for task in tasks), 0

    def done(task: Task, entry: dict[str, Any]) -> None:
        nonlocal seen
        entries[task.place] = entry
        seen += task.size
        if progress is not None:
            progress(seen, total)

    if processes > 1 and total >= WORTHWHILE:
        verify_elsewhere(root, tasks, processes, done)
    else:
        for task in tasks:
            done(task, verify_log(task.path, task.session_id, disk))
    return [entries[index] for index in sorted(entries)]


def _size(path: Path, disk: Disk) -> int:
    try:
        return disk.stat(path).st_size
    except OSError:
        return 0


def _refused(listing: Listing) -> dict[str, Any] | None:
    """Return the entry of a session that listing refused already."""
    if listing.path is None or listing.header is None or listing.code is not None:
        path = listing.path or listing.directory
        code = listing.code or Code.SESSION_CORRUPT
        session_id = listing.header.id if listing.header else None
        return _entry(path, session_id, listing.version, _status(code), code, listing.message)
    return None


def _verify_directory(directory: Path, disk: OverlayDisk) -> dict[str, Any]:
    try:
        path = find_log(directory, disk)
    except SessionError as error:
        return _entry(directory, None, None, _status(error.code), error.code, error.message)
    if path is None:
        raise NotALog(f"{directory}: no log in it")
    return verify_log(path, None, disk)


def verify_log(path: Path, expect_id: str | None, disk: OverlayDisk) -> dict[str, Any]:
    """Read one log to its last byte and return its entry; nothing that it holds raises."""
    entry = _read_log(path, expect_id, disk)
    entry["journal_pending"] = disk.pending(path)
    return entry


def _read_log(path: Path, expect_id: str | None, disk: Disk) -> dict[str, Any]:
    session_id: str | None = None
    version: int | None = None
    reader: Reader | None = None
    try:
        with LogFile(path, disk) as file:
            version = file.version
            reader = open_reader(file, expect_id=expect_id)
            session_id, version = reader.header.id, reader.version
            reader.read()
    except SessionError as error:
        found = error.details.get("version")
        version = found if isinstance(found, int) else version
        entry = _entry(path, session_id, version, _status(error.code), error.code, error.message)
        if reader is not None:
            entry["stored_events"] = reader.good
            entry["last_seq"] = reader.good - 1
        for key in ("frame", "offset", "last_good_seq"):
            if key in error.details:
                entry[key] = error.details[key]
        return entry
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        code = Code.SESSION_CORRUPT
        return _entry(path, session_id, version, "corrupt", code, message)
    return _sound_entry(path, reader, disk)


def _sound_entry(path: Path, reader: Reader, disk: Disk) -> dict[str, Any]:
    """Describe a log that reads well: what opening it to write would cut and add."""
    dropped = reader.recovered.dropped if reader.recovered is not None else None
    lost = dropped is not None and dropped.may_be_acknowledged
    repair = closers(reader.fold, dropped_acknowledged=lost)
    status, code, message = "ok", None, None
    if reader.version < VERSION:
        message = f"{path}: format v{reader.version}; opening to write migrates it to v{VERSION}"
    if repair or dropped is not None:
        status = "repairable"
        message = _what_repair_does(path, repair, reader)
        if held(path.parent, disk):
            # R5: what looks unfinished is a living writer's work.
            status, code = "locked", Code.SESSION_LOCKED
            message = f"{path}: open for writing by {_holder(path.parent, disk)}"
    entry = _entry(path, reader.header.id, reader.version, status, code, message)
    entry["stored_events"] = reader.good
    entry["last_seq"] = reader.good - 1
    if reader.version < VERSION:
        entry["migrated"] = {"version": VERSION, "events": reader.fold.next_seq}
    if dropped is not None:
        entry["dropped"] = {
            "bytes": dropped.bytes,
            "records": dropped.records,
            "offset": dropped.offset,
            "recovered": dropped.recovered,
            "may_be_acknowledged": dropped.may_be_acknowledged,
        }
    entry["repair"] = [_repair_entry(draft) for draft in repair]
    return entry


def _what_repair_does(path: Path, repair: list[Draft], reader: Reader) -> str:
    parts: list[str] = []
    if reader.recovered is not None:
        dropped = reader.recovered.dropped
        parts.append(
            f"the last {dropped.bytes} bytes (from offset {dropped.offset}) are incomplete: "
            f"{dropped.recovered} events are recovered from them, {dropped.records} given up"
        )
    if repair:
        what = "a compaction" if reader.fold.turn is None else f"turn {reader.fold.turn}"
        parts.append(f"{what} is open: opening to write adds {len(repair)} events")
    return f"{path}: {'; '.join(parts)}"


def _repair_entry(draft: Draft) -> dict[str, Any]:
    data: dict[str, Any] = msgspec.json.decode(draft.data)
    error, message = data.get("error"), data.get("message")
    return {
        "type": draft.type,
        "code": error["code"] if error else None,
        "call_id": message["source"]["callId"] if message else data.get("callId"),
    }


def _holder(directory: Path, disk: Disk) -> str:
    line = lock_holder(directory, disk)
    return (
        "an unknown holder" if line is None else f"process {line.get('pid')} on {line.get('host')}"
    )


def _entry(
    path: Path,
    session_id: str | None,
    version: int | None,
    status: str,
    code: Code | None,
    message: str | None,
) -> dict[str, Any]:
    return {
        "path": str(path),
        "id": session_id,
        "version": version,
        "status": status,
        "code": None if code is None else str(code),
        "message": message,
        "stored_events": 0,
        "last_seq": -1,
        "dropped": None,
        "repair": [],
        "journal_pending": False,
    }


def _status(code: Code) -> str:
    return "unsupported" if code == Code.SESSION_FORMAT_UNSUPPORTED else "corrupt"


def _recognize(path: Path, disk: Disk) -> None:
    """Tell a file that is no log at all from a damaged one: a log's name or a log's first bytes."""
    try:
        with LogFile(path, disk) as file:
            if file.size == 0:
                raise NotALog(f"{path}: an empty file, not a log")
            named = parse_log_name(path.name) is not None
            start = file.start(len(_HEADER_START))
            if start[:4] == MAGIC or start == _HEADER_START:
                if not named:
                    _recognize_header(path, file)
            elif not named:
                raise NotALog(f"{path}: not a session log")
    except OSError as error:
        raise NotALog(f"{path}: cannot be read: {error.strerror}") from error


def _recognize_header(path: Path, file: LogFile) -> None:
    try:
        decode_stored_header(file.header_line(), file_version=None, source=str(path))
    except SessionError as error:
        if error.code == Code.SESSION_CORRUPT:
            raise NotALog(f"{path}: not a session log ({error.details.get('reason')})") from error
