"""From what a person types to a log: an id, the beginning of one, a directory or a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from interlock.backends.codes import Code
from interlock.backends.disk import OsDisk
from interlock.backends.errors import SessionError
from interlock.backends.journal.overlay import OverlayDisk, overlay_for
from interlock.backends.jsonl import JsonlBackend, Listing
from interlock.backends.source import find_log

from .output import CommandFailed, one_line

#: Candidates that an ambiguous name lists.
SHOWN = 8


@dataclass(frozen=True)
class Found:
    """A log file, the session it should belong to where the name said so, and how it is read.

    ``disk`` is the real one with the journals of dead writers laid over it.
    """

    path: Path
    session_id: str | None
    disk: OverlayDisk

    @property
    def pending(self) -> bool:
        """Whether the file lacks what a dead writer's journal holds for it."""
        return self.disk.pending(self.path)

    @property
    def directory(self) -> Path:
        """The session's directory."""
        return self.path.parent

    @property
    def root(self) -> Path:
        """The root that the session's directory lies in (two levels up)."""
        return self.path.parent.parent.parent


def locate(name: str, root: Path) -> Found:
    """Return the log that ``name`` means, an exact id first.

    Raises :class:`CommandFailed` naming the candidates where it means several, ``SessionError``
    (``SESSION_NOT_FOUND``) where it means none.
    """
    disk = OverlayDisk(root.absolute(), OsDisk())
    backend = JsonlBackend(root, disk=disk)
    directory = backend.find(name)
    if directory is not None:
        path = find_log(directory, disk)
        if path is not None:
            return Found(path, name, disk)
    given = Path(name)
    if name and given.exists():
        return _at(given.absolute())
    return _beginning(name, root, list(backend.list()), disk)


def label(listing: Listing) -> str:
    """Return what to print for a session and to accept again: its id, or its directory's name."""
    if listing.header is None:
        return listing.directory.name
    shown = one_line(listing.header.id)
    return shown if shown == listing.header.id else listing.directory.name


def _at(path: Path) -> Found:
    disk = overlay_for(path, OsDisk())
    if not path.is_dir():
        return Found(path, None, disk)
    log = find_log(path, disk)
    if log is None:
        raise CommandFailed(f"{path}: no log in this directory", 2)
    return Found(log, None, disk)


def _beginning(name: str, root: Path, listings: list[Listing], disk: OverlayDisk) -> Found:
    matches = [
        listing
        for listing in listings
        if (listing.header is not None and listing.header.id.startswith(name))
        or listing.directory.name.startswith(name)
    ]
    exact = [listing for listing in matches if listing.directory.name == name]
    matches = exact or matches
    if not name or not matches:
        raise SessionError(
            Code.SESSION_NOT_FOUND,
            f"no session whose id is or begins with {name!r} under {root}; "
            "`interlock sessions list` shows them",
            session=name,
            root=str(root),
        )
    if len(matches) > 1:
        names = ", ".join(label(listing) for listing in matches[:SHOWN])
        more = f" and {len(matches) - SHOWN} more" if len(matches) > SHOWN else ""
        raise CommandFailed(f"{name!r} is the beginning of several sessions: {names}{more}", 2)
    found = matches[0]
    if found.path is None:
        raise SessionError(
            found.code or Code.SESSION_CORRUPT, found.message or f"{found.directory}: unreadable"
        )
    return Found(found.path, found.header.id if found.header else None, disk)
