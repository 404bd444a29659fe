"""The real disk, and a note of everything that is not known to survive a power cut.

An operation is noted in a file beside the root before it happens, a sync after it has returned; the
notes survive the death of the process. :mod:`.remains` reads them. Several processes may use one
file of notes after each other: what the first left unsynced is still unsynced for the next.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from interlock.backends.disk import OsDisk


class Note(msgspec.Struct, array_like=True, omit_defaults=True):
    """What happened to a file (``inode``) or to a name in a directory (``path``).

    ``write``: ``size`` bytes at ``offset`` (none: the file was cut there); the file was ``length``
    bytes long, and ``before`` is what stood there. ``made`` and ``gone``: a name, ``folder`` if it
    is a directory's. ``sync`` of a file and ``names`` of a directory: what was noted up to ``upto``
    is durable; ``place`` is who asked for it.
    """

    kind: Literal["write", "made", "gone", "sync", "names"]
    inode: int = 0
    offset: int = 0
    size: int = 0
    length: int = 0
    before: bytes = b""
    path: str = ""
    folder: bool = False
    place: str = ""
    upto: int = 0


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Note).decode


def read_notes(path: Path) -> Iterator[Note]:
    """Yield the notes in order; one that was being written when the process died does not count."""
    data = path.read_bytes() if path.exists() else b""
    position = 0
    while position + 4 <= len(data):
        end = position + 4 + int.from_bytes(data[position : position + 4], "little")
        if end > len(data):
            return
        yield _decode(data[position + 4 : end])
        position = end


class RecordingDisk(OsDisk):
    """The disk of a writer that is going to be killed.

    ``graves`` is a directory on the same file system that keeps removed files. ``without`` is the
    place of a sync that is left out, ``module:function:operation`` of who asks for it.

    With ``deadly`` the process and its host die soon after that many of these were left out:
    ``grace`` notes later or, where that is 0, at the next write to the file that was not synced.
    """

    def __init__(
        self, notes: Path, graves: Path, without: str = "", deadly: int = 0, grace: int = 0
    ) -> None:
        self._graves = graves
        self._without = without
        self._deadly = deadly
        self._grace = grace
        #: The file whose next write is the last, and the number of the note that is.
        self._doomed: int | None = None
        self._last: int | None = None
        self._mutex = threading.Lock()
        self._count = sum(1 for _ in read_notes(notes))
        self._fd = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        graves.mkdir(exist_ok=True)

    # What changes a file.

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        if not flags & os.O_CREAT:
            return super().open(path, flags, mode)
        with self._mutex:
            if not os.path.lexists(path):
                self._note(Note("made", path=str(path)))
            fd = super().open(path, flags & ~os.O_TRUNC, mode)
            if flags & os.O_TRUNC and (length := os.fstat(fd).st_size):
                self._change(fd, 0, 0, length)
                os.ftruncate(fd, 0)
            return fd

    def write(self, fd: int, data: memoryview) -> int:
        with self._mutex:
            # Every file that is written to without an offset is written at its end.
            self._change(fd, os.fstat(fd).st_size, len(data), 0)
            return super().write(fd, data)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        with self._mutex:
            self._change(fd, offset, len(data), len(data))
            written = super().pwrite(fd, data, offset)
            if self._doomed is not None and os.fstat(fd).st_ino == self._doomed:
                _die()
            return written

    def truncate(self, fd: int, length: int) -> None:
        with self._mutex:
            size = os.fstat(fd).st_size
            if size != length:
                self._change(fd, length, 0, size)
            super().truncate(fd, length)

    def _change(self, fd: int, offset: int, size: int, endangered: int) -> None:
        """Note a change with up to ``endangered`` bytes of what stands at ``offset``."""
        status = os.fstat(fd)
        before = b""
        if endangered and offset < status.st_size:
            try:
                before = os.pread(fd, endangered, offset)
            except OSError:
                # The descriptor is one that only writes.
                with open(f"/proc/self/fd/{fd}", "rb", buffering=0) as file:
                    before = os.pread(file.fileno(), endangered, offset)
        self._note(Note("write", status.st_ino, offset, size, status.st_size, before))

    # What changes a directory.

    def link(self, source: Path, target: Path) -> None:
        with self._mutex:
            self._note(Note("made", path=str(target)))
            super().link(source, target)

    def rename_noreplace(self, source: Path, target: Path) -> None:
        with self._mutex:
            self._bury(source)
            self._note(Note("made", path=str(target)))
            super().rename_noreplace(source, target)

    def unlink(self, path: Path) -> None:
        with self._mutex:
            self._bury(path)
            super().unlink(path)

    def mkdir(self, path: Path) -> None:
        with self._mutex:
            if not os.path.lexists(path):
                self._note(Note("made", path=str(path), folder=True))
            super().mkdir(path)

    def rmdir(self, path: Path) -> None:
        with self._mutex:
            self._note(Note("gone", path=str(path), folder=True))
            super().rmdir(path)

    def _bury(self, path: Path) -> None:
        inode = os.lstat(path).st_ino
        with suppress(FileExistsError):
            os.link(path, self._graves / str(inode))
        self._note(Note("gone", inode, path=str(path)))

    # What makes changes durable.

    def fsync(self, fd: int) -> None:
        place = _asked_by("fsync")
        if not self._left_out(place, fd):
            upto = self._now()
            os.fsync(fd)
            self._synced(fd, place, upto)

    def fdatasync(self, fd: int) -> None:
        place = _asked_by("fdatasync")
        if not self._left_out(place, fd):
            upto = self._now()
            os.fdatasync(fd)
            self._synced(fd, place, upto)

    def sync_directory(self, path: Path) -> None:
        place = _asked_by("sync_directory")
        if self._left_out(place, None):
            return
        upto = self._now()
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        with self._mutex:
            self._note(Note("names", path=str(path), place=place, upto=upto))

    def _left_out(self, place: str, fd: int | None) -> bool:
        if place != self._without:
            return False
        with self._mutex:
            self._deadly -= 1
            if self._deadly == 0 and self._grace:
                self._last = self._count + self._grace
            elif self._deadly == 0 and fd is not None:
                self._doomed = os.fstat(fd).st_ino
        return True

    def _synced(self, fd: int, place: str, upto: int) -> None:
        with self._mutex:
            self._note(Note("sync", os.fstat(fd).st_ino, place=place, upto=upto))

    def _now(self) -> int:
        # Only what had happened before the sync began is surely covered by it.
        with self._mutex:
            return self._count

    def _note(self, note: Note) -> None:
        data = _encode(note)
        os.write(self._fd, len(data).to_bytes(4, "little") + data)
        self._count += 1
        if self._count == self._last:
            _die()


def _die() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _asked_by(operation: str) -> str:
    frame = sys._getframe(2)
    module = frame.f_globals["__name__"].removeprefix("interlock.backends.")
    return f"{module}:{frame.f_code.co_name}:{operation}"
