"""The bytes of one log on disk: published once, appended to, put back after a failure.

Everything here runs in the I/O thread that works for the session at the time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from . import frames
from .codes import Code
from .disk import Disk, write_all
from .errors import InterlockError, LogError, SessionError
from .files import FileCache, make_directories, publish, write_spill
from .header import Header, encode_header
from .lock import SessionLock
from .passes import Dropped, Recovered
from .paths import parse_log_name


class Store:
    """One log file. ``length`` is how many of its bytes are known to be good and written by us."""

    __slots__ = (
        "_disk",
        "_durable",
        "_durable_names",
        "_files",
        "_identity",
        "_is_pending",
        "_lock",
        "_names_due",
        "_spill_named",
        "_torn",
        "compressed",
        "directory",
        "dropped",
        "failed",
        "header",
        "length",
        "opened_seq",
        "path",
        "published",
    )

    def __init__(
        self,
        header: Header,
        directory: Path,
        path: Path,
        *,
        disk: Disk,
        files: FileCache,
        durable_names: set[Path],
        durable: bool,
        is_pending: Callable[[Path], bool],
        lock: SessionLock | None = None,
    ) -> None:
        self.header = header
        self.directory = directory
        self.path = path
        self.compressed = path.name.endswith(".zstd")
        self.published = False
        self.failed: InterlockError | None = None
        self.dropped: Dropped | None = None
        self.opened_seq = -1
        self.length = 0
        self._disk = disk
        self._files = files
        self._durable = durable
        #: Whether a dead writer's journal holds a log for a directory.
        self._is_pending = is_pending
        self._lock = lock
        self._identity: tuple[int, int] | None = None
        self._torn: Recovered | None = None
        # Names that are not known to survive power loss yet: their directories' syncs are due.
        self._names_due: list[Path] = []
        self._durable_names = durable_names
        self._spill_named = False

    @property
    def owed(self) -> bool:
        """Whether durable frames are not in the file yet: readers get them from the writer."""
        return False

    def adopt(self, status: os.stat_result, last_seq: int, torn: Recovered | None) -> None:
        """Take over a file that was read under the lock, ``torn`` telling how its end is mended."""
        self.published = True
        self.length = status.st_size
        self.opened_seq = last_seq
        self._identity = (status.st_dev, status.st_ino)
        self._torn = torn
        self.dropped = torn.dropped if torn is not None else None

    def sync_opened(self) -> None:
        """Make what was read survive power loss: its writer may have died before its own sync.

        Raises ``LogError`` (``LOG_WRITE_FAILED``).
        """
        if not self._durable:
            return
        self._owe_names([])
        try:
            with self._files.use(self.path) as fd:
                self._disk.fdatasync(fd)
            self._sync_directories()
        except OSError as error:
            self._fail_retryable(error)

    def write(self, data: bytes, spills: Sequence[tuple[int, bytes]]) -> None:
        """Append ``data`` durably; the first time, publish the log with it."""
        if self.failed is not None:
            raise self.failed
        if not self.published:
            self._publish(data, spills)
            return
        self.mend()
        if not data:
            return
        try:
            self._write_spills(spills)
            self._sync_directories()
        except OSError as error:
            self._fail_retryable(error)
        self._append(data)

    def mend(self) -> None:
        """Truncate a torn end and write the recovered events back as a frame of their own (L9)."""
        if self.failed is not None:
            raise self.failed
        if self._torn is None:
            return
        torn = self._torn
        try:
            with self._files.use(self.path) as fd:
                self._check_unchanged(fd)
                self._disk.truncate(fd, torn.offset)
                self.length = torn.offset
                # The cut must be on disk before anything stands behind it.
                if self._durable:
                    self._disk.fsync(fd)
        except FileNotFoundError:
            self._source_changed("it is gone")
        except OSError as error:
            self._fail_retryable(error)
        if torn.lines:
            self._append(frames.encode(torn.lines) if self.compressed else torn.lines)
        self._torn = None

    def close(self) -> None:
        """Close the file and free the lock."""
        self._files.drop(self.path)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _append(self, data: bytes) -> None:
        before = self.length
        try:
            with self._files.use(self.path) as fd:
                self._check_unchanged(fd)
                try:
                    write_all(self._disk, fd, data)
                    if self._durable:
                        self._disk.fdatasync(fd)
                    size = self._disk.fstat(fd).st_size
                except OSError as error:
                    self._put_back(fd, before, error)
        except FileNotFoundError:
            self._source_changed("it is gone")
        except OSError as error:
            # Before the first byte: the file could not be opened or looked at.
            self._fail_retryable(error)
        if size != before + len(data):
            self._source_changed(f"it has {size} bytes instead of {before + len(data)}")
        self.length = before + len(data)

    def _put_back(self, fd: int, length: int, cause: OSError) -> NoReturn:
        """After a failed write or sync: back to the earlier length (L6).

        A failed sync may have marked pages clean that never reached the disk, so the batch is
        written again from memory by the next try, and never merely synced again.
        """
        try:
            self._disk.truncate(fd, length)
            if self._durable:
                self._disk.fsync(fd)
        except OSError as error:
            self._close_for_good(length, cause, error)
        self._fail_retryable(cause)

    def _close_for_good(self, length: int, cause: OSError, error: OSError) -> NoReturn:
        self.failed = LogError(
            Code.LOG_WRITE_FAILED,
            f"session {self.header.id!r}: {self.path} could not be written ({cause}) nor put "
            f"back ({error}). The session is closed; trust its first {length} bytes, check the "
            "disk, then open it again",
            session=self.header.id,
            closed=True,
            trusted_length=length,
        )
        raise self.failed from cause

    def _check_unchanged(self, fd: int) -> None:
        """L15: write only where the file is still the one that we know."""
        there = self._disk.stat(self.path)
        mine = self._disk.fstat(fd)
        if not (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino) == self._identity:
            self._source_changed("another file stands in its place")
        if mine.st_size != self.length:
            self._source_changed(f"it has {mine.st_size} bytes instead of {self.length}")

    def _source_changed(self, what: str) -> NoReturn:
        self.failed = SessionError(
            Code.SESSION_SOURCE_CHANGED,
            f"session {self.header.id!r}: something else changed {self.path}: {what}. Nothing more "
            "is written and the session is closed; find the other program, then open it again",
            session=self.header.id,
            closed=True,
            trusted_length=self.length,
        )
        raise self.failed

    def _publish(self, data: bytes, spills: Sequence[tuple[int, bytes]]) -> None:
        """Make the log appear with its header and first batch; never over another (L7)."""
        line = encode_header(self.header)
        head = frames.encode(line) if self.compressed else line
        try:
            self._make_directories()
            self._write_spills(spills)
            publish(
                self.path,
                head + data,
                self._disk,
                durable=self._durable,
                on_published=lambda status: self._published(status, len(head + data)),
            )
        except FileExistsError as error:
            self._exists(error)
        except OSError as error:
            self._fail_retryable(error)
        try:
            self._sync_directories()
        except OSError as error:
            self._take_back_batch(len(head), error)

    def _make_directories(self) -> None:
        self._owe_names(make_directories(self.directory, self._disk))
        self._take_lock()

    def _take_back_batch(self, length: int, cause: OSError) -> NoReturn:
        """The bytes are down but the name may not be: keep the header, write the batch again."""
        self.length = length
        try:
            with self._files.use(self.path) as fd:
                self._put_back(fd, length, cause)
        except OSError as error:
            self._close_for_good(length, cause, error)

    def _owe_names(self, made: Sequence[Path]) -> None:
        """Note which directories must be synced before anything here is called durable.

        A directory that was there already may have been made by a process that died before it
        synced the entry, so what this process has not synced itself is synced once.
        """
        root = self.directory.parents[1]
        for path in (*made, root, self.directory.parent, self.directory):
            if path not in self._durable_names and path not in self._names_due:
                self._names_due.append(path)
        self._names_due.append(self.path)

    def _published(self, status: os.stat_result, length: int) -> None:
        self._identity = (status.st_dev, status.st_ino)
        self.length = length
        self.published = True

    def _take_lock(self) -> None:
        if self._lock is None:
            try:
                self._lock = SessionLock.acquire(self.directory, self.header.id, self._disk)
            except SessionError as error:
                # Whoever holds the lock of a session that is not there yet is just creating it.
                self._exists(error)
        names = self._disk.listdir(self.directory)
        if any(map(parse_log_name, names)) or self._is_pending(self.directory):
            self._exists(None)

    def _exists(self, cause: BaseException | None) -> NoReturn:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self.failed = SessionError(
            Code.SESSION_EXISTS,
            f"session {self.header.id!r} already exists in {self.directory}; open it, or choose "
            "another id. Nothing was written",
            session=self.header.id,
            directory=str(self.directory),
            closed=True,
        )
        raise self.failed from cause

    def _write_spills(self, spills: Sequence[tuple[int, bytes]]) -> None:
        if spills and not self._spill_named:
            self._spill_named = True
            self._names_due.append(self.directory / "spill")
        for seq, content in spills:
            write_spill(self.directory, seq, content, self._disk, durable=self._durable)

    def _sync_directories(self) -> None:
        """Sync the directories that hold the names that are due, topmost first."""
        self._sync_names(self._names_due)
        self._names_due = []

    def _sync_names(self, due: Sequence[Path]) -> None:
        if self._durable and due:
            for directory in dict.fromkeys(path.parent for path in due):
                self._disk.sync_directory(directory)
            own = self.directory
            self._durable_names.update(p for p in due if p != own and own not in p.parents)

    def _fail_retryable(self, cause: OSError) -> NoReturn:
        raise LogError(
            Code.LOG_WRITE_FAILED,
            f"session {self.header.id!r}: {self.path} could not be written: {cause}. The events "
            "are kept in order; make room or mend the disk, then flush again",
            session=self.header.id,
            closed=False,
            trusted_length=self.length,
            errno=cause.errno,
        ) from cause
