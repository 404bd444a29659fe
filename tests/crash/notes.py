"""What the client was told, and whether a recovered disk keeps it (L1, L2, L6, L12, F8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

Lines = tuple[bytes, ...]


class Note(NamedTuple):
    """What the client knows of one session; replaced whenever it learns something."""

    directory: str
    #: The events that it appended, as rows, by seq.
    lines: Lines = ()
    #: The highest event that it was told is durable, and the highest that may be there at all.
    acknowledged: int = -1
    allowed: int = -1
    #: Whether it was told that the session exists.
    published: bool = False
    #: Spilled results, by the seq of their event.
    spills: Mapping[int, bytes] = {}
    #: Files that must stay as they are, byte for byte: older generations (L12).
    kept: Mapping[str, bytes] = {}


Notes = dict[str, Note]


class Outcome(NamedTuple):
    """What became of a disk: each session's events when opened, and what went wrong."""

    sessions: Mapping[str, Lines]
    faults: tuple[str, ...] = ()


def judge(
    notes: Mapping[str, Note], outcome: Outcome, tree: Mapping[str, bytes | None]
) -> list[str]:
    """Return what is wrong with a recovered disk, in words; nothing if nothing is."""
    faults = list(outcome.faults)
    faults += [f"{name}: nobody made this session" for name in set(outcome.sessions) - set(notes)]
    for name, note in notes.items():
        for fault in _faults(note, outcome.sessions.get(name), tree):
            faults.append(f"{name}: {fault}")
    return faults


def _faults(note: Note, found: Lines | None, tree: Mapping[str, bytes | None]) -> list[str]:
    faults: list[str] = []
    if found is None:
        if note.acknowledged >= 0 or note.published:
            faults.append(f"it is gone, and event {note.acknowledged} was acknowledged")
    else:
        last = len(found) - 1
        if last < note.acknowledged:
            faults.append(f"it ends at {last}, and event {note.acknowledged} was acknowledged")
        if last > note.allowed:
            faults.append(f"it ends at {last}, and everything behind {note.allowed} had failed")
        if found != note.lines[: len(found)]:
            faults.append("its events are no prefix of what was appended")
    for seq, content in note.spills.items():
        if seq <= note.acknowledged and tree.get(f"{note.directory}/spill/{seq}") != content:
            faults.append(f"the spilled result of event {seq} is gone or differs")
    for path, content in note.kept.items():
        if tree.get(path) != content:
            faults.append(f"{path} has changed")
    return faults
