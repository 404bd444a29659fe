"""One journal record: the batches that one sync made durable, checksummed as a whole.

On disk, at a 4 KiB boundary and filled up to the next one with zeros::

    magic 8 | writer 8 | epoch 4 | generation 8 | lsn 8 | durable 8 | oldest 8 | length 4
    checksum 16
    body, `length` bytes: a MessagePack array of entries

All numbers are little-endian and unsigned. ``lsn`` counts a writer's records from 1, over all its
epochs. ``durable`` is the highest lsn that was durable when this record was written and ``oldest``
the lowest one that was still needed then: so every record of ``oldest`` to ``durable`` must be
there, and one that is not was lost by the disk. The checksum is BLAKE2b over everything before and
after it.
"""

from __future__ import annotations

import hashlib
import struct

import msgspec

BLOCK = 4096
MAGIC = b"ILKREC1\n"

#: Bytes that stand before a frame and are checked by it.
BEFORE = 256

_FIELDS = struct.Struct("<8s8sIQQQQI")
_CHECKSUM = 16
_HEAD = _FIELDS.size + _CHECKSUM


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """A batch of one session: the frames that belong at ``offset`` of the file at ``path``.

    ``path`` is relative to the root (escaped names: ASCII), ``header`` the digest of the log's
    header line and ``before`` that of the bytes before ``offset``, :data:`BEFORE` of them where
    there are so many. A batch that is too long for a record is in several: all but the first begin
    ``inside`` of it, and of all but the last there is ``more``.
    """

    path: str
    header: bytes
    offset: int
    before: bytes
    data: bytes
    inside: bool = False
    more: bool = False

    @property
    def end(self) -> int:
        """The length of the file with these frames."""
        return self.offset + len(self.data)


class Record(msgspec.Struct, frozen=True):
    """A record as it was read. ``size`` is what it takes on disk, in bytes."""

    epoch: int
    generation: int
    lsn: int
    durable: int
    oldest: int
    entries: list[Entry]
    size: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Entry])


def digest(data: bytes) -> bytes:
    """Return the digest that entries carry of other bytes."""
    return hashlib.blake2b(data, digest_size=_CHECKSUM).digest()


def encoded_size(entries: list[Entry]) -> int:
    """Return at most how many bytes a record of these entries takes on disk."""
    fields = sum(len(e.data) + len(e.path) + 80 for e in entries)
    return padded(_HEAD + fields + 8)


def padded(length: int) -> int:
    """Return a length rounded up to whole blocks."""
    return -(-length // BLOCK) * BLOCK


def encode(
    entries: list[Entry],
    *,
    writer: bytes,
    epoch: int,
    generation: int,
    lsn: int,
    durable: int,
    oldest: int,
) -> bytes:
    """Return a record's bytes, filled up to whole blocks."""
    body = _encoder.encode(entries)
    fields = _FIELDS.pack(MAGIC, writer, epoch, generation, lsn, durable, oldest, len(body))
    data = fields + digest(fields + body) + body
    return data + bytes(padded(len(data)) - len(data))


def decode(data: memoryview, *, writer: bytes, epoch: int, generation: int) -> Record | None:
    """Return the record that ``data`` begins with, or None if none of this generation does."""
    if len(data) < _HEAD or bytes(data[: len(MAGIC)]) != MAGIC:
        return None
    fields = data[: _FIELDS.size]
    _, named, e, g, lsn, durable, oldest, length = _FIELDS.unpack(fields)
    if (named, e, g) != (writer, epoch, generation) or length > len(data) - _HEAD:
        return None
    body = data[_HEAD : _HEAD + length]
    if digest(b"".join((fields, body))) != bytes(data[_FIELDS.size : _HEAD]):
        return None
    try:
        entries = _decoder.decode(body)
    except msgspec.MsgspecError:
        return None
    return Record(e, g, lsn, durable, oldest, entries, padded(_HEAD + length))
