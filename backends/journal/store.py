"""The bytes of one log in journal mode: reserved, made durable by the journal, then placed.

In order: :meth:`JournaledStore.prepare` refuses what must be refused while nothing is durable;
the journal syncs; :meth:`JournaledStore.place` puts the frames into the file, unsynced;
:meth:`JournaledStore.settle` makes them durable there and forgets them. Between the last two the
frames are kept in memory, since a failed sync of the file leaves pages that cannot be believed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .. import frames
from ..codes import Code
from ..disk import Disk, pwrite_all, write_all
from ..errors import LogError, SessionError
from ..files import FileCache, Temporary
from ..header import Header, encode_header
from ..lock import SessionLock
from ..passes import Dropped, Recovered
from ..store import Store
from .record import BEFORE, Entry, digest
from .writer import Journal

#: Room is set aside in the file this far ahead, in bytes, so that most batches ask for none.
RESERVE = 16 * 1024


class JournaledStore(Store):
    """A log file whose batches become durable in a journal first."""

    __slots__ = (
        "_header_digest",
        "_journal",
        "_mutex",
        "_owed",
        "_relative",
        "_reserved",
        "_settling",
        "_tail",
        "_temporary",
        "_unlinked",
        "_unsettled",
    )

    def __init__(
        self,
        header: Header,
        directory: Path,
        path: Path,
        *,
        root: Path,
        journal: Journal,
        disk: Disk,
        files: FileCache,
        durable_names: set[Path],
        is_pending: Callable[[Path], bool],
        lock: SessionLock | None = None,
    ) -> None:
        super().__init__(
            header,
            directory,
            path,
            disk=disk,
            files=files,
            durable_names=durable_names,
            durable=True,
            is_pending=is_pending,
            lock=lock,
        )
        self._journal = journal
        self._relative = path.relative_to(root).as_posix()
        self._header_digest = digest(encode_header(header))
        #: Guards what a commit and a retirement of the same log both touch.
        self._mutex = threading.Lock()
        #: Held while frames or names are on their way to the disk: whoever comes second must not
        #: believe that they are there, nor forget what was placed meanwhile. Taken before _mutex.
        self._settling = threading.Lock()
        self._unsettled: list[tuple[int, bytes]] = []
        #: From this offset on, frames that are durable in the journal are not in the file yet.
        self._owed: int | None = None
        self._tail: bytes | None = None
        self._reserved = 0
        self._temporary: Temporary | None = None
        self._unlinked = False

    @property
    def owed(self) -> bool:
        return self._owed is not None

    def prepare(self, data: bytes, spills: Sequence[tuple[int, bytes]]) -> Entry:
        """Do all that can be refused, and return what is to be made durable. The commit thread.

        Nothing of the batch is in the file after it. Raises as :meth:`Store.write`.
        """
        if self.failed is not None:
            raise self.failed
        try:
            with self._mutex:
                self._place_owed()
        except OSError as error:
            self._fail_retryable(error)
        if not self.published:
            return self._prepare_new(data, spills)
        self.mend()
        try:
            self._write_spills(spills)
            if spills:
                self._sync_directories()
        except OSError as error:
            self._fail_retryable(error)
        return self._entry(data)

    def withdraw(self, cause: OSError) -> LogError:
        """Undo :meth:`prepare`, since the journal did not take the entry; return why, for people.

        The error is ``LOG_WRITE_FAILED``, and the batch may be tried again.
        """
        self._forget_temporary()
        return LogError(
            Code.LOG_WRITE_FAILED,
            f"session {self.header.id!r}: the journal {self._journal.directory} could not be "
            f"written: {cause}. The events are kept in order; make room or mend the disk, then "
            "flush again",
            session=self.header.id,
            closed=False,
            trusted_length=self.length,
            errno=cause.errno,
        )

    def place(self, entry: Entry) -> None:
        """Put a durable entry into the file. The commit thread, right after the journal's sync.

        A disk that refuses it now owes it: it is written again before the next batch. Raises
        ``SessionError``: ``SESSION_SOURCE_CHANGED`` or ``SESSION_EXISTS`` (closed) if something
        else got there first; the entry is then nobody's.
        """
        with self._mutex:
            self._unsettled.append((entry.offset, entry.data))
            self.length = entry.end
            self._tail = ((self._tail or b"") + entry.data)[-BEFORE:]
            if not self.published:
                self.published = self._unlinked = True
            try:
                if self._unlinked:
                    self._link(entry.data)
                else:
                    self._append_placed(entry)
                return
            except FileExistsError as error:
                taken = error
            except OSError:
                self._owed = entry.offset
                return
            self._unsettled.clear()
        # Another program took the name after our record was durable: that record must go.
        with suppress(OSError):
            self._journal.retire_all()
        self._exists(taken)

    def settle(self) -> None:
        """Make every frame placed so far durable in the file. Any thread.

        ``OSError`` if it fails twice: after the first failure the frames are written again from
        memory, since the page cache is not believed (L6).
        """
        with self._settling:
            self._settle()

    def _settle(self) -> None:
        names: list[Path] = []
        count = 0
        try:
            with self._mutex:
                if self.failed is None:
                    self._place_owed()
                count = len(self._unsettled)
                names, self._names_due = self._names_due, []
            if not count and not names:
                return
            with self._files.use(self.path) as fd:
                self._sync_file(fd)
            self._sync_names(names)
        except (FileNotFoundError, SessionError):
            # Something else took the file away or put its own there (L15): nothing of ours is left
            # to make durable in it. The next batch is told so.
            pass
        except OSError:
            self._names_due = [*names, *self._names_due]
            raise
        with self._mutex:
            del self._unsettled[:count]

    def write(self, data: bytes, spills: Sequence[tuple[int, bytes]]) -> None:
        """Write a batch that is too long for one record, durably. The commit thread."""
        try:
            with self._mutex:
                self._place_owed()
        except OSError as error:
            self._fail_retryable(error)
        super().write(data, spills)

    def mend(self) -> None:
        if self._torn is not None and self._journal.names(self):
            # No record may name bytes that are about to be cut.
            try:
                self._journal.retire_all()
            except OSError as error:
                self._fail_retryable(error)
        if self._torn is not None:
            self._tail, self._reserved = None, 0
        super().mend()

    def close(self) -> None:
        """Leave nothing pending, then close the file and free the lock.

        Where that fails, the lock is kept until the journal is closed and can be replayed: another
        writer would not see what is pending here.
        """
        try:
            if self._journal.in_doubt:
                self._journal.clear_doubt()
            if self._unsettled:
                self.settle()
            if self._reserved > self.length and self.failed is None:
                self._give_room_back()
        except OSError:
            self._files.drop(self.path)
            self._journal.release_at_end(super().close)
            return
        super().close()

    def _write_spills(self, spills: Sequence[tuple[int, bytes]]) -> None:
        # Without any, a commit does not wait for a retirement.
        if spills:
            with self._settling:
                super()._write_spills(spills)

    def _sync_directories(self) -> None:
        with self._settling:
            super()._sync_directories()

    def _append(self, data: bytes) -> None:
        """Append through the journal, in as many records as it takes.

        Of bytes that only the file has, nothing is assumed, so none is ever written to it first:
        neither a batch that is too long for a record nor what was recovered from a torn end.
        """
        before, limit = self.length, self._journal.entry_limit
        try:
            for start in range(0, len(data), limit):
                with self._journal.committing:
                    with self._mutex:
                        self._place_owed()
                    end = start + limit
                    inside, more = start > 0, end < len(data)
                    entry = self._entry(data[start:end], inside=inside, more=more)
                    self._journal.append([entry], [self])
                    self.place(entry)
        except OSError as error:
            self._take_back(before)
            self._fail_retryable(error)
        except LogError:
            self._take_back(before)
            raise

    def _take_back(self, length: int) -> None:
        """L6: cut off the pieces of a batch whose rest failed, now or before the next one."""
        if self.length == length or self.failed is not None or self._torn is not None:
            return
        dropped = Dropped(self.length - length, 0, length, 0, may_be_acknowledged=False)
        self._torn = Recovered(dropped, length, b"")
        with suppress(LogError):
            self.mend()

    def _entry(self, data: bytes, *, inside: bool = False, more: bool = False) -> Entry:
        """Set room aside for bytes at the file's end and return what is to be made durable."""
        try:
            with self._files.use(self.path) as fd:
                self._check_unchanged(fd)
                self._reserve(fd, self.length + len(data))
            before = self._before()
        except FileNotFoundError:
            self._source_changed("it is gone")
        except OSError as error:
            self._fail_retryable(error)
        return Entry(
            self._relative, self._header_digest, self.length, digest(before), data, inside, more
        )

    def _sync_file(self, fd: int) -> None:
        try:
            self._disk.fdatasync(fd)
        except OSError:
            if self.failed is not None:
                raise
            with self._mutex:
                # L6: until a sync works, none of the kept frames is believed to be in the file.
                owed, self._owed = self._owed, 0
                self._write_again(0)
                self._disk.fdatasync(fd)
                self._owed = owed

    def _prepare_new(self, data: bytes, spills: Sequence[tuple[int, bytes]]) -> Entry:
        line = encode_header(self.header)
        content = (frames.encode(line) if self.compressed else line) + data
        try:
            self._make_directories()
            self._write_spills(spills)
            if spills:
                self._sync_directories()
            self._temporary = Temporary(self.path, self._disk)
            self._temporary.reserve(len(content))
        except FileExistsError as error:
            self._exists(error)
        except OSError as error:
            self._forget_temporary()
            self._fail_retryable(error)
        return Entry(self._relative, self._header_digest, 0, digest(b""), content)

    def _forget_temporary(self) -> None:
        if self._temporary is not None:
            self._temporary.forget()
            self._temporary = None

    def _link(self, content: bytes) -> None:
        """Make the file appear with everything in it, in one step for every reader (L7)."""
        temporary = self._temporary or Temporary(self.path, self._disk)
        self._temporary = None
        try:
            status = temporary.fill(content, durable=False)
            temporary.publish()
        finally:
            temporary.forget()
        self._identity = (status.st_dev, status.st_ino)
        self._unlinked = False

    def _append_placed(self, entry: Entry) -> None:
        with self._files.use(self.path) as fd:
            write_all(self._disk, fd, entry.data)
            size = self._disk.fstat(fd).st_size
        if size != entry.end:
            self._source_changed(f"it has {size} bytes instead of {entry.end}")

    def _place_owed(self) -> None:
        if self._owed is None:
            return
        if self._unlinked:
            try:
                self._link(b"".join(data for _, data in self._unsettled))
            except FileExistsError:
                self._source_changed("another program made it")
        else:
            size = self._write_again(self._owed)
            if size != self.length:
                self._source_changed(f"it has {size} bytes instead of {self.length}")
        self._owed = None

    def _write_again(self, start: int) -> int:
        """Write the kept frames from ``start`` on where they belong; return the file's length."""
        fd = self._disk.open(self.path, os.O_RDWR)
        try:
            mine = self._disk.fstat(fd)
            if (mine.st_dev, mine.st_ino) != self._identity:
                self._source_changed("another file stands in its place")
            for offset, data in list(self._unsettled):
                if offset >= start:
                    pwrite_all(self._disk, fd, data, offset)
            return self._disk.fstat(fd).st_size
        finally:
            self._disk.close(fd)

    def _reserve(self, fd: int, length: int) -> None:
        if length > self._reserved:
            start = max(self.length, self._reserved)
            self._disk.reserve(fd, start, length + RESERVE - start)
            self._reserved = length + RESERVE

    def _give_room_back(self) -> None:
        with suppress(FileNotFoundError), self._files.use(self.path) as fd:
            if self._disk.fstat(fd).st_size == self.length:
                self._disk.truncate(fd, self.length)

    def _before(self) -> bytes:
        if self._tail is None:
            start = max(0, self.length - BEFORE)
            with self._files.use(self.path) as fd:
                self._tail = self._disk.pread(fd, self.length - start, start)
        return self._tail
