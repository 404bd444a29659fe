"""Zstandard frames as they stand in a file: found by structure, decoded in bounded memory.

A log is a run of independent frames (RFC 8878), each with a content checksum. Where a frame ends
is worked out from its block headers and never from the content size that it claims, so that a file
which ends inside its last frame (torn) is told apart from one whose frames are damaged.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

import zstandard

MAGIC = b"\x28\xb5\x2f\xfd"

#: What a decoder sets aside at most, in bytes; the harness's frames ask for 2 MiB.
MAX_WINDOW = 128 * 1024 * 1024

#: Blocks decoded at a time: each holds at most 128 KiB, so a step yields at most 1 MiB.
_STEP = 8

_CHECKSUM = 0x04
_FIRST_CHUNK = 4 * 1024
_CHUNK = 256 * 1024
_DICTIONARY_SIZES = (0, 1, 2, 4)
_BLOCK_RLE = 1
_BLOCK_RESERVED = 3

#: A torn frame that ends in this many NULs was not cut short: something zeroed the file's end.
NUL_RUN = 16


_per_thread = threading.local()


class FrameError(Exception):
    """A frame that no cut could explain; ``offset`` is where it starts in the file, in bytes."""

    def __init__(self, reason: str, frame: int, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.frame = frame
        self.offset = offset


class Frame(NamedTuple):
    """Where one frame lies; between two of its ``steps`` little enough is decoded at once."""

    number: int
    start: int
    end: int
    complete: bool
    steps: tuple[int, ...]


class Bytes:
    """Buffered positional reads over a file of ``size`` bytes: many looks, few system calls."""

    def __init__(self, pread: Callable[[int, int], bytes], size: int) -> None:
        self.size = size
        self._pread = pread
        self._start = 0
        self._chunk = b""
        self._next = _FIRST_CHUNK

    def at(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes at ``offset``; fewer at the end of the file."""
        length = min(length, self.size - offset)
        if length <= 0:
            return b""
        begin = offset - self._start
        if begin < 0 or begin + length > len(self._chunk):
            self._start, begin = offset, 0
            # Whoever wants the header only shall not read more: the chunks grow as one goes on.
            self._chunk = self._read(offset, min(max(length, self._next), self.size - offset))
            self._next = min(_CHUNK, 4 * self._next)
        return self._chunk[begin : begin + length]

    def _read(self, offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = self._pread(length, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def scan(data: Bytes, offset: int = 0, index: int = 0) -> Iterator[Frame]:
    """Yield the frames from ``offset`` on; only the last one may be incomplete.

    Raises :class:`FrameError` for bytes that are no frame. Fewer than four bytes at the end are a
    torn frame whatever they are.
    """
    while offset < data.size:
        frame = _frame(data, offset, index)
        yield frame
        if not frame.complete:
            return
        offset, index = frame.end, index + 1


def _frame(data: Bytes, start: int, index: int) -> Frame:
    head = data.at(start, 18)
    torn = Frame(index, start, data.size, False, ())
    if len(head) < 4:
        return torn
    if head[:4] != MAGIC:
        raise FrameError("no frame starts here (bad magic)", index, start)
    if len(head) < 5:
        return torn
    descriptor = head[4]
    if descriptor & 0x08:
        raise FrameError("the frame's descriptor has a reserved bit set", index, start)
    if not descriptor & _CHECKSUM:
        raise FrameError("the frame has no content checksum", index, start)
    single = descriptor & 0x20
    size_bytes = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    head_length = 5 + (not single) + _DICTIONARY_SIZES[descriptor & 3] + size_bytes
    if len(head) < head_length:
        return torn
    window = _window(head, head_length - size_bytes, size_bytes)
    if window > MAX_WINDOW:
        raise FrameError(f"the frame claims a window of {window} bytes", index, start)
    return _blocks(data, start, index, start + head_length)


def _window(head: bytes, size_at: int, size_bytes: int) -> int:
    if not head[4] & 0x20:
        exponent, mantissa = head[5] >> 3, head[5] & 7
        base = 1 << (10 + exponent)
        return base + (base >> 3) * mantissa
    content = int.from_bytes(head[size_at : size_at + size_bytes], "little")
    return content + (256 if size_bytes == 2 else 0)


def _blocks(data: Bytes, start: int, index: int, position: int) -> Frame:
    steps: list[int] = []
    count = 0
    while True:
        header = data.at(position, 3)
        if len(header) < 3:
            return Frame(index, start, data.size, False, tuple(steps))
        value = int.from_bytes(header, "little")
        kind = value >> 1 & 3
        if kind == _BLOCK_RESERVED:
            raise FrameError("the frame has a block of a reserved type", index, start)
        position += 3 + (1 if kind == _BLOCK_RLE else value >> 3)
        count += 1
        last = value & 1
        if last:
            position += 4
        if position > data.size:
            return Frame(index, start, data.size, False, tuple(steps))
        if last:
            return Frame(index, start, position, True, tuple(steps))
        if count % _STEP == 0:
            steps.append(position)


def new_decompressor() -> zstandard.ZstdDecompressor:
    """Return what :func:`decode` may use for one frame after the other."""
    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)


def small_decompressor() -> zstandard.ZstdDecompressor:
    """Return this thread's own, for a frame that is decoded to its end before any other is."""
    decompressor: zstandard.ZstdDecompressor | None = getattr(_per_thread, "decompressor", None)
    if decompressor is None:
        decompressor = _per_thread.decompressor = new_decompressor()
    return decompressor


def decode(
    data: Bytes, frame: Frame, decompressor: zstandard.ZstdDecompressor | None = None
) -> Iterator[bytes]:
    """Yield a complete frame's content in pieces; :class:`FrameError` if it does not verify.

    A ``decompressor`` of one's own, for no two frames at once, saves making one for each frame.
    """
    decoder = (decompressor or new_decompressor()).decompressobj()
    begin = frame.start
    for end in (*frame.steps, frame.end):
        try:
            piece = decoder.decompress(data.at(begin, end - begin))
        except zstandard.ZstdError as error:
            raise FrameError(
                f"the frame does not verify: {error}", frame.number, frame.start
            ) from (error)
        begin = end
        if piece:
            yield piece
    if not decoder.eof:
        raise FrameError("the frame does not verify: it has no end", frame.number, frame.start)


def decode_torn(data: Bytes, frame: Frame) -> Iterator[bytes]:
    """Yield what an incomplete last frame still gives, block by block, and stop where it ends.

    Raises :class:`FrameError` where the file's end was zeroed: no cut leaves a run of NULs.
    """
    tail = data.at(max(frame.start, frame.end - NUL_RUN), NUL_RUN)
    if len(tail) == NUL_RUN and not tail.strip(b"\0"):
        raise FrameError("the file ends in a run of NUL bytes", frame.number, frame.start)
    decoder = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).decompressobj()
    begin = frame.start
    try:
        while begin < frame.end:
            # Small bites: an error in one block must not take the good ones before it along.
            piece = decoder.decompress(data.at(begin, min(1024, frame.end - begin)))
            begin += 1024
            if piece:
                yield piece
    except zstandard.ZstdError:
        return


def encode(content: bytes) -> bytes:
    """Return one frame with a content checksum. A compressor is kept per thread and reused."""
    compressor: zstandard.ZstdCompressor | None = getattr(_per_thread, "compressor", None)
    if compressor is None:
        compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=True)
        _per_thread.compressor = compressor
    return compressor.compress(content)
