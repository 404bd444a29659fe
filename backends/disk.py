"""The one seam between Interlock's logs and a real disk.

Every file operation of this package goes through a :class:`Disk`, so that tests can fail, shorten
or record any of them. Paths are absolute; descriptors are plain integers; errors are ``OSError``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from functools import cache
from pathlib import Path
from typing import Protocol

if sys.platform != "win32":
    import fcntl

#: renameat2(2) flag: fail instead of replacing what is there.
_RENAME_NOREPLACE = 1
_AT_FDCWD = -100

#: fallocate(2) flag: leave the file's length alone.
_FALLOC_KEEP_SIZE = 1

#: fcntl(2) on macOS: fsync there leaves the data in the drive's cache.
_F_FULLFSYNC = 51


class Disk(Protocol):
    """What the log asks of a file system. Each method may be called from any thread."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        """Open as ``os.open`` does, with ``O_CLOEXEC`` added."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Read up to ``length`` bytes at ``offset``; fewer at the end of the file."""

    def write(self, fd: int, data: memoryview) -> int:
        """Write at the descriptor's position (its end, when opened to append); may be short."""

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        """Write at ``offset`` of a file that was not opened to append; may be short."""

    def reserve(self, fd: int, offset: int, length: int) -> None:
        """Set room aside for these bytes and leave the file's length alone.

        ``OSError`` where there is no room; nothing happens where the file system cannot reserve.
        """

    def fsync(self, fd: int) -> None:
        """Make a file's bytes and metadata, or a directory's entries, survive power loss."""

    def fdatasync(self, fd: int) -> None:
        """Make a file's bytes and its length survive power loss."""

    def truncate(self, fd: int, length: int) -> None:
        """Set the file's length in bytes."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; ``FileExistsError`` if that name is taken."""

    def rename_noreplace(self, source: Path, target: Path) -> None:
        """Rename; ``FileExistsError`` if the target exists, ``ENOTSUP`` where that is not known."""

    def unlink(self, path: Path) -> None:
        """Remove a name. Used for Interlock's own temporary names only (L13)."""

    def mkdir(self, path: Path) -> None:
        """Make one directory, mode 0700."""

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory. Used for a journal's own directory only (L13)."""

    def sync_directory(self, path: Path) -> None:
        """Make a directory's entries survive power loss."""

    def listdir(self, path: Path) -> list[str]:
        """Return the names in a directory, unsorted."""

    def stat(self, path: Path) -> os.stat_result:
        """Return the metadata of what ``path`` leads to."""

    def fstat(self, fd: int) -> os.stat_result:
        """Return the metadata of an open file."""

    def lock(self, fd: int, *, exclusive: bool = True) -> bool:
        """Try to take ``flock(2)`` without waiting; False if someone else holds it."""

    def unlock(self, fd: int) -> None:
        """Give the lock back."""

    def statvfs(self, path: Path) -> os.statvfs_result:
        """Return what is free on the file system under ``path``."""


class OsDisk:
    """The real disk."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), mode)

    def close(self, fd: int) -> None:
        os.close(fd)

    if sys.platform == "win32":

        def pread(self, fd: int, length: int, offset: int) -> bytes:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, length)
    else:

        def pread(self, fd: int, length: int, offset: int) -> bytes:
            return os.pread(fd, length, offset)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    if sys.platform == "win32":

        def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
            os.lseek(fd, offset, os.SEEK_SET)
            return os.write(fd, data)
    else:

        def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
            return os.pwrite(fd, data, offset)

    def reserve(self, fd: int, offset: int, length: int) -> None:
        fallocate = _fallocate()
        if fallocate is None:
            return
        if fallocate(fd, _FALLOC_KEEP_SIZE, offset, length):
            code = ctypes.get_errno()
            if code not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise OSError(code, os.strerror(code))

    if sys.platform == "darwin":

        def fsync(self, fd: int) -> None:
            fcntl.fcntl(fd, _F_FULLFSYNC)

        def fdatasync(self, fd: int) -> None:
            fcntl.fcntl(fd, _F_FULLFSYNC)
    else:

        def fsync(self, fd: int) -> None:
            os.fsync(fd)

        def fdatasync(self, fd: int) -> None:
            os.fdatasync(fd)

    def truncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)

    def rename_noreplace(self, source: Path, target: Path) -> None:
        renameat2 = _renameat2()
        if renameat2 is None:
            raise OSError(errno.ENOTSUP, "this system cannot rename without replacing")
        failed = renameat2(
            _AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE
        )
        if failed:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(target))

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path, 0o700)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)

    def sync_directory(self, path: Path) -> None:
        fd = self.open(path, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
        try:
            self.fsync(fd)
        finally:
            os.close(fd)

    def listdir(self, path: Path) -> list[str]:
        return os.listdir(path)

    def stat(self, path: Path) -> os.stat_result:
        return os.stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    if sys.platform == "win32":

        def lock(self, fd: int, *, exclusive: bool = True) -> bool:
            raise OSError(errno.ENOTSUP, "no flock on Windows")

        def unlock(self, fd: int) -> None:
            raise OSError(errno.ENOTSUP, "no flock on Windows")
    else:

        def lock(self, fd: int, *, exclusive: bool = True) -> bool:
            how = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
            try:
                fcntl.flock(fd, how | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        def unlock(self, fd: int) -> None:
            fcntl.flock(fd, fcntl.LOCK_UN)

    def statvfs(self, path: Path) -> os.statvfs_result:
        return os.statvfs(path)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write every byte of ``data``, going on after short writes (L18); ``OSError`` if it fails."""
    rest = memoryview(data)
    while rest:
        written = disk.write(fd, rest)
        if written <= 0:
            raise OSError(errno.EIO, "the disk took no more bytes and gave no reason")
        rest = rest[written:]


def pwrite_all(disk: Disk, fd: int, data: bytes, offset: int) -> None:
    """Write every byte of ``data`` at ``offset``, going on after short writes (L18)."""
    rest = memoryview(data)
    while rest:
        written = disk.pwrite(fd, rest, offset)
        if written <= 0:
            raise OSError(errno.EIO, "the disk took no more bytes and gave no reason")
        rest = rest[written:]
        offset += written


@cache
def _fallocate() -> ctypes._NamedFuncPointer | None:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return function


@cache
def _renameat2() -> ctypes._NamedFuncPointer | None:
    if not sys.platform.startswith("linux"):
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        function.argtypes = [
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_int,
            ctypes.c_char_p,
            ctypes.c_uint,
        ]
    return function
