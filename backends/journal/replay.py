"""Replay: one log gets what dead journals say it lacks, under its lock, before it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

from ..codes import Code
from ..disk import Disk, pwrite_all
from ..errors import SessionError
from ..files import publish
from ..source import LogFile
from .contents import Contents
from .dead import DeadJournals
from .image import ConflictError, Patch, Run, Standing, patch, runs
from .record import digest


def replay(directory: Path, root: Path, dead: DeadJournals, disk: Disk) -> None:
    """Mend the log of a session whose lock the caller holds; every step may be done again.

    Raises ``SessionError``: ``SESSION_SOURCE_CHANGED`` if something else has written where
    journaled events belong (nothing is overwritten and the journal is kept), ``SESSION_CORRUPT``
    where the disk lost a part of the journal; ``OSError`` if the disk fails.
    """
    for contents, path in in_order(dead.naming(directory)):
        refuse_damaged(contents, root / path)
        dead.keep(contents)
        found = runs(contents.entries[path])
        for run in found:
            _mend(root / path, run, contents, disk)
        _sync(root, root / path, disk)
        try:
            dead.done(contents, path)
        except OSError:
            # Without the mark it is looked at again, and finds the same, unless its writer died
            # within a batch of several records: that end is about to be cut off and written over.
            if not found[-1].is_whole:
                raise


def in_order(found: list[tuple[Contents, str]]) -> list[tuple[Contents, str]]:
    """Return journals in the order in which their writers had the log: by offset."""
    return sorted(found, key=lambda pair: pair[0].entries[pair[1]][0].offset)


def refuse_damaged(contents: Contents, path: Path) -> None:
    """Refuse a log whose journal has lost a durable record."""
    if contents.fault is not None:
        raise SessionError(
            Code.SESSION_CORRUPT,
            f"{path}: events that were acknowledged may be missing: {contents.fault}. Nothing was "
            "changed; restore the journal from a copy, or move its directory away to go on "
            "without what it held",
            file=str(path),
            journal=str(contents.directory),
            frame=None,
            offset=None,
            last_good_seq=-1,
        )


def conflict(path: Path, contents: Contents, cause: ConflictError) -> NoReturn:
    """Refuse a log that something else has changed."""
    raise SessionError(
        Code.SESSION_SOURCE_CHANGED,
        f"{path}: something else changed it after a crash of its writer: {cause}. Nothing was "
        f"overwritten, and the journal {contents.directory} keeps the acknowledged events; find "
        "the other program, or move the journal's directory away to go on without them",
        file=str(path),
        journal=str(contents.directory),
        closed=True,
    ) from cause


def standing(path: Path, disk: Disk, fd: int) -> Standing:
    """Return a view of an open file for :func:`~.image.patch`."""

    def header() -> bytes | None:
        try:
            with LogFile(path, disk) as file:
                return digest(file.header_line())
        except SessionError:
            return None

    def read(offset: int, length: int) -> bytes:
        parts: list[bytes] = []
        while length > 0:
            part = disk.pread(fd, length, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            length -= len(part)
        return b"".join(parts)

    return Standing(disk.fstat(fd).st_size, read, header)


def missing(path: Path, run: Run, contents: Contents, disk: Disk) -> Patch | None:
    """Return what a file lacks of a run; raises as :func:`replay`."""
    compressed = path.name.endswith(".zstd")
    try:
        try:
            fd = disk.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return patch(run, None, compressed=compressed)
        try:
            return patch(run, standing(path, disk, fd), compressed=compressed)
        finally:
            disk.close(fd)
    except ConflictError as cause:
        conflict(path, contents, cause)


def _mend(path: Path, run: Run, contents: Contents, disk: Disk) -> None:
    lacking = missing(path, run, contents, disk)
    if lacking is not None and lacking.make:
        publish(path, lacking.data, disk, durable=True, on_published=lambda _: None)
        return
    fd = disk.open(path, os.O_RDWR)
    try:
        # L6: also what seems to be there. The writer may have died of a failed sync, and then the
        # page cache shows bytes that no further sync would bring to the disk.
        pwrite_all(disk, fd, run.data, run.offset)
    finally:
        disk.close(fd)


def _sync(root: Path, path: Path, disk: Disk) -> None:
    """Make the file and its names durable; what stood there may be in the page cache only."""
    fd = disk.open(path, os.O_RDWR)
    try:
        disk.fsync(fd)
    finally:
        disk.close(fd)
    for directory in (root, path.parent.parent, path.parent):
        disk.sync_directory(directory)
