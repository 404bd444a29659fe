"""The real disk, and a note of everything that is not known to survive a power cut.

Each operation is noted in a file beside the root before it happens, each sync after it has
returned; both survive the death of the process. :mod:`.remains` reads the notes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

import msgspec
from interlock.backends.disk import OsDisk

_encode = msgspec.msgpack.Encoder().encode


class Note(msgspec.Struct, array_like=True, omit_defaults=True):
    """What happened to a file (``inode``) or to a name in a directory.

    ``kind``: ``write`` (``before`` is what stood at ``offset``, ``length`` the file's length),
    ``sync`` (everything noted up to ``upto`` is durable), ``name``, ``names`` (a directory's sync).
    """

    kind: str
    inode: int = 0
    offset: int = 0
    length: int = 0
    before: bytes = b""
    path: str = ""
    upto: int = 0


class RecordingDisk(OsDisk):
    """``without`` is the place of one sync that is left out: ``module:function`` of its caller.

    ``deadly``: some write to the same file after that is the last thing that this process and its
    host do, once the file at that path has grown to ``after`` bytes.
    """

    def __init__(
        self, notes: Path, without: str = "", deadly: Path | None = None, after: int = 0
    ) -> None:
        self._deadly, self._after = deadly, after
        self._armed: int | None = None
        self._fd = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._without = without
        self._mutex = threading.Lock()
        self._count = 0
        self.places: set[str] = set()

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        if not flags & os.O_CREAT:
            return super().open(path, flags, mode)
        with self._mutex:
            if not os.path.lexists(path):
                self._note(Note("name", path=str(path)))
            fd = super().open(path, flags & ~os.O_TRUNC, mode)
            if flags & os.O_TRUNC:
                self._change(fd, 0, 0)
                os.ftruncate(fd, 0)
            return fd

    def write(self, fd: int, data: memoryview) -> int:
        with self._mutex:
            # Every file that is written to without an offset is written at its end.
            self._change(fd, os.fstat(fd).st_size, len(data))
            return super().write(fd, data)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        with self._mutex:
            self._change(fd, offset, len(data))
            written = super().pwrite(fd, data, offset)
            if os.fstat(fd).st_ino == self._armed:
                self._die()
            return written

    def truncate(self, fd: int, length: int) -> None:
        with self._mutex:
            size = os.fstat(fd).st_size
            if size != length:
                self._change(fd, length, size - length)
            super().truncate(fd, length)

    def link(self, source: Path, target: Path) -> None:
        with self._mutex:
            self._note(Note("name", path=str(target)))
            super().link(source, target)

    def rename_noreplace(self, source: Path, target: Path) -> None:
        with self._mutex:
            self._note(Note("name", path=str(target)))
            super().rename_noreplace(source, target)

    def mkdir(self, path: Path) -> None:
        with self._mutex:
            if not path.exists():
                self._note(Note("name", path=str(path)))
            super().mkdir(path)

    def fsync(self, fd: int) -> None:
        if self._left_out(fd):
            return
        upto = self._now()
        super().fsync(fd)
        self._synced(fd, upto)

    def fdatasync(self, fd: int) -> None:
        if self._left_out(fd):
            return
        upto = self._now()
        super().fdatasync(fd)
        self._synced(fd, upto)

    def sync_directory(self, path: Path) -> None:
        if self._left_out():
            return
        upto = self._now()
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        with self._mutex:
            self._note(Note("names", path=str(path), upto=upto))

    def _left_out(self, fd: int | None = None) -> bool:
        frame = sys._getframe(2)
        place = f"{frame.f_globals['__name__'].removeprefix('interlock.')}:{frame.f_code.co_name}"
        if place not in self.places:
            self.places.add(place)
            with self._mutex:
                self._note(Note("place", path=place))
        if place != self._without:
            return False
        if fd is not None and self._deadly is not None:
            noted = self._deadly.stat().st_size if self._deadly.exists() else 0
            self._armed = os.fstat(fd).st_ino if noted >= self._after else None
        return True

    def _die(self) -> None:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def _change(self, fd: int, offset: int, length: int) -> None:
        status = os.fstat(fd)
        before = b""
        if offset < status.st_size:
            # The descriptor may be one that only writes.
            with open(f"/proc/self/fd/{fd}", "rb", buffering=0) as file:
                before = os.pread(file.fileno(), length, offset)
        self._note(Note("write", status.st_ino, offset, status.st_size, before))

    def _synced(self, fd: int, upto: int) -> None:
        with self._mutex:
            self._note(Note("sync", os.fstat(fd).st_ino, upto=upto))

    def _now(self) -> int:
        with self._mutex:
            return self._count

    def _note(self, note: Note) -> None:
        data = _encode(note)
        os.write(self._fd, len(data).to_bytes(4, "little") + data)
        self._count += 1
