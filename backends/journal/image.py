"""What a journal says of one log file, against what the file holds: decisions, no I/O.

Journal mode assumes nothing of unsynced bytes in a session's file, not even that they survive as a
prefix. So what stands where journaled frames belong is ours and torn unless it verifies; a whole
frame with other content is somebody's, and is never overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from .. import jsontext
from ..frames import Bytes, FrameError, decode, scan
from .record import BEFORE, Entry, digest


class ConflictError(Exception):
    """The file holds what no crash of the journal's writer explains; says what."""


class Run(msgspec.Struct, frozen=True):
    """Frames that follow one another, from ``offset`` of the file on."""

    offset: int
    header: bytes
    before: bytes
    entries: tuple[Entry, ...]

    @property
    def data(self) -> bytes:
        """All bytes of the run."""
        return b"".join([entry.data for entry in self.entries])

    @property
    def end(self) -> int:
        """The length of the file with it."""
        return self.entries[-1].end

    @property
    def is_whole(self) -> bool:
        """Whether it ends with a batch: one of many records may have got no further."""
        return not self.entries[-1].more


class Patch(msgspec.Struct, frozen=True):
    """Bytes that a file lacks. ``make``: it is not there at all."""

    offset: int
    data: bytes
    make: bool = False


class Standing(msgspec.Struct, frozen=True):
    """A file as it is: its length, a way to read it, the digest of its header line, its kind."""

    size: int
    read: Callable[[int, int], bytes]
    header: Callable[[], bytes | None]


def runs(entries: Iterable[Entry]) -> list[Run]:
    """Return what a journal's entries for one file, in order, say about it."""
    found: list[Run] = []
    for entry in entries:
        last = found[-1] if found else None
        if last is not None and last.end == entry.offset:
            found[-1] = msgspec.structs.replace(last, entries=(*last.entries, entry))
        else:
            found.append(Run(entry.offset, entry.header, entry.before, (entry,)))
    return found


def patch(run: Run, standing: Standing | None, *, compressed: bool) -> Patch | None:
    """Return what a file lacks of a run, or None; ``standing`` is None where there is no file.

    Raises :class:`ConflictError` where something else changed the file.
    """
    if standing is None:
        if run.offset:
            raise ConflictError(f"it is gone, and had {run.offset} bytes")
        return Patch(0, run.data, make=True)
    if run.offset > standing.size:
        raise ConflictError(f"it has {standing.size} bytes and had {run.offset}")
    if run.offset:
        _check_before(run, standing)
    data = run.data
    there = standing.read(run.offset, len(data))
    if there == data:
        return None
    boundaries = _boundaries(run, compressed=compressed)
    first = max(b for b in boundaries if there[:b] == data[:b])
    rest = there[first:]
    end = run.offset + len(data)
    if data[first:].startswith(rest) and standing.size <= end:
        start = first + len(rest)
        return Patch(run.offset + start, data[start:])
    if standing.size > end:
        raise ConflictError(
            f"it differs from offset {run.offset + first} on and goes on behind {end}"
        )
    for start, stop in pairwise([*boundaries, len(data)]):
        # Unsynced bytes reach the disk in any order: a frame of ours may stand behind a lost one.
        ours = there[start:stop] == data[start:stop]
        if start >= first and not ours and _verifies(there[start:], compressed=compressed):
            raise ConflictError(f"other events stand in it at offset {run.offset + start}")
    return Patch(run.offset + first, data[first:])


def _check_before(run: Run, standing: Standing) -> None:
    if standing.header() != run.header:
        raise ConflictError("another log stands in its place")
    start = max(0, run.offset - BEFORE)
    if digest(standing.read(start, run.offset - start)) != run.before:
        raise ConflictError(f"the bytes before offset {run.offset} are not those that stood there")


def _boundaries(run: Run, *, compressed: bool) -> Sequence[int]:
    """Return where frames (or raw lines) begin in the run, as far as can be told; 0 first.

    A run may begin inside a batch: what comes before it was no longer needed.
    """
    found = [0]
    for entry in run.entries:
        start = entry.offset - run.offset
        data = entry.data
        if not compressed:
            found += [start, *(start + i + 1 for i in range(len(data) - 1) if data[i] == 0x0A)]
        elif entry.inside:
            found.append(start)
        else:
            # It may hold several: the header's, say, and the first batch's.
            found += [start + frame.start for frame in scan(_bytes(data))]
    return sorted(set(found))


def _verifies(there: bytes, *, compressed: bool) -> bool:
    """Tell whether bytes begin with a whole frame, or a whole raw line, of somebody's."""
    if compressed:
        data = _bytes(there)
        try:
            frame = next(scan(data), None)
            if frame is None or not frame.complete:
                return False
            for _ in decode(data, frame):
                pass
        except FrameError:
            return False
        return True
    line, newline, _ = there.partition(b"\n")
    if not newline:
        return False
    try:
        return isinstance(jsontext.loads(line), dict)
    except ValueError:
        return False


def _bytes(data: bytes) -> Bytes:
    return Bytes(lambda length, offset: data[offset : offset + length], len(data))
