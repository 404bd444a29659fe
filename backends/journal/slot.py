"""A journal file's header: two slots of 4 KiB, the newer good one counts.

A slot says whose journal this is, which epoch, what that epoch supersedes, and which generation of
records each segment holds: records of another generation are void. Slots are written in turn, so a
torn one leaves the other.
"""

from __future__ import annotations

import msgspec

from .record import BLOCK, digest

MAGIC = b"ILKJNL1\n"
SLOTS = 2

_CHECKSUM = 16


class Slot(msgspec.Struct, frozen=True, array_like=True):
    """What a header slot says.

    ``supersedes`` is the epoch before, 0 for none: of its records those from ``from_lsn`` on are
    void. ``oldest`` is the lowest lsn that was still needed when the slot was written.
    """

    writer: bytes
    epoch: int
    version: int
    supersedes: int
    from_lsn: int
    oldest: int
    segment_size: int
    generations: tuple[int, int]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Slot)


def encode_slot(slot: Slot) -> bytes:
    """Return the 4 KiB of a slot."""
    body = _encoder.encode(slot)
    data = MAGIC + len(body).to_bytes(4, "little") + body
    return (data + digest(data)).ljust(BLOCK, b"\0")


def decode_slot(data: bytes) -> Slot | None:
    """Return what a slot says, or None if it is torn or was never written."""
    start = len(MAGIC) + 4
    if data[: len(MAGIC)] != MAGIC:
        return None
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    if end + _CHECKSUM > len(data) or digest(data[:end]) != data[end : end + _CHECKSUM]:
        return None
    try:
        return _decoder.decode(data[start:end])
    except msgspec.MsgspecError:
        return None


def slot_offset(version: int) -> int:
    """Return where the slot of a version stands in the file, in bytes."""
    return (version % SLOTS) * BLOCK


def segment_offset(index: int, segment_size: int) -> int:
    """Return where a segment begins in the file, in bytes."""
    return SLOTS * BLOCK + index * segment_size
