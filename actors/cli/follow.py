"""A log file that another process writes to, read as it grows: without a lock, by whole rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from interlock.backends import frames
from interlock.backends.event import Event, decode_line
from interlock.backends.frames import Bytes, FrameError

from .output import CommandFailed

#: Damage is believed only when it is still there after this many looks: a writer that puts a failed
#: write back (L6) may be in the middle of it.
LOOKS = 5


class Follower:
    """Yields the events of a growing log from ``next_seq`` on, each once.

    What ends inside a frame or a line is not there yet (L-08). A file that got shorter, or another
    one in its place, is read from its start again.
    """

    def __init__(self, path: Path, next_seq: int) -> None:
        self.path = path
        self.next_seq = next_seq
        self._compressed = path.name.endswith(".zstd")
        self._fd: int | None = None
        self._identity: tuple[int, int] | None = None
        self._offset = 0
        self._frame = 0
        self._seen = -1
        self._doubts = 0

    def poll(self) -> list[Event]:
        """Return what has come since the last look.

        Raises :class:`CommandFailed` where the log is damaged or gone.
        """
        size = self._look()
        if size is None:
            return []
        start = (self._offset, self._frame, self.next_seq)
        try:
            events = list(self._new(size))
        except (FrameError, ValueError) as error:
            self._offset, self._frame, self.next_seq = start
            self._seen = -1
            self._doubts += 1
            if self._doubts >= LOOKS:
                raise CommandFailed(
                    f"{self.path}: damaged behind offset {self._offset}: {error}; "
                    "`interlock sessions verify` says more"
                ) from None
            return []
        self._doubts = 0
        self._seen = size
        return events

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _look(self) -> int | None:
        """Return the file's size if there is anything new in it."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            raise CommandFailed(f"{self.path}: the log is gone") from None
        identity = (status.st_dev, status.st_ino)
        if self._fd is None or identity != self._identity:
            self.close()
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            status = os.fstat(self._fd)
            self._identity = (status.st_dev, status.st_ino)
            self._offset = self._frame = 0
        elif status.st_size < self._offset:
            self._offset = self._frame = 0
        elif status.st_size == self._seen:
            return None
        return status.st_size

    def _new(self, size: int) -> Iterator[Event]:
        for event in self._rows(size):
            if event.seq > self.next_seq:
                raise ValueError(f"event {event.seq} follows event {self.next_seq - 1}")
            if event.seq == self.next_seq:
                self.next_seq += 1
                yield event

    def _rows(self, size: int) -> Iterator[Event]:
        data = Bytes(self._pread, size)
        for lines in self._frames(data) if self._compressed else self._lines(data):
            for line in lines:
                yield decode_line(line)

    def _frames(self, data: Bytes) -> Iterator[list[bytes]]:
        for frame in frames.scan(data, self._offset, self._frame):
            if not frame.complete:
                return
            text = b"".join(frames.decode(data, frame))
            if frame.number > 0:  # the first one holds the header
                yield text.splitlines()
            self._offset, self._frame = frame.end, frame.number + 1

    def _lines(self, data: Bytes) -> Iterator[list[bytes]]:
        while True:
            chunk = data.at(self._offset, 1 << 20)
            length = 1 << 20
            while b"\n" not in chunk and len(chunk) == length:
                length *= 2
                chunk = data.at(self._offset, length)
            end = chunk.rfind(b"\n") + 1
            if not end:
                return
            lines = chunk[:end].split(b"\n")[:-1]
            if self._offset == 0:
                lines = lines[1:]
            yield lines
            self._offset += end

    def _pread(self, length: int, offset: int) -> bytes:
        return b"" if self._fd is None else os.pread(self._fd, length, offset)
