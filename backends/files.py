"""Descriptors of many logs, and the steps that make a new file and its directories durable."""

from __future__ import annotations

import errno
import os
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .disk import Disk, write_all

if sys.platform != "win32":
    import resource

#: Data files kept open at a time, over all sessions of a backend: a quarter of the descriptors that
#: the process may have (each session has one for its lock besides), within these bounds. Opening
#: and closing a file for each batch costs more than writing it.
OPEN_FILES = (256, 2048)

_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS})


class _Entry:
    __slots__ = ("dropped", "fd", "users")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.users = 0
        #: Whether the last user closes it.
        self.dropped = False


class _Use:
    """A descriptor for as long as a ``with`` block lasts."""

    __slots__ = ("_cache", "_entry", "_path")

    def __init__(self, cache: FileCache, path: Path) -> None:
        self._cache, self._path = cache, path

    def __enter__(self) -> int:
        self._entry = self._cache.enter(self._path)
        return self._entry.fd

    def __exit__(self, *_error: object) -> None:
        self._cache.leave(self._entry)


class FileCache:
    """Open data files, the least recently used closed first. Safe to use from several threads.

    A file that is in use is never closed. What is closed holds nothing unsynced: a log syncs
    within one use.
    """

    def __init__(self, disk: Disk, limit: int | None = None) -> None:
        self._disk = disk
        self._limit = limit or _open_files()
        self._entries: OrderedDict[Path, _Entry] = OrderedDict()
        self._mutex = threading.Lock()

    def use(self, path: Path) -> _Use:
        """Give a descriptor of ``path``, opened to append; ``OSError`` if it cannot be opened.

        It is open within ``with``.
        """
        return _Use(self, path)

    def enter(self, path: Path) -> _Entry:
        """Begin to use a file."""
        with self._mutex:
            entry = self._entries.get(path)
            if entry is None:
                entry = _Entry(self._disk.open(path, os.O_RDWR | os.O_APPEND))
                self._entries[path] = entry
                self._shrink(entry)
            else:
                self._entries.move_to_end(path)
            entry.users += 1
        return entry

    def leave(self, entry: _Entry) -> None:
        """End a use."""
        with self._mutex:
            entry.users -= 1
            last = entry.dropped and not entry.users
        if last:
            self._disk.close(entry.fd)

    def drop(self, path: Path) -> None:
        """Close the file of ``path`` if it is open: now, or when nobody uses it any more.

        A log may be closed while another thread still syncs its file: the number of a descriptor
        that is closed under it could at once be another file's.
        """
        with self._mutex:
            entry = self._entries.pop(path, None)
        if entry is not None:
            self._let_go(entry)

    def close(self) -> None:
        """Close every file; those in use when nobody uses them any more."""
        with self._mutex:
            entries, self._entries = list(self._entries.values()), OrderedDict()
        for entry in entries:
            self._let_go(entry)

    def __len__(self) -> int:
        return len(self._entries)

    def _let_go(self, entry: _Entry) -> None:
        with self._mutex:
            entry.dropped = True
            unused = not entry.users
        if unused:
            self._disk.close(entry.fd)

    def _shrink(self, newest: _Entry) -> None:
        while len(self._entries) > self._limit:
            rest = (item for item in self._entries.items() if item[1] is not newest)
            idle = next((path for path, entry in rest if not entry.users), None)
            if idle is None:
                return
            self._disk.close(self._entries.pop(idle).fd)


def _open_files() -> int:
    low, high = OPEN_FILES
    if sys.platform == "win32":
        return low
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return high if allowed == resource.RLIM_INFINITY else min(high, max(low, allowed // 4))


def make_directories(directory: Path, disk: Disk) -> list[Path]:
    """Make ``directory`` and what is missing above it; return what was missing, topmost first."""
    missing: list[Path] = []
    while not _exists(directory, disk):
        missing.append(directory)
        if directory.parent == directory:
            break
        directory = directory.parent
    missing.reverse()
    for path in missing:
        # Another process may have made it meanwhile.
        with suppress(FileExistsError):
            disk.mkdir(path)
    return missing


class Temporary:
    """A file that is being written beside the name it will get. Left over, it is no log."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Create it in the directory of ``path``; ``OSError`` if that fails."""
        suffix = "".join(path.suffixes[-2:]) if path.suffix == ".zstd" else path.suffix
        self._target = path
        self._disk = disk
        self._path = path.with_name(f"session.create.{secrets.token_hex(8)}{suffix}.tmp")
        self._fd: int | None = disk.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)

    def reserve(self, length: int) -> None:
        """Set room aside for so many bytes; ``OSError`` if there is none."""
        self._disk.reserve(self._opened(), 0, length)

    def fill(self, content: bytes, *, durable: bool) -> os.stat_result:
        """Write the whole content and return the file's metadata; ``OSError`` if it fails."""
        fd = self._opened()
        write_all(self._disk, fd, content)
        if durable:
            self._disk.fsync(fd)
        return self._disk.fstat(fd)

    def publish(self) -> None:
        """Give the file its name, the commit point; ``FileExistsError`` if the name is taken."""
        self._close()
        give_name(self._path, self._target, self._disk)

    def forget(self) -> None:
        """Remove the temporary name, published or not."""
        self._close()
        with suppress(OSError):
            self._disk.unlink(self._path)

    def _opened(self) -> int:
        if self._fd is None:
            raise OSError(errno.EBADF, "the temporary file is closed", str(self._path))
        return self._fd

    def _close(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            self._disk.close(fd)


def publish(
    path: Path,
    content: bytes,
    disk: Disk,
    *,
    durable: bool,
    on_published: Callable[[os.stat_result], None],
) -> None:
    """Make ``path`` hold ``content``, all of it or nothing, without ever replacing a file (L7).

    The commit point is the hard link; ``on_published`` is called right after it with the file's
    metadata. The directory's own sync is the caller's. Raises ``FileExistsError`` if the name is
    taken and ``OSError`` for everything else; before the commit point nothing is left behind.
    """
    temporary = Temporary(path, disk)
    try:
        status = temporary.fill(content, durable=durable)
        temporary.publish()
        on_published(status)
    finally:
        temporary.forget()


def give_name(temporary: Path, path: Path, disk: Disk) -> None:
    """Give a finished temporary file its name, without ever replacing a file.

    Raises ``FileExistsError`` if the name is taken.
    """
    try:
        disk.link(temporary, path)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        try:
            disk.rename_noreplace(temporary, path)
        except FileExistsError:
            raise
        except OSError as second:
            raise OSError(
                second.errno or errno.ENOTSUP,
                "this file system has neither hard links nor a rename that refuses to replace, so "
                f"a log cannot be published safely on it ({error.strerror}; {second.strerror})",
            ) from second


def write_spill(directory: Path, seq: int, content: bytes, disk: Disk, *, durable: bool) -> None:
    """Write ``spill/<seq>`` and sync it. The sync of ``directory`` itself is the caller's.

    A file of that name can only be left over from an event that never became durable.
    """
    folder = directory / "spill"
    with suppress(FileExistsError):
        disk.mkdir(folder)
    fd = disk.open(folder / str(seq), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        write_all(disk, fd, content)
        if durable:
            disk.fsync(fd)
    finally:
        disk.close(fd)
    if durable:
        disk.sync_directory(folder)


def _exists(path: Path, disk: Disk) -> bool:
    try:
        disk.stat(path)
    except FileNotFoundError:
        return False
    return True
