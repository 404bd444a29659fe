"""From a root and the notes about it to what a power cut would have left: only what was synced."""

from __future__ import annotations

import os
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from .recording import Note

_decode = msgspec.msgpack.Decoder(Note).decode


def read_notes(path: Path) -> Iterator[Note]:
    """Yield the notes in order; one that was being written when the process died does not count."""
    data = path.read_bytes()
    position = 0
    while position + 4 <= len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "little")
        if end > len(data):
            return
        yield _decode(data[position + 4 : end])
        position = end


#: How many of the unsynced writes to a journal are kept where some are.
_KEPT = 0.5


def places(notes: Path) -> list[str]:
    """Return where the product synced: ``module:function``, in the order of the first time."""
    return [note.path for note in read_notes(notes) if note.kind == "place"]


def take_away(root: Path, notes: Path, keep: random.Random | None = None) -> int:
    """Undo every write and name that was not synced; return how many that were.

    With ``keep`` each unsynced write to a journal is kept or undone by chance.
    Names that were removed and not synced stay removed.
    """
    writes: dict[int, list[tuple[int, Note]]] = defaultdict(list)
    names: dict[str, int] = {}
    for number, note in enumerate(read_notes(notes)):
        if note.kind == "write":
            writes[note.inode].append((number, note))
        elif note.kind == "sync":
            left = [pair for pair in writes[note.inode] if pair[0] >= note.upto]
            writes[note.inode] = left
        elif note.kind == "name":
            names[note.path] = number
        elif note.kind == "names":
            for path in [p for p, n in names.items() if n < note.upto and _parent(p) == note.path]:
                del names[path]
    undone = 0
    for path in [p for p in root.rglob("*") if p.is_file()]:
        for _, note in reversed(writes[path.stat().st_ino]):
            if keep is not None and path.suffix == ".journal" and keep.random() < _KEPT:
                continue
            _undo(path, note)
            undone += 1
    for name in sorted(names):
        path = Path(name)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return undone + len(names)


def _undo(path: Path, note: Note) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, note.before, note.offset)
        os.ftruncate(fd, note.length)
    finally:
        os.close(fd)


def _parent(path: str) -> str:
    return os.path.dirname(path)
