"""What a power cut may leave of one file: two models, as ``docs/crash-states.md`` states them.

``prefix`` (file mode): unsynced changes survive in order, the last one up to any byte; besides, a
shorter length may be lost while later bytes survive. ``sectors`` (journal mode): any 512-byte
sector of what was not synced is new, old, zero or, where the file was shorter, garbage; its length
is any in between. Both leave synced bytes alone.
"""

from __future__ import annotations

import random
from typing import Literal

from .machine import Change, Truncate, Write, applied, apply

Model = Literal["prefix", "sectors"]

SECTOR = 512

#: Sector choices drawn for a file with too many sectors to take every choice.
_DRAWN = 96
_EVERY_CHOICE = 6

_GARBAGE = random.Random(4711).randbytes(64 * 1024)


class Remains:
    """What may be left of a file: ``count`` contents, each made when asked for."""

    def __init__(self, durable: bytes, changes: list[Change], model: Model) -> None:
        self._durable = durable
        self._orders = [changes]
        if _shrinks_before_a_write(durable, changes):
            self._orders.append([c for c in changes if isinstance(c, Write)])
        # With every change in its order the content is the last of all, and counted there.
        self._cuts = [_cuts(changes) + (i > 0) for i, changes in enumerate(self._orders)]
        self._torn = sum(self._cuts)
        self._full = applied(durable, changes)
        self._sectors = _touched(changes) if model == "sectors" else []
        self.count = self._torn + self._sector_choices() + 1

    def draw(self, draw: random.Random) -> int:
        """Draw one of the contents: cut short somewhere, or with lost sectors, half and half."""
        mixed = self.count - self._torn - 1
        if mixed and draw.random() < 0.5:
            return self._torn + draw.randrange(mixed)
        return draw.randrange(self.count)

    def content(self, index: int) -> bytes:
        """Return one of the contents; the last one has every change."""
        for changes, cuts in zip(self._orders, self._cuts, strict=True):
            if index < cuts:
                return _cut(self._durable, changes, index)
            index -= cuts
        if index == self.count - self._torn - 1:
            return self._full
        return self._mixed(index)

    def _sector_choices(self) -> int:
        if not self._sectors:
            return 0
        # For each: lost sectors are zero, or garbage, or the file ends early.
        return 3 * self._choices()

    def _choices(self) -> int:
        count = len(self._sectors)
        return 1 << count if count <= _EVERY_CHOICE else _DRAWN

    def _mixed(self, index: int) -> bytes:
        choices = self._choices()
        kind, choice = divmod(index, choices)
        if choices == _DRAWN:
            draw = random.Random(choice)
            kept = {s for s in self._sectors if draw.random() < (choice + 1) / _DRAWN}
        else:
            kept = {s for i, s in enumerate(self._sectors) if choice >> i & 1}
        old, new = self._durable, self._full
        data = bytearray(new)
        for sector in self._sectors:
            if sector in kept:
                continue
            start, end = sector * SECTOR, min(len(new), (sector + 1) * SECTOR)
            before = old[start:end]
            fill = _GARBAGE[start % 4096 :][: end - start] if kind == 1 else bytes(end - start)
            data[start:end] = before + fill[len(before) :]
        if kind == 2 and len(new) > len(old):
            length = random.Random(choice).randrange(len(old), len(new))
            del data[length:]
        return bytes(data)


def _shrinks_before_a_write(durable: bytes, changes: list[Change]) -> bool:
    size, shrunk = len(durable), False
    for change in changes:
        if isinstance(change, Write):
            if shrunk:
                return True
            size = max(size, change.offset + len(change.data))
        else:
            shrunk = shrunk or change.length < size
            size = change.length
    return False


def _cuts(changes: list[Change]) -> int:
    return sum(len(c.data) if isinstance(c, Write) else 1 for c in changes)


def _cut(durable: bytes, changes: list[Change], index: int) -> bytes:
    data = bytearray(durable)
    for change in changes:
        length = 1 if isinstance(change, Truncate) else len(change.data)
        if index < length:
            if index:
                assert isinstance(change, Write)
                apply(data, Write(change.offset, change.data[:index]))
            return bytes(data)
        apply(data, change)
        index -= length
    return bytes(data)


def _touched(changes: list[Change]) -> list[int]:
    touched: set[int] = set()
    for change in changes:
        if isinstance(change, Write) and change.data:
            last = (change.offset + len(change.data) - 1) // SECTOR
            touched.update(range(change.offset // SECTOR, last + 1))
    return sorted(touched)
