"""Dead journals laid over the disk in memory, for readers: they change nothing (L12, storage)."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from ..disk import Disk
from ..errors import SessionError
from ..paths import parse_log_name
from .contents import Contents
from .dead import DeadJournals
from .image import runs
from .names import journals_directory
from .replay import in_order, missing, refuse_damaged

_FILE_MODE = 0o100600


class _Pieces:
    """A file with what it lacks: pieces by offset, and its length with them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pieces: list[tuple[int, bytes]] = []

    def add(self, offset: int, data: bytes) -> None:
        self.pieces.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def lay(self, under: bytes, length: int, offset: int) -> bytes:
        """Return what a read of ``length`` bytes at ``offset`` gives, with ``under`` the file's."""
        length = max(0, min(length, self.size - offset))
        view = bytearray(under[:length].ljust(length, b"\0"))
        for start, data in self.pieces:
            begin, end = max(start, offset), min(start + len(data), offset + length)
            if begin < end:
                view[begin - offset : end - offset] = data[begin - start : end - start]
        return bytes(view)


def overlay_for(path: Path, disk: Disk) -> OverlayDisk:
    """Return an overlay for whatever ``path`` is: a root, a session's directory or a log."""
    for root in (path, *path.parents[:3]):
        if _is_directory(journals_directory(root), disk):
            return OverlayDisk(root, disk)
    return OverlayDisk(path, disk)


class OverlayDisk:
    """A disk to read from, on which every log has what dead journals hold for it.

    ``pending`` tells which logs differ from what their files hold. Opening one whose journal is
    damaged or that something else has changed raises the ``SessionError`` that opening it to write
    would. Nothing can be written. Make a new one to see a new state; one thread.
    """

    def __init__(self, root: Path, disk: Disk) -> None:
        self._disk = disk
        self._root = root
        self._laid: dict[Path, _Pieces | SessionError] = {}
        self._new: dict[Path, set[str]] = {}
        self._open: dict[int, _Pieces] = {}
        dead = DeadJournals(root, disk)
        try:
            dead.refresh()
        except OSError:
            # A journal that cannot be read takes nothing away from what can (L17).
            return
        for directory in dead.directories():
            self._lay(in_order(dead.naming(directory)))

    def pending_in(self, directory: Path) -> bool:
        """Tell whether a session's directory has a log in a dead journal only."""
        return any(parse_log_name(name) for name in self._new.get(directory, ()))

    def pending(self, path: Path) -> bool:
        """Tell whether a log's file lacks what a dead journal holds for it."""
        return path in self._laid

    def _lay(self, found: list[tuple[Contents, str]]) -> None:
        for contents, name in found:
            path = self._root / name
            try:
                refuse_damaged(contents, path)
                for run in runs(contents.entries[name]):
                    lacking = missing(path, run, contents, self)
                    if lacking is not None:
                        self._add(path, lacking.offset, lacking.data, new=lacking.make)
            except SessionError as error:
                self._laid[path] = error
            except OSError:
                continue

    def _add(self, path: Path, offset: int, data: bytes, *, new: bool) -> None:
        laid = self._laid.get(path)
        if not isinstance(laid, _Pieces):
            laid = _Pieces(0 if new else self._disk.stat(path).st_size)
            self._laid[path] = laid
        laid.add(offset, data)
        if new:
            while path != self._root:
                self._new.setdefault(path.parent, set()).add(path.name)
                path = path.parent

    # What readers use.

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise _read_only(path)
        laid = self._laid.get(path)
        if isinstance(laid, SessionError):
            raise laid
        try:
            fd = self._disk.open(path, flags, mode)
        except FileNotFoundError:
            if laid is None:
                raise
            # Any descriptor will do to stand for a file that is not there yet.
            fd = self._disk.open(self._root, os.O_RDONLY)
            self._open[fd] = laid
            return fd
        if laid is not None:
            self._open[fd] = laid
        return fd

    def close(self, fd: int) -> None:
        self._open.pop(fd, None)
        self._disk.close(fd)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        laid = self._open.get(fd)
        if laid is None:
            return self._disk.pread(fd, length, offset)
        under = b"" if self._stands_in(fd) else self._disk.pread(fd, length, offset)
        return laid.lay(under, length, offset)

    def listdir(self, path: Path) -> list[str]:
        new = self._new.get(path, set())
        try:
            names = self._disk.listdir(path)
        except FileNotFoundError:
            if not new:
                raise
            names = []
        return [*names, *sorted(new.difference(names))]

    def stat(self, path: Path) -> os.stat_result:
        laid = self._laid.get(path)
        try:
            status = self._disk.stat(path)
        except FileNotFoundError:
            if path in self._new:
                return self._disk.stat(self._root)
            if not isinstance(laid, _Pieces):
                raise
            return _resized(self._disk.stat(self._root), laid.size, new=True)
        return _resized(status, laid.size) if isinstance(laid, _Pieces) else status

    def fstat(self, fd: int) -> os.stat_result:
        status = self._disk.fstat(fd)
        laid = self._open.get(fd)
        return status if laid is None else _resized(status, laid.size, new=self._stands_in(fd))

    def lock(self, fd: int, *, exclusive: bool = True) -> bool:
        return self._disk.lock(fd, exclusive=exclusive)

    def unlock(self, fd: int) -> None:
        self._disk.unlock(fd)

    def statvfs(self, path: Path) -> os.statvfs_result:
        return self._disk.statvfs(path)

    def _stands_in(self, fd: int) -> bool:
        return stat.S_ISDIR(self._disk.fstat(fd).st_mode)

    # What readers never do.

    def write(self, fd: int, data: memoryview) -> int:
        raise _read_only(self._root)

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        raise _read_only(self._root)

    def reserve(self, fd: int, offset: int, length: int) -> None:
        raise _read_only(self._root)

    def fsync(self, fd: int) -> None:
        raise _read_only(self._root)

    def fdatasync(self, fd: int) -> None:
        raise _read_only(self._root)

    def truncate(self, fd: int, length: int) -> None:
        raise _read_only(self._root)

    def link(self, source: Path, target: Path) -> None:
        raise _read_only(target)

    def rename_noreplace(self, source: Path, target: Path) -> None:
        raise _read_only(target)

    def unlink(self, path: Path) -> None:
        raise _read_only(path)

    def mkdir(self, path: Path) -> None:
        raise _read_only(path)

    def rmdir(self, path: Path) -> None:
        raise _read_only(path)

    def sync_directory(self, path: Path) -> None:
        raise _read_only(path)


def _read_only(path: Path) -> OSError:
    return OSError(errno.EROFS, "this view of the disk is for reading only", str(path))


def _resized(status: os.stat_result, size: int, *, new: bool = False) -> os.stat_result:
    fields = list(status)
    fields[stat.ST_SIZE] = size
    if new:
        fields[stat.ST_MODE] = _FILE_MODE
    exact = {name: getattr(status, name) for name in ("st_atime_ns", "st_mtime_ns", "st_ctime_ns")}
    return os.stat_result(fields, exact)


def _is_directory(path: Path, disk: Disk) -> bool:
    try:
        return stat.S_ISDIR(disk.stat(path).st_mode)
    except OSError:
        return False
