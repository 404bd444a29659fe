"""What must hold of any bytes that are given to the reader as a log."""

from __future__ import annotations

import os
import random
import traceback
from pathlib import Path

from interlock.backends.codes import Code
from interlock.backends.disk import OsDisk
from interlock.backends.errors import SessionError
from interlock.backends.event import encode_line
from interlock.backends.header import encode_header
from interlock.backends.journal.overlay import OverlayDisk
from interlock.backends.paths import log_name
from interlock.backends.reading import read_log
from interlock.backends.repair import closers
from interlock.backends.verify import verify_log

from .mutate import damage_bytes, damage_rows, encode
from .seeds import line, rows

REFUSALS = (Code.SESSION_CORRUPT, Code.SESSION_FORMAT_UNSUPPORTED)
VERSIONS = (0, 1, 2, 3)


class OneFile(OsDisk):
    """A disk with one file on it, in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._fd = os.memfd_create("log")
        os.write(self._fd, data)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.dup(self._fd)

    def done(self) -> None:
        os.close(self._fd)


def case(seed: int) -> tuple[Path, bytes, int, bool]:
    """Return the damaged log of a seed: name, bytes, generation, whether only bytes were hurt."""
    rng = random.Random(seed)
    version, compressed = rng.choice(VERSIONS), rng.random() < 0.6
    start = rows(version, turns=rng.choice((1, 2, 4)))
    per_frame = rng.choice((1, 3, 7, 100))
    hurt_rows = rng.random() < 0.6
    lines = damage_rows(start, rng) if hurt_rows else [line(row) for row in start]
    data = encode(lines, compressed=compressed, per_frame=per_frame) if lines else b""
    if not hurt_rows or rng.random() < 0.2:
        data = damage_bytes(data, rng)
    name = Path("/logs/--x--/s") / log_name(version, compressed=compressed)
    return name, data, version, not hurt_rows and compressed


def fault_of(seed: int) -> str | None:
    """Return what is wrong with how the log of a seed was read, or None."""
    name, data, version, whole = case(seed)
    disk = OneFile(data)
    try:
        return _fault(name, disk, version, whole)
    except Exception:
        return traceback.format_exc()
    finally:
        disk.done()


def _fault(name: Path, disk: OneFile, version: int, whole: bool) -> str | None:
    entry = verify_log(name, None, OverlayDisk(Path("/nowhere"), disk))
    try:
        reading = read_log(name, disk=disk)
    except SessionError as error:
        if error.code not in REFUSALS:
            return f"refused with {error.code}"
        if entry["status"] not in ("corrupt", "unsupported") or entry["code"] != str(error.code):
            return f"verify says {entry['status']} {entry['code']}, reading says {error.code}"
        if error.code == Code.SESSION_CORRUPT and "offset" not in error.details:
            return f"refused without a place: {error}"
        return None
    events = list(reading.events)
    if entry["status"] not in ("ok", "repairable"):
        return f"verify says {entry['status']}, and it can be read"
    if [event.seq for event in events] != list(range(len(events))):
        return "the events are not numbered from 0 without a gap"
    if reading.last_seq != len(events) - 1:
        return f"the last seq is {reading.last_seq} of {len(events)} events"
    again = encode_header(reading.header) + b"".join(map(encode_line, events))
    copy = OneFile(again)
    try:
        second = read_log(Path("/logs/--x--/s/session.v3.jsonl"), disk=copy)
        if [*second.events] != events:
            return "written again it reads otherwise"
    finally:
        copy.done()
    reading.fold.admit(closers(reading.fold), reading.fold.last_time)
    if whole and version == 3:
        sound = [line(row) for row in rows(3, turns=4)[1:]]
        if any(encode_line(event) not in sound for event in events):
            return "it holds an event that was never written, and every frame has a checksum"
    return None
