"""Logs as files: one directory a session, one file a log; what a root holds, how it opens."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from .codes import Code
from .disk import Disk, OsDisk
from .errors import LogError, SessionError
from .event import decode_line
from .files import FileCache
from .fold import LogFold
from .generations.current import current_header
from .generations.publish import migrate
from .header import (
    VERSION,
    Header,
    decode_header,
    decode_stored_header,
    encode_header,
    newer_format,
)
from .lock import SessionLock
from .log import SessionLog
from .passes import Dropped
from .paths import log_name, parse_log_name, project_dir_name, session_dir_name
from .reading import LogReader
from .source import LogFile, find_log
from .store import Store

#: Interlock's own directory under a root.
OWN_DIRECTORY = ".interlock"


class Listing(msgspec.Struct, frozen=True):
    """One session directory of a root: its header, or why it cannot be listed (L17)."""

    directory: Path
    path: Path | None
    header: Header | None
    version: int | None
    code: Code | None = None
    message: str | None = None


class JsonlBackend:
    """A root directory full of session logs.

    ``durability="file"`` syncs each batch in its session's file. ``"none"`` never syncs: the log
    then survives the end of the process, but not of the machine. ``compression`` is for new
    sessions; an existing log keeps its own.
    """

    def __init__(
        self,
        root: Path,
        *,
        durability: Literal["file", "none"] = "file",
        compression: Literal["zstd", "none"] = "zstd",
        disk: Disk | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self.durability = durability
        self.compression = compression
        #: K7: whether a finished write is promised to survive power loss.
        self.power_loss_durable = durability == "file" and sys.platform != "win32"
        self._disk: Disk = disk or OsDisk()
        self._files = FileCache(self._disk)
        # Directories whose own entries this process has synced; shared by its logs.
        self._durable_names: set[Path] = set()

    def create(self, header: Header) -> SessionLog:
        """Return a new, empty log. Nothing is on disk before its first write (L7).

        Raises ``SessionError``: ``SESSION_ID_INVALID``, or ``SESSION_EXISTS`` if a log of that id
        is there already (another process may still come first: then the first write raises it);
        ``ValueError`` for a header that no reader would take.
        """
        name = session_dir_name(header.id)
        try:
            decode_header(encode_header(header), source=f"session {header.id!r}")
        except SessionError as error:
            # A programmer's mistake, and no damage: nothing would read this header back.
            raise ValueError(error.message) from error
        directory = self.root / project_dir_name(header.cwd) / name
        taken = self._taken(header.id, name)
        if taken is not None:
            raise taken
        path = directory / log_name(VERSION, compressed=self.compression == "zstd")
        return SessionLog(header, self._store(header, directory, path, None), LogFold(), -1, ())

    def open(self, session_id: str, *, wait: float = 0.0) -> SessionLog:
        """Open a log for writing: lock it, then read it to its end.

        Waits up to ``wait`` seconds for the lock. Changes nothing but ``session.lock``: a torn end
        is mended by the first write, or by ``SessionLog.mend``. A log of an older generation is
        migrated first: the current one is published beside it (L12). Raises ``SessionError``:
        ``SESSION_NOT_FOUND``, ``SESSION_LOCKED``, ``SESSION_CORRUPT``, ``SESSION_SOURCE_CHANGED``,
        ``SESSION_FORMAT_UNSUPPORTED``; ``LogError`` (``LOG_WRITE_FAILED``) if the disk does not
        let it be read, locked or synced.
        """
        directory = self.find(session_id)
        if directory is None:
            raise SessionError(
                Code.SESSION_NOT_FOUND,
                f"no session {session_id!r} under {self.root}",
                session=session_id,
                root=str(self.root),
            )
        try:
            self._current(directory)
            lock = SessionLock.acquire(directory, session_id, self._disk, wait=wait)
            try:
                return self._open_locked(session_id, directory, lock)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise LogError(
                Code.LOG_WRITE_FAILED,
                f"session {session_id!r} cannot be opened for writing: {error}. Reading may work",
                session=session_id,
                closed=True,
                errno=error.errno,
            ) from error

    def find(self, session_id: str) -> Path | None:
        """Return the directory of a session that has a log, or None.

        Raises ``SessionError``: ``SESSION_CORRUPT`` where two projects claim the id.
        """
        try:
            name = session_dir_name(session_id)
        except SessionError:
            return None
        found = [path for path in self._candidates(name) if self._owner_is(path, session_id)]
        if len(found) > 1:
            raise SessionError(
                Code.SESSION_CORRUPT,
                f"session {session_id!r} is there more than once: {', '.join(map(str, found))}; "
                "move all but one away",
                session=session_id,
            )
        return found[0] if found else None

    def list(self) -> Iterator[Listing]:
        """Yield what is in the root, by header only; a bad session is named, never raised (L17)."""
        seen: dict[str, Path] = {}
        for project in self._projects():
            for name in self._names(project):
                listing = self._listing(project / name)
                if listing is None:
                    continue
                if listing.header is None:
                    yield listing
                    continue
                first = seen.setdefault(listing.header.id, listing.directory)
                fault = self._misplaced(listing.header, listing.directory)
                if first != listing.directory:
                    fault = f"{listing.directory}: the same session id as {first}; move one away"
                if fault is not None:
                    code = Code.SESSION_CORRUPT
                    listing = msgspec.structs.replace(listing, code=code, message=fault)
                yield listing

    def close(self) -> None:
        """Close the cached files. Logs that are still open keep their locks until closed."""
        self._files.close()

    def _open_locked(self, session_id: str, directory: Path, lock: SessionLock) -> SessionLog:
        # The tail is read under the lock: what was there before may be another writer's past.
        path, dropped = self._migrated(session_id, directory, self._current(directory))
        with LogFile(path, self._disk) as file:
            reader = LogReader(file, expect_id=session_id)
            for _ in reader.events():
                pass
            status = file.status
        self._refuse_misplaced(reader.header, directory, path)
        torn = reader.recovered
        store = self._store(reader.header, directory, path, lock)
        last_seq = reader.fold.next_seq - 1
        durable_seq = last_seq - (torn.dropped.recovered if torn is not None else 0)
        store.adopt(status, last_seq, torn)
        store.dropped = store.dropped or dropped
        store.sync_opened()
        rows = torn.lines.splitlines(keepends=True) if torn is not None else []
        waiting = [decode_line(row) for row in rows]
        return SessionLog(reader.header, store, reader.fold, durable_seq, waiting)

    def _migrated(
        self, session_id: str, directory: Path, path: Path
    ) -> tuple[Path, Dropped | None]:
        """Return the log in the current generation, migrated now if need be (L12)."""
        with LogFile(path, self._disk) as file:
            if file.version == VERSION:
                return path, None
            stored = decode_stored_header(
                file.header_line(), file_version=file.version, source=str(path)
            )
        self._refuse_misplaced(current_header(stored), directory, path)
        migrated = migrate(path, session_id, self._disk, durable=self.durability == "file")
        # What the source's end had that could not be carried over is said as of any other log (L9).
        return migrated.path, migrated.dropped

    def _refuse_misplaced(self, header: Header, directory: Path, path: Path) -> None:
        fault = self._misplaced(header, directory)
        if fault is not None:
            details = {"file": str(path), "frame": 0, "offset": 0, "last_good_seq": -1}
            raise SessionError(Code.SESSION_CORRUPT, fault, **details)

    def _misplaced(self, header: Header, directory: Path) -> str | None:
        """Say where a log belongs if it lies elsewhere (the format: its id and cwd say where).

        A path that leads to the same directory (a link, a disk that ignores case) is as good.
        """
        try:
            belongs = self.root / project_dir_name(header.cwd) / session_dir_name(header.id)
        except SessionError as error:
            return f"{directory}: {error.message}"
        if belongs == directory:
            return None
        try:
            there, here = self._disk.stat(belongs), self._disk.stat(directory)
            if (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                return None
        except OSError:
            pass
        return (
            f"{directory}: by its header (id {header.id!r}, cwd {header.cwd!r}) this log belongs "
            f"in {belongs}; move it there"
        )

    def _current(self, directory: Path) -> Path:
        path = find_log(directory, self._disk)
        if path is None:
            raise SessionError(
                Code.SESSION_NOT_FOUND, f"{directory} holds no log", directory=str(directory)
            )
        parsed = parse_log_name(path.name)
        if parsed is not None and parsed[0] > VERSION:
            raise newer_format(parsed[0], str(path))
        return path

    def _store(
        self, header: Header, directory: Path, path: Path, lock: SessionLock | None
    ) -> Store:
        return Store(
            header,
            directory,
            path,
            disk=self._disk,
            files=self._files,
            durable_names=self._durable_names,
            durable=self.durability == "file",
            lock=lock,
        )

    def _taken(self, session_id: str, name: str) -> SessionError | None:
        for directory in self._candidates(name):
            other = self._header_id(directory)
            if other is None or other == session_id:
                return SessionError(
                    Code.SESSION_EXISTS,
                    f"session {session_id!r} already exists in {directory}; open it, or choose "
                    "another id",
                    session=session_id,
                    directory=str(directory),
                )
            # L14: on a disk that ignores case the directory may be another session's.
            return SessionError(
                Code.SESSION_ID_INVALID,
                f"session id {session_id!r} falls together with {other!r} on this disk, which does "
                "not tell upper and lower case apart; choose another id",
                session=session_id,
                other=other,
            )
        return None

    def _owner_is(self, directory: Path, session_id: str) -> bool:
        # An unreadable header is reported by opening, not hidden as absence. Only another id in
        # other letter case means that the disk gave us someone else's directory (L14).
        other = self._header_id(directory)
        return other is None or other == session_id or other.casefold() != session_id.casefold()

    def _header_id(self, directory: Path) -> str | None:
        listing = self._listing(directory)
        return listing.header.id if listing is not None and listing.header is not None else None

    def _candidates(self, name: str) -> Iterator[Path]:
        for project in self._projects():
            try:
                if find_log(project / name, self._disk) is not None:
                    yield project / name
            except SessionError:
                yield project / name
            except OSError:
                continue

    def _projects(self) -> Iterator[Path]:
        for name in self._names(self.root):
            if name != OWN_DIRECTORY:
                yield self.root / name

    def _names(self, directory: Path) -> Sequence[str]:
        try:
            return sorted(self._disk.listdir(directory))
        except OSError:
            return []

    def _listing(self, directory: Path) -> Listing | None:
        path: Path | None = None
        version: int | None = None
        try:
            path = find_log(directory, self._disk)
            if path is None:
                return None
            with LogFile(path, self._disk) as file:
                version = file.version
                stored = decode_stored_header(
                    file.header_line(), file_version=version, source=str(path)
                )
        except SessionError as error:
            return Listing(directory, path, None, version, error.code, error.message)
        except (NotADirectoryError, FileNotFoundError):
            # Not a session's directory, or gone since the directory above was read.
            return None
        except OSError as error:
            message = f"{path or directory}: cannot be read: {error.strerror}"
            return Listing(directory, path, None, version, Code.SESSION_CORRUPT, message)
        return Listing(directory, path, current_header(stored), version)
