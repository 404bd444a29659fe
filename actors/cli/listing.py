"""``sessions list``: what a root holds, by headers only, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.backends.codes import Code
from interlock.backends.disk import OsDisk
from interlock.backends.journal.overlay import OverlayDisk
from interlock.backends.jsonl import JsonlBackend, Listing
from interlock.backends.lock import held

from .choose import Choice
from .locate import label
from .output import Line, console, emit, moment, one_line, put, size

#: The column that is aligned to the right.
_SIZE = 2

_STATES = {None: "", Code.SESSION_FORMAT_UNSUPPORTED: "unsupported"}


@dataclass(frozen=True)
class Row:
    """One session of the list."""

    listing: Listing
    bytes: int | None
    modified_ms: int | None
    open: bool
    journal_pending: bool

    @property
    def created_at(self) -> int | None:
        """Creation time (ms), None where the header cannot be read."""
        return self.listing.header.created_at if self.listing.header else None

    @property
    def state(self) -> str:
        """``open`` for writing, bad in some way, or nothing worth a word."""
        if self.listing.code is not None:
            return _STATES.get(self.listing.code, "corrupt")
        return "open" if self.open else ""

    def to_json(self) -> dict[str, Any]:
        """Return the row as the command's JSON has it."""
        listing = self.listing
        return {
            "id": listing.header.id if listing.header else None,
            "path": str(listing.path or listing.directory),
            "created_at": self.created_at,
            "modified_at": self.modified_ms,
            "cwd": listing.header.cwd if listing.header else None,
            "bytes": self.bytes,
            "version": listing.version,
            "open": self.open,
            "journal_pending": self.journal_pending,
            "code": None if listing.code is None else str(listing.code),
            "message": listing.message,
        }


def rows(root: Path, choice: Choice, limit: int | None) -> tuple[list[Row], int]:
    """Return the chosen sessions of a root, newest first, at most ``limit``, and how many fit."""
    disk = OverlayDisk(root.absolute(), OsDisk())
    listings = list(JsonlBackend(root, disk=disk).list())
    listings.sort(key=_newest_first)
    if choice == Choice():
        return [_row(listing, disk) for listing in listings[:limit]], len(listings)
    fitting = [
        row
        for row in (_row(listing, disk) for listing in listings)
        if choice.in_time(row.modified_ms) and choice.in_log(row.listing, disk)
    ]
    return fitting[:limit], len(fitting)


def show_list(root: Path, choice: Choice, *, limit: int | None, as_json: bool) -> None:
    """Print the list; a bad session is one row of it and hides nothing (L17)."""
    found, total = rows(root, choice, limit)
    if as_json:
        emit({"root": str(root), "total": total, "sessions": [row.to_json() for row in found]})
        return
    out = console()
    if not found:
        what = "No sessions" if choice == Choice() else "No session like that"
        out.print(f"{what} under {root}.")
        return
    for line in _table(found):
        put(out, line)
    if len(found) < total:
        out.print(f"{total - len(found)} older ones are not shown (--limit).", style="dim")
    for row in found:
        if row.listing.message is not None:
            put(
                out,
                Line(0, f"{label(row.listing)}: {one_line(row.listing.message)}", "yellow", True),
            )


def _newest_first(listing: Listing) -> tuple[int, str]:
    # What has no readable header comes first: it wants to be seen.
    created = listing.header.created_at if listing.header else 2**63
    return (-created, str(listing.directory))


def _row(listing: Listing, disk: OverlayDisk) -> Row:
    try:
        status = disk.stat(listing.path or listing.directory)
    except OSError:
        return Row(listing, None, None, False, False)
    is_file = listing.path is not None
    return Row(
        listing,
        status.st_size if is_file else None,
        status.st_mtime_ns // 1_000_000,
        held(listing.directory, disk),
        listing.path is not None and disk.pending(listing.path),
    )


def _table(found: list[Row]) -> Iterator[Line]:
    """Yield the list as aligned lines, the first a heading; thousands of them cost little."""
    from rich.cells import cell_len

    cells = [("ID", "CREATED", "SIZE", "STATE", "CWD")]
    for row in found:
        created = "?" if row.created_at is None else moment(row.created_at, date=True)
        cwd = row.listing.header.cwd if row.listing.header else None
        bytes_ = "" if row.bytes is None else size(row.bytes)
        cells.append((label(row.listing), created, bytes_, row.state, one_line(cwd or "")))
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    styles = ["bold", *("yellow" if row.listing.code is not None else "" for row in found)]
    for line, style in zip(cells, styles, strict=True):
        blanks = [" " * (w - cell_len(text)) for text, w in zip(line, widths, strict=True)]
        name, created, bytes_, state, cwd = line
        yield Line(
            0,
            f"{name}{blanks[0]}  {created}{blanks[1]}  {blanks[_SIZE]}{bytes_}  "
            f"{state}{blanks[3]}  {cwd}",
            style,
            whole=True,
        )
