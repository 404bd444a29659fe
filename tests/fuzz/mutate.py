"""Ways to damage a log: its bytes, its frames, its rows and what stands in them."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import zstandard

from .seeds import Rows, line

#: Values that somebody's program might write where another one was due.
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, -0.0, 2**53, 2**64, -(2**63) - 1, 10**40, "", "x", "\0", []),
    *({}, [[]], [{}], {"": {}}, "\ud800", "é" * 300, [0] * 50, ["x", 1, None], {"turn": 1}),
    *("turn/end", "step/end", "append", "user/message", "../../x", "a" * 5000),
)
#: Texts that are no JSON, or only in some readers' eyes.
NOT_JSON = (
    *(b"", b" ", b"NaN", b"Infinity", b"-Infinity", b"nul", b"{", b"[", b'"', b"{}{}", b"[1,]"),
    *(b'{"a":1,"a":2}', b"'x'", b"\xff\xfe", b"\x00" * 20, b"// x", b"1e999", b"0x1", b"01"),
    *(b"[" * 4000, b'{"a":' * 4000, b'"\\ud800"', b'"\\x"', b"1" * 5000, b"\xed\xa0\x80"),
)


def encode(lines: list[bytes], *, compressed: bool, per_frame: int = 5) -> bytes:
    """Return a log of these lines, the header in a frame of its own."""
    if not compressed:
        return b"".join(lines)
    compressor = zstandard.ZstdCompressor(write_checksum=True)
    parts = [compressor.compress(lines[0])]
    parts += [
        compressor.compress(b"".join(lines[start : start + per_frame]))
        for start in range(1, len(lines), per_frame)
    ]
    return b"".join(parts)


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Damage a file as disks, editors and other programs do."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        length = min(rng.choice((1, 2, 7, 40, 500)), len(out) - at)
        how = rng.randrange(8)
        if how == 0 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            del out[at:]
        elif how == 2:
            del out[at : at + length]
        elif how == 3:
            out[at:at] = out[at : at + length]
        elif how == 4:
            out[at : at + length] = bytes(length)
        elif how == 5:
            out[at:at] = rng.randbytes(rng.choice((1, 3, 50)))
        elif how == 6:
            out += rng.choice((b"\0" * 30, b"garbage\n", data[: at or 1], data[at:], b"\n\n\n"))
        else:
            other = rng.randrange(len(out) + 1)
            out[at : at + length] = out[other : other + length]
    return bytes(out)


def damage_rows(rows: Rows, rng: random.Random) -> list[bytes]:
    """Return lines of a log whose rows were changed, so that all frames still verify."""
    rows = copy.deepcopy(rows)
    lines: list[bytes] | None = None
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(rows))
        how = rng.randrange(9)
        if how == 0 and len(rows) > 1:
            del rows[at]
        elif how == 1:
            rows.insert(at, copy.deepcopy(rng.choice(rows)))
        elif how == 2:
            other = rng.randrange(len(rows))
            rows[at], rows[other] = rows[other], rows[at]
        elif how == 3:
            rows[at]["type"] = rng.choice((*(r.get("type") for r in rows), "future/thing", ""))
        elif how == 4:
            rows[at]["seq"] = rng.choice((-1, 0, at, at + 1, 2**53, 2**70, 1.0, "1", None))
        elif how == 5:
            rows[at]["sourceEventSeqs"] = rng.choice(
                ([], [0], [at], [[0, at]], [[0, 2**60]], [[1, 0]], [0, 0], ["0"], [[0]], 7)
            )
        elif how == 6:
            rows[at][rng.choice(("extra", "ignorable", "surfaceOp", "time"))] = rng.choice(ODD)
        else:
            _replace_somewhere(rows[at], rng)
    lines = [line(row) for row in rows]
    if rng.random() < 0.2:
        at = rng.randrange(len(lines))
        lines[at] = _spoil_text(lines[at], rng)
    return lines


def _replace_somewhere(value: Any, rng: random.Random) -> None:
    """Change one value at some depth of a row."""
    while True:
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], dict | list) and value[key] and rng.random() < 0.7:
            value = value[key]
            continue
        how = rng.randrange(4)
        if how == 0 and isinstance(value, dict):
            del value[key]
        elif how == 1 and isinstance(value, dict):
            value[rng.choice(("extra", "kind", "id", "turn", "toString", "__proto__"))] = value[key]
        else:
            value[key] = rng.choice(ODD)
        return


def _spoil_text(text: bytes, rng: random.Random) -> bytes:
    """Put something that is no JSON into a line."""
    spoiled = rng.choice(NOT_JSON)
    how = rng.randrange(4)
    if how == 0:
        return spoiled + b"\n"
    if how == 1:
        return text[:-1] + spoiled + b"\n"
    if how == 2:
        at = text.find(b'"data":') + 7
        return text[:at] + spoiled + text[at:]
    values = [v for v in json.loads(text).values() if not isinstance(v, dict | list)]
    found = json.dumps(rng.choice(values), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return text.replace(found, spoiled or b"0", 1)
