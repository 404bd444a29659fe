"""Is everything there that was acknowledged? Asked of readers first, then of who opens to write."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

from interlock.backends.disk import OsDisk
from interlock.backends.errors import InterlockError
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_events
from interlock.backends.source import find_log
from interlock.backends.verify import NotALog, verify

from .client import digest
from .host import Acknowledged

#: A log's user messages: key and digest of each, None where another event stands.
_Stored = list[tuple[str, str] | None]


class UnsyncedDisk(OsDisk):
    """The real disk without its syncs: nothing is cut off any more, and a thousand sessions open
    sooner.
    """

    def fsync(self, fd: int) -> None:
        """Do nothing."""

    def fdatasync(self, fd: int) -> None:
        """Do nothing."""


def compare(
    root: Path, durability: Literal["journal", "file"], acknowledged: Acknowledged
) -> list[str]:
    """Open every session again; return what is missing, damaged or contradicts itself."""
    losses = list(_verified(root, acknowledged))
    view = JsonlBackend(root).view()
    backend = JsonlBackend(root, durability=durability, disk=UnsyncedDisk())
    for name, durable in acknowledged.durable.items():
        if durable < 0:
            continue
        try:
            seen = _stored(view, name)
            backend.open(name).close()
            found = _stored(backend, name)
        except (InterlockError, OSError) as error:
            losses.append(f"{name}: refused: {error}")
            continue
        if seen != found:
            losses.append(f"{name}: readers saw {len(seen)} events, a writer {len(found)}")
        losses += _missing(name, found, acknowledged)
    backend.close()
    return losses


def _verified(root: Path, acknowledged: Acknowledged) -> Iterator[str]:
    """Ask what ``interlock sessions verify`` reports."""
    durable = {name: seq for name, seq in acknowledged.durable.items() if seq >= 0}
    try:
        sessions = verify(root).sessions
    except NotALog:
        sessions = []
    last: dict[str, int] = {}
    for entry in sessions:
        name = entry["id"] or Path(entry["path"]).parent.name
        last[name] = entry["last_seq"]
        if entry["status"] not in ("ok", "repairable"):
            yield f"{name}: verify says {entry['status']}: {entry['message']}"
    for name, seq in durable.items():
        if last.get(name, -1) < seq:
            yield f"{name}: verify ends at event {last.get(name, -1)}, {seq} was acknowledged"


def _stored(backend: JsonlBackend, name: str) -> _Stored:
    """Return what a log holds; ``OSError`` where there is none, or it is not contiguous."""
    directory = backend.find(name)
    path = find_log(directory, backend.disk) if directory is not None else None
    if path is None:
        raise FileNotFoundError("there is no such session")
    stored: _Stored = []
    for event in read_events(path, disk=backend.disk):
        if event.seq != len(stored):
            raise OSError(f"event {event.seq} stands where {len(stored)} was due")
        text = event.data["content"][0]["text"] if event.type == "user/message" else None
        stored.append((text.split(" ")[0], digest(text)) if text is not None else None)
    return stored


def _missing(name: str, found: _Stored, acknowledged: Acknowledged) -> Iterator[str]:
    """Compare a log with what was acknowledged; the rest of it must be what was sent, in order."""
    durable = acknowledged.durable[name]
    if len(found) <= durable:
        yield f"{name}: ends at event {len(found) - 1}, event {durable} was acknowledged"
    for seq, expected in acknowledged.events[name].items():
        if seq < len(found) and found[seq] != expected:
            yield f"{name}: event {seq} is {found[seq]}, {expected} was acknowledged"
            break
    keys = [tuple(map(int, entry[0].split("."))) for entry in found if entry is not None]
    if any(one >= other for one, other in pairwise(keys)):
        yield f"{name}: its events are not in the order in which they were sent"
