"""Logs as files: one directory a session, one file a log; what a root holds, how it opens."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec

from .codes import Code
from .disk import Disk, OsDisk
from .errors import InterlockError, LogError, SessionError
from .event import Event, decode_line
from .files import FileCache, make_directories
from .fold import LogFold
from .generations.current import current_header
from .generations.publish import migrate
from .generations.verify_copy import Verifier
from .header import (
    VERSION,
    Header,
    decode_header,
    decode_stored_header,
    encode_header,
    newer_format,
)
from .journal.commit import commit
from .journal.dead import DeadJournals
from .journal.names import OWN_DIRECTORY
from .journal.overlay import OverlayDisk
from .journal.replay import replay
from .journal.store import JournaledStore
from .journal.writer import Journal
from .lock import SessionLock
from .log import Item, SessionLog, commit_each
from .mounts import mount_of, refuse_network
from .passes import Dropped
from .paths import log_name, parse_log_name, project_dir_name, session_dir_name
from .reading import LogReader, read_events
from .source import LogFile, find_log
from .store import Store

#: Headers read at once by :meth:`JsonlBackend.list`.
_READERS = 8
#: Directories that one of them reads before it takes the next ones.
_TASK = 32

Durability = Literal["journal", "file", "none"]


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

    ``durability="journal"`` makes the batches of many sessions durable with one sync, in a journal
    of this process; ``"file"`` syncs each batch in its session's file; ``"none"`` never syncs: the
    log then survives the end of the process, but not of the machine. Where the journal cannot be
    created ``allow_file`` permits ``"file"`` in its stead. ``compression`` is for new sessions; an
    existing log keeps its own. ``allow_network`` permits writing on a network file system.
    ``segment_size`` is that of the journal's two segments, in bytes (None: 8 MiB, less on a small
    disk). ``disk`` and ``verifier`` (what reads a migrated copy back instead of another process)
    are for disks that are not the operating system's.
    """

    def __init__(
        self,
        root: Path,
        *,
        durability: Durability = "file",
        compression: Literal["zstd", "none"] = "zstd",
        allow_file: bool = False,
        allow_network: bool = False,
        segment_size: int | None = None,
        disk: Disk | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        #: What is promised from now on; ``start`` may turn ``"journal"`` into ``"file"``.
        self.durability: Durability = durability
        self.compression = compression
        #: K7: whether a finished write is promised to survive power loss.
        self.power_loss_durable = durability != "none" and sys.platform != "win32"
        #: Why there is no journal although one was asked for, or None.
        self.fell_back: str | None = None
        self._allow_file = allow_file
        self._may_write = allow_network
        self._segment_size = segment_size
        self._disk: Disk = disk or OsDisk()
        self._verifier = verifier
        self._files = FileCache(self._disk)
        self._journal: Journal | None = None
        self._dead = DeadJournals(self.root, self._disk)
        #: Guards what finds sessions and journals: opening runs on several threads.
        self._mutex = threading.RLock()
        # Directories whose own entries this process has synced; shared by its logs.
        self._durable_names: set[Path] = set()

    def start(self) -> None:
        """Make the journal ready, where there is to be one. Before the first write; any thread.

        Raises ``LogError`` (``LOG_WRITE_FAILED``) if it cannot be created and ``"file"`` is not
        allowed instead, or where the root is on a network and ``allow_network`` was not given.
        """
        with self._mutex:
            if not self._may_write:
                refuse_network(self.root, mount_of(self.root))
                self._may_write = True
            if self.durability != "journal" or self._journal is not None:
                return
            try:
                self._journal = Journal.start(self.root, self._disk, self._segment_size)
            except OSError as error:
                if not self._allow_file:
                    raise LogError(
                        Code.LOG_WRITE_FAILED,
                        f"{self.root}: no journal can be created here: {error}. Mend that, or "
                        "allow durability 'file' in its stead",
                        root=str(self.root),
                        closed=False,
                        errno=error.errno,
                    ) from error
                self.durability = "file"
                self.fell_back = f"no journal can be created under {self.root}: {error}"

    def commit(self, items: Sequence[Item]) -> Sequence[int | InterlockError]:
        """Make what is due of several logs durable; return, for each, its durable seq or its error.

        In journal mode one sync serves all of them. A batch that failed may be tried again unless
        the error's ``details["closed"]`` is true. One call at a time; I/O thread.
        """
        if self._journal is not None:
            return commit(self._journal, items)
        return commit_each(items)

    @property
    def group_commit(self) -> bool:
        """Whether one commit serves many sessions: then only one is made at a time."""
        return self.durability == "journal"

    @property
    def needs_tending(self) -> bool:
        """Whether :meth:`tend` has anything to do. No I/O, any thread."""
        return self._journal is not None and self._journal.needs_tending

    def tend(self) -> bool:
        """Do a bounded share of the work that frees journal space; tell whether more is left.

        Any thread, also while a commit is under way; one call at a time. ``OSError`` if a session's
        file cannot be synced: the journal keeps its events.
        """
        return self._journal.tend() if self._journal is not None else False

    def view(self) -> JsonlBackend:
        """Return this root for reading, with the journals of dead writers laid over it.

        Raises nothing: what cannot be read of them is left out.
        """
        disk = OverlayDisk(self.root, self._disk)
        return JsonlBackend(self.root, durability="none", compression=self.compression, disk=disk)

    @property
    def disk(self) -> Disk:
        """The disk that this backend reads through."""
        return self._disk

    def pending(self, path: Path) -> bool:
        """Tell, in a :meth:`view`, whether a log's file lacks what a dead journal holds for it."""
        return isinstance(self._disk, OverlayDisk) and self._disk.pending(path)

    def create(self, header: Header) -> SessionLog:
        """Return a new, empty log. Nothing is on disk before its first write (L7).

        Raises ``SessionError``: ``SESSION_ID_INVALID``, or ``SESSION_EXISTS`` if a log of that id
        is there already (another process may still come first: then the first write raises it);
        ``ValueError`` for a header that no reader would take.
        """
        name = session_dir_name(header.id)
        self.start()
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
        self.start()
        try:
            directory = self._find_to_write(session_id)
        except OSError as error:
            raise _cannot_open(session_id, error) from error
        if directory is None:
            raise _not_found(session_id, self.root)
        try:
            lock = SessionLock.acquire(directory, session_id, self._disk, wait=wait)
            try:
                return self._open_locked(session_id, directory, lock)
            except BaseException:
                lock.release()
                raise
        except OSError as error:
            raise _cannot_open(session_id, error) from error

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
        # Several at once: on a cold disk most of the time goes into waiting for it.
        with ThreadPoolExecutor(_READERS) as readers:
            found = readers.map(self._listings, self._directories())
            for listing in chain.from_iterable(found):
                if listing.header is None:
                    yield listing
                    continue
                first = seen.setdefault(listing.header.id, listing.directory)
                fault = self._misplaced(listing.header, listing.directory)
                if first != listing.directory:
                    fault = f"{listing.directory}: the same session id as {first}; move one away"
                if fault is not None:
                    code = Code.SESSION_CORRUPT
                    yield msgspec.structs.replace(listing, code=code, message=fault)
                else:
                    yield listing

    def list_ids(self) -> Sequence[str]:
        """Return the ids of all sessions whose headers can be read, those of dead journals too."""
        return [entry.header.id for entry in self.view().list() if entry.header is not None]

    def events(self, session_id: str, from_seq: int = 0) -> Iterator[Event]:
        """Yield a session's events from ``from_seq`` on, dead journals included; takes no lock.

        Raises ``SessionError``: ``SESSION_NOT_FOUND``, ``SESSION_CORRUPT``,
        ``SESSION_FORMAT_UNSUPPORTED``.
        """
        view = self.view()
        directory = view.find(session_id)
        path = None if directory is None else find_log(directory, view.disk)
        if path is None:
            raise _not_found(session_id, self.root)
        return read_events(path, from_seq, disk=view.disk)

    def close(self) -> None:
        """Make everything durable in the sessions' own files, remove the journal, close the files.

        Close the logs first: those that are still open keep their locks.
        """
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        self._files.close()

    def _find_to_write(self, session_id: str) -> Path | None:
        """Find a session, also one that only a dead writer's journal holds."""
        with self._mutex:
            self._dead.refresh()
            self._dead.tidy()
        directory = self.find(session_id)
        if directory is not None:
            self._current(directory)
            return directory
        with suppress(SessionError):
            for pending in self._pending_named(session_dir_name(session_id)):
                make_directories(pending, self._disk)
                return pending
        return None

    def _pending_named(self, name: str) -> Sequence[Path]:
        with self._mutex:
            return [path for path in self._dead.directories() if path.name == name]

    def _is_pending(self, directory: Path) -> bool:
        """Tell whether a dead writer's journal holds a log for a directory."""
        with self._mutex:
            self._dead.refresh()
            return bool(self._dead.naming(directory))

    def _open_locked(self, session_id: str, directory: Path, lock: SessionLock) -> SessionLog:
        with self._mutex:
            # Under the lock: whoever had it may have died just now.
            self._dead.refresh()
            replay(directory, self.root, self._dead, self._disk)
        # The tail is read under the lock: what was there before may be another writer's past.
        path, dropped = self._migrated(session_id, directory, self._current(directory))
        with LogFile(path, self._disk) as file:
            reader = LogReader(file, expect_id=session_id)
            reader.read()
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
        durable = self.durability != "none"
        migrated = migrate(path, session_id, self._disk, durable=durable, verifier=self._verifier)
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
            names = (project_dir_name(header.cwd), session_dir_name(header.id))
        except SessionError as error:
            return f"{directory}: {error.message}"
        if os.fspath(directory) == os.path.join(self.root, *names):
            return None
        belongs = self.root.joinpath(*names)
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
        if self._journal is not None:
            return JournaledStore(
                header,
                directory,
                path,
                root=self.root,
                journal=self._journal,
                disk=self._disk,
                files=self._files,
                durable_names=self._durable_names,
                is_pending=self._is_pending,
                lock=lock,
            )
        return Store(
            header,
            directory,
            path,
            disk=self._disk,
            files=self._files,
            durable_names=self._durable_names,
            durable=self.durability != "none",
            is_pending=self._is_pending,
            lock=lock,
        )

    def _taken(self, session_id: str, name: str) -> SessionError | None:
        # An unreadable journal stops the first write: it is looked at again under the lock.
        with suppress(OSError), self._mutex:
            self._dead.refresh()
        for directory in (*self._candidates(name), *self._pending_named(name)):
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

    def _directories(self) -> Iterator[Sequence[Path]]:
        """Yield every directory that may be a session's, as many as one task should read."""
        for project in self._projects():
            names = self._names(project)
            for start in range(0, len(names), _TASK):
                yield [project / name for name in names[start : start + _TASK]]

    def _listings(self, directories: Sequence[Path]) -> Sequence[Listing]:
        return [found for found in map(self._listing, directories) if found is not None]

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


def _not_found(session_id: str, root: Path) -> SessionError:
    return SessionError(
        Code.SESSION_NOT_FOUND,
        f"no session {session_id!r} under {root}",
        session=session_id,
        root=str(root),
    )


def _cannot_open(session_id: str, error: OSError) -> LogError:
    return LogError(
        Code.LOG_WRITE_FAILED,
        f"session {session_id!r} cannot be opened for writing: {error}. Reading may work",
        session=session_id,
        closed=True,
        errno=error.errno,
    )
