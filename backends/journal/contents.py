"""What a dead writer's journal holds: its epochs in order, superseded records left out."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import msgspec

from ..disk import Disk
from .names import ALL, DONE, TAIL, parse_epoch
from .record import BLOCK, MAGIC, Entry, Record, decode
from .slot import SLOTS, Slot, decode_slot, segment_offset

_CHUNK = 4 * 1024 * 1024


class Place(NamedTuple):
    """Where a record stands in a file."""

    path: Path
    offset: int
    size: int


class Contents(msgspec.Struct, frozen=True):
    """A dead writer's journal.

    ``entries`` are by path, in the order of their records. ``done`` are the paths that have been
    mended. ``fault`` says what the disk lost, or is None: then every session in ``entries`` may
    lack events that were acknowledged. ``last`` is where the last record stands: the one that the
    writer may have died before syncing.
    """

    directory: Path
    entries: dict[str, list[Entry]]
    done: frozenset[str]
    fault: str | None
    last: Place | None = None

    @property
    def open_paths(self) -> set[str]:
        """The paths that are still to be mended."""
        return set(self.entries) - self.done


def read_contents(directory: Path, disk: Disk) -> Contents:
    """Read the journal of a writer that is gone; ``OSError`` if it cannot be read."""
    done = read_done(directory, disk)
    if ALL in done:
        # Some of its epochs may be gone already, and what is left says nothing by itself.
        return Contents(directory, {}, done, None)
    epochs = sorted(e for name in disk.listdir(directory) if (e := parse_epoch(name)) is not None)
    slots: list[Slot] = []
    found: list[tuple[Record, Place]] = []
    for epoch in epochs:
        slot, more = _read_epoch(directory / f"{epoch:08}.journal", directory.name, disk)
        if slot is not None:
            found = [(record, place) for record, place in found if record.lsn < slot.from_lsn]
            slots.append(slot)
            found += more
    found += _read_tail(directory / TAIL, slots, {record.lsn for record, _ in found}, disk)
    found.sort(key=lambda pair: pair[0].lsn)
    records = [record for record, _ in found]
    kept, fault = _contiguous(records, slots)
    entries: dict[str, list[Entry]] = {}
    for record in kept:
        for entry in record.entries:
            entries.setdefault(entry.path, []).append(entry)
    if fault is not None:
        fault = f"{directory}: {fault}"
    return Contents(directory, entries, done, fault, found[-1][1] if found else None)


def _contiguous(records: list[Record], slots: list[Slot]) -> tuple[list[Record], str | None]:
    """Return the records that count, and what is missing among those that must be there."""
    oldest = max([1, *(slot.oldest for slot in slots), *(record.oldest for record in records)])
    durable = max((record.durable for record in records), default=0)
    there = {record.lsn for record in records}
    missing = [lsn for lsn in range(oldest, durable + 1) if lsn not in there]
    if missing:
        # Later records say that this one was durable: the disk lost it, and it is not known which
        # sessions it was about.
        return records, f"record {missing[0]} was durable and cannot be read any more"
    kept: list[Record] = []
    expected = oldest
    for record in records:
        # What is before the oldest is in its files, durably, and those may have changed since.
        if record.lsn == expected:
            kept.append(record)
            expected += 1
    return kept, None


def _read_epoch(
    path: Path, writer: str, disk: Disk
) -> tuple[Slot | None, list[tuple[Record, Place]]]:
    fd = disk.open(path, os.O_RDONLY)
    try:
        size = disk.fstat(fd).st_size
        read = [decode_slot(_read(fd, BLOCK, i * BLOCK, disk)) for i in range(SLOTS)]
        slots = [slot for slot in read if slot is not None and slot.writer.hex() == writer]
        if not slots:
            # It never got its first header: no record was ever written to it.
            return None, []
        slot = max(slots, key=lambda s: s.version)
        records: list[tuple[Record, Place]] = []
        for segment in (0, 1):
            start = segment_offset(segment, slot.segment_size)
            length = min(slot.segment_size, max(0, size - start))
            data = memoryview(_read(fd, length, start, disk))
            for position, record in _scan(data, slot, slot.generations[segment]):
                records.append((record, Place(path, start + position, record.size)))
        return slot, records
    finally:
        disk.close(fd)


def _read_tail(
    path: Path, slots: list[Slot], known: set[int], disk: Disk
) -> list[tuple[Record, Place]]:
    """Return the record that who replayed before has copied, if the disk has lost the original."""
    try:
        data = read_whole(path, disk)
    except FileNotFoundError:
        return []
    view = memoryview(data)
    return [
        (record, Place(path, position, record.size))
        for slot in slots
        for generation in slot.generations
        for position, record in _scan(view, slot, generation)
        if record.lsn not in known
    ]


def _scan(data: memoryview, slot: Slot, generation: int) -> list[tuple[int, Record]]:
    """Return every good record of a generation, also behind a bad one, and where each stands."""
    found: list[tuple[int, Record]] = []
    position = 0
    while position < len(data):
        record = None
        if data[position : position + len(MAGIC)] == MAGIC:
            rest = data[position:]
            record = decode(rest, writer=slot.writer, epoch=slot.epoch, generation=generation)
        if record is not None:
            found.append((position, record))
        position += record.size if record is not None else BLOCK
    return found


def _read(fd: int, length: int, offset: int, disk: Disk) -> bytes:
    parts: list[bytes] = []
    while length > 0:
        part = disk.pread(fd, min(length, _CHUNK), offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
        length -= len(part)
    return b"".join(parts)


def read_done(directory: Path, disk: Disk) -> frozenset[str]:
    """Return the paths that have been mended from a journal; ``OSError`` if that cannot be read."""
    try:
        text = read_whole(directory / DONE, disk)
    except FileNotFoundError:
        return frozenset()
    # A line without its newline was torn: that session is handled once more, which changes nothing.
    return frozenset(line.decode("ascii", "replace") for line in text.split(b"\n")[:-1])


def read_place(place: Place, disk: Disk) -> bytes:
    """Return a record's bytes."""
    fd = disk.open(place.path, os.O_RDONLY)
    try:
        return _read(fd, place.size, place.offset, disk)
    finally:
        disk.close(fd)


def read_whole(path: Path, disk: Disk) -> bytes:
    """Return a whole file."""
    fd = disk.open(path, os.O_RDONLY)
    try:
        return _read(fd, disk.fstat(fd).st_size, 0, disk)
    finally:
        disk.close(fd)
