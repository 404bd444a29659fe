"""A log file as lines: which generation a directory holds, and what its bytes say."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn, Self

from . import frames
from .codes import Code
from .disk import Disk
from .errors import SessionError
from .frames import MAGIC, Bytes, Frame, FrameError
from .paths import parse_log_name

#: A line longer than this is not read into memory, in bytes. Interlock spills results far earlier.
LINE_LIMIT = 128 * 1024 * 1024

_HEADER_LIMIT = 1024 * 1024
_CHUNK = 1024 * 1024
#: Bytes of lines that are decoded at once, unless a single line is longer.
_PART = 64 * 1024


class Line(NamedTuple):
    """One complete line with its newline; ``offset`` is its frame's or, in a raw log, its own."""

    text: bytes
    frame: int
    offset: int
    verified: bool


class Lines(NamedTuple):
    """Some whole lines that follow each other; ``offset`` is their frame's or, raw, their own."""

    text: bytes
    frame: int
    offset: int
    verified: bool
    raw: bool

    def split(self) -> Iterator[Line]:
        """Yield the lines one by one."""
        offset = self.offset
        for text in self.text.split(b"\n")[:-1]:
            yield Line(text + b"\n", self.frame, offset, self.verified)
            if self.raw:
                offset += len(text) + 1

    def parts(self) -> Iterator[Lines]:
        """Yield the same lines a few at a time, so that not too many are decoded at once."""
        text, offset, start = self.text, self.offset, 0
        if len(text) <= _PART:
            yield self
            return
        while start < len(text):
            end = text.rfind(b"\n", start, start + _PART) + 1
            end = end or text.index(b"\n", start) + 1
            yield self._replace(text=text[start:end], offset=offset + start * self.raw)
            start = end


class Torn(NamedTuple):
    """The end of a file that was cut: from ``offset`` on, ``partial`` the last line's start."""

    offset: int
    frame: int
    partial: bytes


class LogFile:
    """An open log file, as long as it was when opened. Use as a context manager.

    After :meth:`lines` is exhausted, :attr:`torn` tells whether the file ended inside a frame or a
    line. ``version`` and ``compressed`` come from the file's name; a name that is no log's name is
    judged by its first bytes and has ``version`` None.
    """

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self.torn: Torn | None = None
        self._disk = disk
        self._fd = disk.open(path, os.O_RDONLY)
        try:
            self.status = disk.fstat(self._fd)
            self.size = self.status.st_size
            self._bytes = Bytes(self._pread, self.size)
            named = parse_log_name(path.name)
            self.version = named[0] if named else None
            self.compressed = named[1] if named else self._bytes.at(0, 4) == MAGIC
            self._frames: Iterator[Frame] | None = None
        except BaseException:
            disk.close(self._fd)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._disk.close(self._fd)

    def changed(self) -> bool:
        """Tell whether the file has been written to since it was opened."""
        now = self._disk.fstat(self._fd)
        then = self.status
        return (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns)

    def start(self, length: int) -> bytes:
        """Return the first bytes of the file."""
        return self._bytes.at(0, length)

    def header_line(self) -> bytes:
        """Return the first line, with its newline; ``SESSION_CORRUPT`` where there is none."""
        if self.size == 0:
            self.corrupt("the file is empty", 0, 0, -1)
        if self.compressed:
            return self._first_frame()
        start = self._bytes.at(0, _HEADER_LIMIT)
        end = start.find(b"\n") + 1
        if not end:
            self.corrupt("there is no complete header line", 0, 0, -1)
        return start[:end]

    def lines(self) -> Iterator[Lines]:
        """Yield the lines after the header, those of a torn last frame marked as not verified."""
        header = self.header_line()
        return self._frame_lines() if self.compressed else self._raw_lines(len(header))

    def corrupt(self, reason: str, frame: int, offset: int, last_good_seq: int) -> NoReturn:
        """Raise ``SESSION_CORRUPT``, saying where and what the last good event is (L10)."""
        place = f"frame {frame}, offset {offset}" if self.compressed else f"offset {offset}"
        good = f"the last good seq is {last_good_seq}" if last_good_seq >= 0 else "no good seq"
        raise SessionError(
            Code.SESSION_CORRUPT,
            f"{self.path}: {reason} ({place}, {good}). The file was left as it is; restore it from "
            "a copy, or read the events before the damage",
            file=str(self.path),
            frame=frame if self.compressed else None,
            offset=offset,
            last_good_seq=last_good_seq,
            reason=reason,
        )

    def nul_run_at(self, offset: int) -> bool:
        """Tell whether NUL bytes stand in the file from ``offset`` on: JSON text holds none."""
        while offset < self.size:
            chunk = self._bytes.at(offset, _CHUNK)
            if b"\0" in chunk or not chunk:
                return bool(chunk)
            offset += len(chunk)
        return False

    def _pread(self, length: int, offset: int) -> bytes:
        return self._disk.pread(self._fd, length, offset)

    def _first_frame(self) -> bytes:
        try:
            frame = next(frames.scan(self._bytes))
            if not frame.complete:
                self.corrupt("the file ends inside its header frame", 0, 0, -1)
            text = b""
            for piece in frames.decode(self._bytes, frame, frames.small_decompressor()):
                text += piece
                if len(text) > _HEADER_LIMIT:
                    self.corrupt("the first frame is longer than any header", 0, 0, -1)
        except FrameError as error:
            self.corrupt(error.reason, error.frame, error.offset, -1)
        if text.count(b"\n") != 1 or not text.endswith(b"\n"):
            self.corrupt("the first frame is not exactly one header line", 0, 0, -1)
        self._after_header = frame.end
        return text

    def _frame_lines(self) -> Iterator[Lines]:
        decompressor = frames.new_decompressor()
        for frame in frames.scan(self._bytes, self._after_header, 1):
            number, start, complete = frame.number, frame.start, frame.complete
            rest = b""
            pieces = (
                frames.decode(self._bytes, frame, decompressor)
                if complete
                else frames.decode_torn(self._bytes, frame)
            )
            for piece in pieces:
                whole, rest = _cut(rest, piece)
                if len(rest) > LINE_LIMIT:
                    raise FrameError("a line is longer than 128 MiB", number, start)
                if whole:
                    yield Lines(whole, number, start, complete, False)
            if not complete:
                self.torn = Torn(start, number, rest)
            elif rest:
                raise FrameError("the frame ends inside a line", number, start)

    def _raw_lines(self, offset: int) -> Iterator[Lines]:
        rest, start = b"", offset
        while offset < self.size:
            chunk = self._bytes.at(offset, _CHUNK)
            if not chunk:
                break
            offset += len(chunk)
            whole, rest = _cut(rest, chunk)
            if whole:
                yield Lines(whole, 0, start, True, True)
                start += len(whole)
            if len(rest) > LINE_LIMIT:
                raise FrameError("a line is longer than 128 MiB", 0, start)
        if rest:
            self.torn = Torn(start, 0, rest)


def _cut(rest: bytes, piece: bytes) -> tuple[bytes, bytes]:
    """Return the whole lines in ``rest + piece``, and what is left behind the last of them."""
    end = piece.rfind(b"\n") + 1
    if not end:
        return b"", rest + piece
    if end == len(piece) and not rest:
        return piece, b""
    return rest + piece[:end], piece[end:]


def find_log(directory: Path, disk: Disk) -> Path | None:
    """Return the log of a session directory, the highest-numbered generation in it (L12), or None.

    Raises ``SessionError`` (``SESSION_CORRUPT``) where one generation is there in two encodings.
    """
    names = [(parsed, name) for name in disk.listdir(directory) if (parsed := parse_log_name(name))]
    if not names:
        return None
    highest = max(version for (version, _), _ in names)
    logs = sorted(name for (version, _), name in names if version == highest)
    if len(logs) > 1:
        raise SessionError(
            Code.SESSION_CORRUPT,
            f"{directory}: two files claim to be the log ({' and '.join(logs)}); move one away",
            file=str(directory),
        )
    return directory / logs[0]
