"""One epoch's journal file, as its owner writes it: two segments that alternate.

Every sync of the file happens under one mutex: an error that one sync reports is gone for the next
one, so two that overlap could leave a lost record acknowledged.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from ..disk import Disk, pwrite_all
from .names import epoch_name
from .record import Entry, encode, encoded_size
from .slot import Slot, encode_slot, segment_offset, slot_offset

_ZEROS = bytes(1024 * 1024)


class EpochError(Exception):
    """A write or sync of the journal failed: this epoch is never trusted again. Has a cause."""


class JournalFile:
    """The file of one epoch. ``active`` is the segment that takes records, ``position`` its end."""

    def __init__(self, directory: Path, slot: Slot, disk: Disk) -> None:
        self.path = directory / epoch_name(slot.epoch)
        self.epoch = slot.epoch
        self.failed = False
        self.active = 0
        self.position = 0
        self._slot = slot
        self._disk = disk
        self._mutex = threading.Lock()
        #: How much of each segment has been written through, in bytes.
        self._written = [0, 0]
        self._fd = disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)

    @classmethod
    def create(cls, directory: Path, slot: Slot, disk: Disk) -> JournalFile:
        """Make the file of a new epoch durable, its name included; ``OSError`` if that fails.

        The first segment is written through, so that the syncs to come change no metadata; the
        other one is when it is first used (:meth:`switch`), or before that in pieces
        (:meth:`write_through`).
        """
        file = cls(directory, slot, disk)
        try:
            size = segment_offset(2, slot.segment_size)
            disk.reserve(file._fd, 0, size)
            file._fill(0, segment_offset(1, slot.segment_size))
            pwrite_all(disk, file._fd, encode_slot(slot), slot_offset(slot.version))
            disk.fsync(file._fd)
            disk.sync_directory(directory)
        except BaseException:
            disk.close(file._fd)
            raise
        file._written[0] = slot.segment_size
        return file

    def fits(self, entries: list[Entry]) -> bool:
        """Tell whether the active segment has room for a record of these entries."""
        return self.position + encoded_size(entries) <= self._slot.segment_size

    @property
    def free(self) -> int:
        """Bytes left in the active segment."""
        return self._slot.segment_size - self.position

    @property
    def other_ready(self) -> bool:
        """Whether the other segment has been written through."""
        return self._written[1 - self.active] == self._slot.segment_size

    def append(self, records: list[list[Entry]], lsn: int, durable: int, oldest: int) -> None:
        """Write one record for each list, the first with number ``lsn``, and sync once.

        This sync is the commit point of every batch in them. Raises :class:`EpochError`.
        """
        slot, position = self._slot, self.position
        parts: list[bytes] = []
        for i, entries in enumerate(records):
            data = encode(
                entries,
                writer=slot.writer,
                epoch=self.epoch,
                generation=slot.generations[self.active],
                lsn=lsn + i,
                durable=durable,
                oldest=oldest,
            )
            parts.append(data)
        data = b"".join(parts)
        with self._mutex:
            self._refuse_failed()
            start = segment_offset(self.active, slot.segment_size) + position
            try:
                pwrite_all(self._disk, self._fd, data, start)
                self._disk.fdatasync(self._fd)
            except OSError as error:
                self.failed = True
                raise EpochError from error
        self.position = position + len(data)

    def switch(self) -> None:
        """Go on in the other segment, which holds nothing that is still needed.

        Raises :class:`EpochError`.
        """
        while self.write_through():
            pass
        self.active = 1 - self.active
        self.position = 0

    def write_through(self) -> bool:
        """Write a piece of the other segment, ahead of its first use; tell whether more is left.

        Raises :class:`EpochError`.
        """
        if self.other_ready:
            return False
        other, size = 1 - self.active, self._slot.segment_size
        done = self._written[other]
        end = min(size, done + len(_ZEROS))
        with self._mutex:
            self._refuse_failed()
            try:
                start = segment_offset(other, size)
                # Without a sync: the next record's has it on disk, and nothing depends on it.
                self._fill(start + done, start + end)
            except OSError as error:
                self.failed = True
                raise EpochError from error
        self._written[other] = end
        return end < size

    def void(self, segment: int, oldest: int) -> None:
        """Make the records of a segment void for good: its files are all synced.

        Only after this may its space be used again. Raises :class:`EpochError`.
        """
        generations = list(self._slot.generations)
        generations[segment] = max(generations) + 1
        self._write_slot((generations[0], generations[1]), oldest)

    def forget_before(self, oldest: int) -> None:
        """Say durably that no record before ``oldest`` is needed; raises :class:`EpochError`.

        Only after this may an older epoch go: whoever reads this one would miss its records.
        """
        self._write_slot(self._slot.generations, oldest)

    def _write_slot(self, generations: tuple[int, int], oldest: int) -> None:
        slot = self._slot
        new = Slot(
            slot.writer,
            slot.epoch,
            slot.version + 1,
            slot.supersedes,
            slot.from_lsn,
            oldest,
            slot.segment_size,
            generations,
        )
        with self._mutex:
            self._refuse_failed()
            try:
                offset = slot_offset(new.version)
                pwrite_all(self._disk, self._fd, encode_slot(new), offset)
                self._disk.fdatasync(self._fd)
            except OSError as error:
                self.failed = True
                raise EpochError from error
        self._slot = new

    def close(self) -> None:
        """Close the descriptor; the file stays."""
        self._disk.close(self._fd)

    def _fill(self, start: int, end: int) -> None:
        while start < end:
            piece = _ZEROS[: end - start]
            pwrite_all(self._disk, self._fd, piece, start)
            start += len(piece)

    def _refuse_failed(self) -> None:
        if self.failed:
            raise EpochError
