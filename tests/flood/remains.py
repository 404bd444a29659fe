"""From a root and the notes about it to what a power cut would have left of it."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

from .recording import Note, read_notes

#: Changes that no sync covers, with their number, in order.
_Pending = list[tuple[int, Note]]


def places(notes: Path) -> Counter[str]:
    """Return how often each place synced: ``module:function:operation``, the first one first."""
    return Counter(note.place for note in read_notes(notes) if note.place)


def take_away(
    root: Path, notes: Path, graves: Path, *, keep: random.Random | None, prefix: bool
) -> int:
    """Undo every write, name and removal that no sync covers; return how many that were.

    With ``keep`` chance decides what is undone. ``prefix`` is the assumption that of a file's
    unsynced writes an earlier one is never lost when a later one is kept.
    """
    writes, names = _pending(notes)
    undone = 0
    files = [path for top in (root, graves) for path in top.rglob("*") if path.is_file()]
    for inode, path in {path.stat().st_ino: path for path in files}.items():
        changes = [note for _, note in writes[inode]]
        if changes:
            undone += _take_bytes(path, changes, keep, prefix=prefix)
    for _, note in reversed(names):
        if keep is None or keep.random() < 0.5:
            _take_name(Path(note.path), note, graves)
            undone += 1
    return undone


def _pending(notes: Path) -> tuple[dict[int, _Pending], _Pending]:
    """Return the unsynced writes of each file and the unsynced changes of names."""
    writes: dict[int, _Pending] = defaultdict(list)
    names: dict[str, _Pending] = defaultdict(list)
    for number, note in enumerate(read_notes(notes)):
        if note.kind == "write":
            writes[note.inode].append((number, note))
        elif note.kind == "sync":
            writes[note.inode] = _later(writes[note.inode], note.upto)
        elif note.kind == "names":
            names[note.path] = _later(names[note.path], note.upto)
        else:
            names[os.path.dirname(note.path)].append((number, note))
    order: Callable[[tuple[int, Note]], int] = lambda pair: pair[0]  # noqa: E731
    return writes, sorted((pair for some in names.values() for pair in some), key=order)


def _later(pending: _Pending, upto: int) -> _Pending:
    return [pair for pair in pending if pair[0] >= upto]


def _take_bytes(
    path: Path, changes: list[Note], keep: random.Random | None, *, prefix: bool
) -> int:
    """Undo changes of a file, the last one first; return how many."""
    kept: list[tuple[Note, bytes]] = []
    fd = os.open(path, os.O_RDWR)
    try:
        if keep is not None and (prefix or any(note.size == 0 for note in changes)):
            changes = changes[keep.randint(0, len(changes)) :]
        elif keep is not None:
            chosen = [note for note in changes if keep.random() < 0.5]
            # What a later write put over it stays too: as if the disk had taken that one as well.
            kept = [(note, os.pread(fd, note.size, note.offset)) for note in chosen]
        for note in reversed(changes):
            os.pwrite(fd, note.before, note.offset)
            os.ftruncate(fd, note.length)
        for note, data in kept:
            os.pwrite(fd, data, note.offset)
    finally:
        os.close(fd)
    return len(changes) - len(kept)


def _take_name(path: Path, note: Note, graves: Path) -> None:
    if note.kind == "made":
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    elif path.parent.is_dir() and not path.exists():
        if note.folder:
            path.mkdir(mode=0o700)
        else:
            os.link(graves / str(note.inode), path)
