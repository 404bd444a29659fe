"""The journal of one living writer: epochs, segments, and when their space may be used again.

A commit thread appends, one record at a time; another thread may retire meanwhile. Memory holds,
for each segment, which logs it names; the frames themselves are kept by the logs until their own
files are synced.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ..disk import Disk
from ..files import make_directories
from ..lock import is_at
from .file import EpochError, JournalFile
from .names import LOCK, journals_directory
from .record import BLOCK, Entry, encoded_size
from .slot import Slot

#: Bytes of one of a journal's two segments; on a small disk a 32nd of what is free, but at least
#: the other number.
SEGMENT_SIZE = 8 * 1024 * 1024
SMALLEST_SEGMENT = 128 * 1024

_TRIES = 3

#: Files that one call of :meth:`Journal.tend` syncs at most: a thousand at once stall a disk.
SHARE = 8


class Settler(Protocol):
    """A log whose frames the journal holds until they are durable in its own file."""

    def settle(self) -> None:
        """Make every frame placed so far durable in the log's file; ``OSError`` if it fails."""


class _Held:
    """What part of a journal is needed for: logs not synced yet, and its first lsn (0: empty)."""

    def __init__(self) -> None:
        self.settlers: dict[Settler, None] = {}
        self.first_lsn = 0


class Journal:
    """Makes batches of many logs durable with one sync each time."""

    def __init__(self, directory: Path, lock_fd: int, disk: Disk, segment_size: int) -> None:
        self.directory = directory
        self.segment_size = segment_size
        self._disk = disk
        self._lock_fd = lock_fd
        self._writer = bytes.fromhex(directory.name)
        self._lsn = 1
        self._held = [_Held(), _Held()]
        #: Epochs that a later one supersedes; their records are needed until the logs are synced.
        self._old: list[tuple[JournalFile, _Held]] = []
        self._releases: list[Callable[[], None]] = []
        #: Held from a record's append until its frames are in their files: nothing of the active
        #: segment may be made void in between.
        self.committing = threading.RLock()
        self._retiring = threading.RLock()
        self._books = threading.Lock()
        slot = Slot(self._writer, 1, 0, 0, 0, 1, segment_size, (1, 2))
        self._file = JournalFile.create(directory, slot, disk)

    @classmethod
    def start(cls, root: Path, disk: Disk, segment_size: int | None = None) -> Journal:
        """Create this process's journal under ``root``, durably; ``OSError`` if that fails."""
        if segment_size is None:
            make_directories(root, disk)
            segment_size = _fitting(disk.statvfs(root))
        if segment_size % BLOCK or segment_size < 4 * BLOCK:
            raise ValueError(f"a segment is at least 4 blocks of {BLOCK} bytes: {segment_size}")
        for _ in range(_TRIES):
            directory = journals_directory(root) / secrets.token_hex(8)
            made = make_directories(directory, disk)
            lock_fd = disk.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                # A directory whose lock is free is a dead writer's, and may be tidied away.
                if not disk.lock(lock_fd) or not is_at(directory / LOCK, lock_fd, disk):
                    disk.close(lock_fd)
                    continue
                above = (*made, root, directory.parents[1], directory.parent, directory)
                for path in dict.fromkeys(p.parent for p in above):
                    disk.sync_directory(path)
                return cls(directory, lock_fd, disk, segment_size)
            except BaseException:
                disk.close(lock_fd)
                raise
        raise OSError(errno.EAGAIN, "the journal's directory was taken away while it was made")

    @property
    def entry_limit(self) -> int:
        """The longest batch that goes into one record, in bytes."""
        return self.segment_size // 4

    @property
    def in_doubt(self) -> bool:
        """Whether a record that nobody was told of may be on disk, with no successor to void it."""
        return self._file.failed

    def names(self, settler: Settler) -> bool:
        """Tell whether records that are not retired name this log."""
        with self._books:
            parts = [*self._held, *(held for _, held in self._old)]
            return any(settler in held.settlers for held in parts)

    def chunks(self, entries: list[Entry]) -> list[int]:
        """Tell how many of the entries, from the front, go into each record."""
        limit = self.segment_size // 2
        counts: list[int] = []
        start = 0
        while start < len(entries):
            count = len(entries) - start
            while count > 1 and encoded_size(entries[start : start + count]) > limit:
                count = -(-count // 2)
            counts.append(count)
            start += count
        return counts

    def append(self, entries: list[Entry], settlers: list[Settler]) -> None:
        """Make the entries durable: one record, one sync. The commit thread only.

        The caller places the frames in their files before it appends again. ``OSError`` if it
        fails: none of the entries counts then, and the next call goes on in a successor.
        """
        self.clear_doubt()
        try:
            if not self._file.fits(entries):
                self._make_room()
            self._file.append([entries], self._lsn, self._lsn - 1, self._oldest())
        except EpochError as failure:
            cause = failure.__cause__
            with suppress(OSError):
                self.clear_doubt()
            raise cause if isinstance(cause, OSError) else OSError(str(failure)) from failure
        with self._books:
            held = self._held[self._file.active]
            held.first_lsn = held.first_lsn or self._lsn
            held.settlers.update(dict.fromkeys(settlers))
        self._lsn += 1

    def clear_doubt(self) -> None:
        """Supersede an epoch that failed, durably; ``OSError`` if that fails as well."""
        if not self._file.failed:
            return
        with self._retiring:
            failed = self._file
            if not failed.failed:
                # Another thread came first; a second successor would take the place of its own.
                return
            oldest = self._oldest()
            slot = Slot(
                self._writer,
                failed.epoch + 1,
                0,
                failed.epoch,
                self._lsn,
                oldest,
                self.segment_size,
                (1, 2),
            )
            successor = self._create_successor(slot)
            with self._books:
                both = _Held()
                for held in self._held:
                    both.settlers.update(held.settlers)
                firsts = [held.first_lsn for held in self._held if held.first_lsn]
                both.first_lsn = min(firsts, default=0)
                self._old.append((failed, both))
                self._held = [_Held(), _Held()]
                self._file = successor

    @property
    def needs_tending(self) -> bool:
        """Whether :meth:`tend` has anything to do. No I/O, any thread."""
        file = self._file
        if self._old or self._held[1 - file.active].first_lsn:
            return True
        return file.free < self.segment_size // 2 and not file.other_ready

    def tend(self) -> bool:
        """Do a share of what frees space; tell whether there is more to do. Any thread, one a time.

        ``OSError`` if a log cannot be synced: its part of the journal is kept.
        """
        with self._retiring:
            if self._old:
                with suppress(EpochError):
                    self._retire_oldest(SHARE)
                return True
            other = 1 - self._file.active
            try:
                if self._held[other].first_lsn:
                    if self._settle(self._held[other], SHARE):
                        self._void(other)
                    return True
                if self._file.free < self.segment_size // 2:
                    return self._file.write_through()
            except EpochError:
                return True
            return False

    def retire_all(self) -> None:
        """Make every log durable in its own file and all records void. Any thread.

        For the rare change of a log that does not go through the journal. ``OSError`` if it fails.
        """
        with self.committing, self._retiring:
            try:
                while self._old:
                    self._retire_oldest(None)
                for segment in (0, 1):
                    if self._held[segment].first_lsn:
                        self._settle(self._held[segment], None)
                        self._void(segment)
                if not self._held[self._file.active].first_lsn:
                    self._file.position = 0
            except EpochError as failure:
                raise OSError(f"the journal could not be written: {failure.__cause__}") from failure

    def release_at_end(self, release: Callable[[], None]) -> None:
        """Call ``release`` once this journal is closed: until then nobody else replays it."""
        self._releases.append(release)

    def close(self) -> None:
        """Sync every log and remove the journal; what cannot be synced stays for replay."""
        try:
            with suppress(OSError, EpochError):
                self.clear_doubt()
                self.retire_all()
                self._remove(self._file)
                self._disk.unlink(self.directory / LOCK)
                self._disk.rmdir(self.directory)
        finally:
            self._disk.close(self._lock_fd)
            for release in self._releases:
                release()

    def _create_successor(self, slot: Slot) -> JournalFile:
        try:
            return JournalFile.create(self.directory, slot, self._disk)
        except FileExistsError:
            # An earlier try got no further than this; it holds no record.
            self._disk.unlink(self.directory / f"{slot.epoch:08}.journal")
            return JournalFile.create(self.directory, slot, self._disk)

    def _make_room(self) -> None:
        with self._retiring:
            # In order: what is needed of a journal has no holes, and so what is missing is lost.
            while self._old:
                self._retire_oldest(None)
            other = 1 - self._file.active
            if self._held[other].first_lsn:
                self._settle(self._held[other], None)
                self._void(other)
            self._file.switch()

    def _void(self, segment: int) -> None:
        with self._books:
            self._held[segment] = _Held()
        self._file.void(segment, self._oldest())

    def _settle(self, held: _Held, share: int | None) -> bool:
        """Sync some of the logs (all, where ``share`` is None); tell whether none is left."""
        for settler in list(held.settlers)[:share]:
            settler.settle()
            with self._books:
                held.settlers.pop(settler, None)
        return not held.settlers

    def _oldest(self) -> int:
        with self._books:
            parts = [*self._held, *(held for _, held in self._old)]
            return min((held.first_lsn for held in parts if held.first_lsn), default=self._lsn)

    def _retire_oldest(self, share: int | None) -> None:
        """Settle logs of the oldest superseded epoch; with the last one the epoch goes.

        Raises :class:`EpochError`: then it is kept until there is a successor.
        """
        file, held = self._old[0]
        if not self._settle(held, share):
            return
        with self._books:
            held.first_lsn = 0
        self._file.forget_before(self._oldest())
        self._remove(file)
        del self._old[0]

    def _remove(self, file: JournalFile) -> None:
        """Remove an epoch whose logs are all synced.

        The directory is synced each time: an older epoch must not come back without the one that
        supersedes it.
        """
        with suppress(FileNotFoundError):
            self._disk.unlink(file.path)
        self._disk.sync_directory(self.directory)
        file.close()


def _fitting(free: os.statvfs_result) -> int:
    share = free.f_bavail * free.f_frsize // 32
    return max(SMALLEST_SEGMENT, min(SEGMENT_SIZE, share // BLOCK * BLOCK))
