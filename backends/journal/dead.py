"""Journals whose writers are gone: found by their free locks, read once, kept until tidied away."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

from ..disk import Disk, write_all
from ..files import publish
from .contents import Contents, read_contents, read_done, read_place
from .names import ALL, DONE, LOCK, TAIL, is_writer, journals_directory, parse_epoch


class DeadJournals:
    """The dead writers' journals under one root. One thread at a time.

    A writer holds its lock exclusively as long as it lives. Who replays takes it shared: that
    proves that the writer is gone and lets others replay other sessions of the same journal.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        self._root = root
        self._directory = journals_directory(root)
        self._disk = disk
        self._known: dict[str, Contents] = {}
        #: Journals whose lock never reached the disk: their writers got no further than that.
        self._stillborn: set[Path] = set()
        #: Journals of which nothing that was read can be lost any more.
        self._kept: set[str] = set()

    def refresh(self) -> None:
        """Look for writers that have gone; ``OSError`` if a journal of one cannot be read."""
        try:
            names = [name for name in self._disk.listdir(self._directory) if is_writer(name)]
        except (FileNotFoundError, NotADirectoryError):
            names = []
        self._known = {name: found for name, found in self._known.items() if name in names}
        self._stillborn.clear()
        for name in names:
            if name not in self._known:
                self._look(self._directory / name)

    def tidy(self) -> None:
        """Remove the journals that nobody needs any more; what cannot be removed stays."""
        for contents in list(self._known.values()):
            if not contents.open_paths and contents.fault is None:
                with suppress(OSError):
                    self._remove(contents.directory)
        for directory in self._stillborn:
            with suppress(OSError):
                self._remove(directory)

    def naming(self, directory: Path) -> list[tuple[Contents, str]]:
        """Return the journals that name a log in a session's directory, with its path in them."""
        prefix = directory.relative_to(self._root).as_posix() + "/"
        return [
            (contents, path)
            for contents in self._known.values()
            for path in contents.open_paths
            if path.startswith(prefix)
        ]

    def directories(self) -> set[Path]:
        """Return the session directories that dead journals name."""
        return {
            self._root / Path(path).parent
            for contents in self._known.values()
            for path in contents.open_paths
        }

    def keep(self, contents: Contents) -> None:
        """Make what was read of a journal durable, before any of it goes into a session's file.

        Its last record may be in the page cache only: the writer died before syncing it, or of a
        failed sync, after which no other brings it to the disk. A copy of it is made, beside the
        journal: writing it again where it stands could damage what was acknowledged. ``OSError``
        if that fails.
        """
        name, last = contents.directory.name, contents.last
        if name in self._kept or last is None:
            return
        tail = contents.directory / TAIL
        if last.path != tail:
            # Who made the copy before may have died before the name of it was durable.
            with suppress(FileExistsError):
                data = read_place(last, self._disk)
                publish(tail, data, self._disk, durable=True, on_published=lambda _: None)
        self._disk.sync_directory(contents.directory)
        self._kept.add(name)

    def done(self, contents: Contents, path: str) -> None:
        """Note durably that a log is mended; with the last one the journal goes.

        ``OSError`` if that cannot be noted: it is then looked at again another time.
        """
        if contents.directory.name not in self._known:
            return
        self._note(contents.directory, path)
        # Others may have mended sessions of it meanwhile; a dead journal's records never change.
        done = read_done(contents.directory, self._disk)
        entries = {} if ALL in done else contents.entries
        known = msgspec.structs.replace(contents, entries=entries, done=done)
        self._known[contents.directory.name] = known
        if not known.open_paths and known.fault is None:
            self._remove(contents.directory)

    def _remove(self, directory: Path) -> None:
        """Void a journal that nobody needs, then remove it; in whatever order its files go."""
        fd = self._disk.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not self._disk.lock(fd):
                return
            self._note(directory, ALL)
            for name in self._disk.listdir(directory):
                if name not in (DONE, LOCK):
                    self._disk.unlink(directory / name)
            # The line in `done` must not go before the last epoch.
            self._disk.sync_directory(directory)
            for name in (DONE, LOCK):
                with suppress(FileNotFoundError):
                    self._disk.unlink(directory / name)
            self._disk.rmdir(directory)
        finally:
            self._disk.close(fd)
        self._known.pop(directory.name, None)

    def _note(self, directory: Path, line: str) -> None:
        fd = self._disk.open(directory / DONE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # A crash may have torn the line before: this one must not become its end.
            write_all(self._disk, fd, b"\n" + line.encode() + b"\n")
            self._disk.fsync(fd)
        finally:
            self._disk.close(fd)
        self._disk.sync_directory(directory)

    def _look(self, directory: Path) -> None:
        """Take in the journal of a writer, if that is gone."""
        try:
            fd = self._disk.open(directory / LOCK, os.O_RDONLY)
        except FileNotFoundError:
            # Being made at this moment, or tidied away; and with an epoch, but no lock, it was
            # being made when the power went. A writer has its lock on disk before its first record.
            if self._has_epoch(directory):
                self._stillborn.add(directory)
            return
        try:
            if not self._disk.lock(fd, exclusive=False):
                return
            # A free lock without an epoch may be that of a writer which is just starting.
            if self._has_epoch(directory):
                self._known[directory.name] = read_contents(directory, self._disk)
        finally:
            self._disk.close(fd)

    def _has_epoch(self, directory: Path) -> bool:
        try:
            names = self._disk.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return any(parse_epoch(name) is not None for name in names)
