"""A machine whose files are in memory: page cache, platter, processes that open files and die.

What programs see is the page cache. Beside it each file knows what is surely on the platter
(``durable``) and what changed since (``pending``); each directory likewise. :mod:`.cut` makes of
that the disks which a power cut could leave.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple, NoReturn

#: Bytes of a disk that is never full.
_ROOM = 1 << 40
_WRITES = os.O_WRONLY | os.O_RDWR
_DEVICE = 7


class Killed(BaseException):
    """The process ends here; nothing of it runs any more."""


class Write(NamedTuple):
    """Bytes that went to a place in a file."""

    offset: int
    data: bytes


class Truncate(NamedTuple):
    """A file that got another length, in bytes."""

    length: int


Change = Write | Truncate


class Entry(NamedTuple):
    """A name that leads to something else since the directory's last sync, or (None) to nothing.

    ``renamed`` is the new name, where this one goes because its file was renamed.
    """

    name: str
    node: File | Directory | None
    renamed: str | None = None


class File:
    """An inode. ``pending`` is replaced at each sync, and only ever grows in between."""

    __slots__ = ("data", "durable", "lockers", "number", "pending", "shared", "stamp")

    def __init__(self, number: int, content: bytes = b"") -> None:
        self.number = number
        #: The page cache: bytes until the first write to it.
        self.data: bytes | bytearray = content
        self.durable = content
        self.pending: list[Change] = []
        self.stamp = 1
        self.lockers: set[_Open] = set()
        self.shared = False


class Directory:
    """A directory. ``durable`` and ``pending`` are replaced at each sync."""

    __slots__ = ("durable", "entries", "number", "pending")

    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: dict[str, File | Directory] = {}
        self.durable: dict[str, File | Directory] = {}
        self.pending: list[Entry] = []


class _Open:
    """An open file description."""

    __slots__ = ("append", "node", "path", "position", "writable")

    def __init__(self, node: File | Directory, path: str, flags: int) -> None:
        self.node = node
        self.path = path
        self.position = 0
        self.append = bool(flags & os.O_APPEND)
        self.writable = bool(flags & _WRITES)


def applied(content: bytes, changes: list[Change]) -> bytes:
    """Return a file's content after changes, all of them, in order."""
    if not changes:
        return content
    data = bytearray(content)
    for change in changes:
        apply(data, change)
    return bytes(data)


def apply(data: bytearray, change: Change) -> None:
    """Change a file's content."""
    if isinstance(change, Truncate):
        del data[change.length :]
        data.extend(bytes(change.length - len(data)))
    else:
        offset, written = change
        if offset > len(data):
            data.extend(bytes(offset - len(data)))
        data[offset : offset + len(written)] = written


class Machine:
    """Files in memory, with a place to watch every operation that changes or syncs something."""

    def __init__(self) -> None:
        self._numbers = 1
        self._clock = 1
        self.root = Directory(1)
        self.files: list[File] = []
        self.directories: list[Directory] = [self.root]
        #: Called before each operation that changes or syncs, with its name and the file's.
        self.watch: Callable[[Process, str, str], None] | None = None
        #: Called before each sync; False makes it do nothing, as if it were not in the program.
        self.wanted: Callable[[str], bool] | None = None
        #: How much of what a failing sync was about reached the platter (see `Process.fail`).
        self.survivors: Callable[[File], bytes] = lambda file: file.durable
        self.changes = 0

    @classmethod
    def of(cls, tree: Mapping[str, bytes | None]) -> Machine:
        """Return a machine with these files and (None) directories, all durable."""
        machine = cls()
        for path, content in tree.items():
            *above, name = path.strip("/").split("/")
            at = machine.root
            for part in above:
                at = machine._descend(at, part)
            if content is None:
                machine._descend(at, name)
            else:
                file = machine.new_file(content)
                at.entries[name] = at.durable[name] = file
        return machine

    def process(self) -> Process:
        """Start a process."""
        return Process(self)

    def tree(self) -> dict[str, bytes | None]:
        """Return what programs see, by path: a file's bytes, None for a directory."""
        found: dict[str, bytes | None] = {}

        def walk(directory: Directory, prefix: str) -> None:
            for name, node in directory.entries.items():
                if isinstance(node, File):
                    found[prefix + name] = bytes(node.data)
                else:
                    found[prefix + name] = None
                    walk(node, f"{prefix}{name}/")

        walk(self.root, "/")
        return found

    def new_file(self, content: bytes = b"") -> File:
        """Return a new inode without a name."""
        self._numbers += 1
        file = File(self._numbers, content)
        self.files.append(file)
        return file

    def new_directory(self) -> Directory:
        """Return a new directory without a name."""
        self._numbers += 1
        directory = Directory(self._numbers)
        self.directories.append(directory)
        return directory

    def tick(self) -> int:
        """Return the time of a change."""
        self._clock += 1
        return self._clock

    def find(self, path: str) -> File | Directory:
        """Return what a path leads to, or raise as an operating system does."""
        node: File | Directory = self.root
        for part in path.split("/"):
            if not part:
                continue
            if isinstance(node, File):
                _refuse(errno.ENOTDIR, path)
            found = node.entries.get(part)
            if found is None:
                _refuse(errno.ENOENT, path)
            node = found
        return node

    def directory(self, path: str) -> Directory:
        """Return the directory that a path leads to."""
        node = self.find(path)
        if isinstance(node, File):
            _refuse(errno.ENOTDIR, path)
        return node

    def _descend(self, at: Directory, name: str) -> Directory:
        below = at.entries.get(name)
        if below is None:
            below = at.entries[name] = at.durable[name] = self.new_directory()
        assert isinstance(below, Directory)
        return below


def _refuse(code: int, path: str) -> NoReturn:
    raise OSError(code, os.strerror(code), path)


class Fault(NamedTuple):
    """What happens to an operation: an error, with ``part`` of a write done first, in bytes.

    Without an error the write is only short.
    """

    error: int | None
    part: int = 0


class Process:
    """One process's view of the machine: a complete ``Disk``. Its death frees its locks."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._open: dict[int, _Open] = {}
        # Readers open files from several threads: drawing a number is one step.
        self._numbers = count(3)
        self.dead = False
        #: Asked before each operation that changes or syncs, with its name and the file's.
        self.fault: Callable[[str, str], Fault | None] | None = None

    def kill(self) -> None:
        """End the process: its descriptors are closed, its locks are free, the rest stays."""
        self.dead = True
        for opened in self._open.values():
            self._unlock(opened)
        self._open.clear()

    def pause(self) -> None:
        """Do nothing for a while: a moment to be watched between two operations."""
        self._alive()
        if self._machine.watch is not None:
            self._machine.watch(self, "idle", "")

    # Names.

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        machine, name = self._machine, os.fspath(path)
        self._alive()
        try:
            node = machine.find(name)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            self._meet("create", name)
            node = self._create(name)
        else:
            if flags & os.O_EXCL:
                _refuse(errno.EEXIST, name)
        if isinstance(node, Directory):
            if flags & _WRITES:
                _refuse(errno.EISDIR, name)
        elif flags & os.O_TRUNC and node.data:
            self._meet("truncate", name)
            self._change(node, Truncate(0))
        fd = next(self._numbers)
        self._open[fd] = _Open(node, name, flags)
        return fd

    def close(self, fd: int) -> None:
        opened = self._open.pop(fd, None)
        if opened is not None:
            self._unlock(opened)
        elif not self.dead:
            _refuse(errno.EBADF, str(fd))

    def link(self, source: Path, target: Path) -> None:
        self._meet("link", os.fspath(target))
        node = self._machine.find(os.fspath(source))
        self._name(os.fspath(target), node)

    def rename_noreplace(self, source: Path, target: Path) -> None:
        self._meet("rename_noreplace", os.fspath(target))
        node = self._machine.find(os.fspath(source))
        self._name(os.fspath(target), node)
        self._unname(os.fspath(source), target.name)

    def unlink(self, path: Path) -> None:
        self._meet("unlink", os.fspath(path))
        if isinstance(self._machine.find(os.fspath(path)), Directory):
            _refuse(errno.EISDIR, os.fspath(path))
        self._unname(os.fspath(path))

    def mkdir(self, path: Path) -> None:
        self._meet("mkdir", os.fspath(path))
        self._name(os.fspath(path), self._machine.new_directory())

    def rmdir(self, path: Path) -> None:
        self._meet("rmdir", os.fspath(path))
        if self._machine.directory(os.fspath(path)).entries:
            _refuse(errno.ENOTEMPTY, os.fspath(path))
        self._unname(os.fspath(path))

    def listdir(self, path: Path) -> list[str]:
        self._alive()
        return list(self._machine.directory(os.fspath(path)).entries)

    # Bytes.

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        return bytes(self._file(fd).data[offset : offset + length])

    def write(self, fd: int, data: memoryview) -> int:
        opened = self._opened(fd)
        node = self._file(fd)
        offset = len(node.data) if opened.append else opened.position
        written = self._write(opened, node, data, offset, "write")
        opened.position = offset + written
        return written

    def pwrite(self, fd: int, data: memoryview, offset: int) -> int:
        return self._write(self._opened(fd), self._file(fd), data, offset, "pwrite")

    def reserve(self, fd: int, offset: int, length: int) -> None:
        self._meet("reserve", self._opened(fd).path)

    def truncate(self, fd: int, length: int) -> None:
        opened = self._opened(fd)
        self._meet("truncate", opened.path)
        node = self._file(fd)
        if length != len(node.data):
            self._change(node, Truncate(length))

    # Syncs.

    def fsync(self, fd: int) -> None:
        self._sync("fsync", fd)

    def fdatasync(self, fd: int) -> None:
        self._sync("fdatasync", fd)

    def sync_directory(self, path: Path) -> None:
        name = os.fspath(path)
        directory = self._machine.directory(name)
        # A directory's failed sync leaves its changes pending: they are in the file system's own
        # journal, which goes read-only rather than forget one.
        if self._begin_sync("sync_directory", name):
            directory.durable = dict(directory.entries)
            directory.pending = []

    # What is there, and who has it.

    def stat(self, path: Path) -> os.stat_result:
        self._alive()
        return _status(self._machine.find(os.fspath(path)))

    def fstat(self, fd: int) -> os.stat_result:
        return _status(self._opened(fd).node)

    def lock(self, fd: int, *, exclusive: bool = True) -> bool:
        opened, node = self._opened(fd), self._file(fd)
        others = node.lockers - {opened}
        if others and (exclusive or not node.shared):
            return False
        node.lockers.add(opened)
        node.shared = not exclusive
        return True

    def unlock(self, fd: int) -> None:
        self._unlock(self._opened(fd))

    def statvfs(self, path: Path) -> os.statvfs_result:
        self.stat(path)
        return os.statvfs_result((4096, 4096, _ROOM, _ROOM, _ROOM, 0, 0, 0, 0, 255))

    # Steps.

    def _alive(self) -> None:
        if self.dead:
            raise Killed

    def _opened(self, fd: int) -> _Open:
        self._alive()
        opened = self._open.get(fd)
        if opened is None:
            _refuse(errno.EBADF, str(fd))
        return opened

    def _file(self, fd: int) -> File:
        node = self._opened(fd).node
        if isinstance(node, Directory):
            _refuse(errno.EISDIR, str(fd))
        return node

    def _meet(self, operation: str, path: str) -> None:
        """Let those who watch see the operation, and fail it if it is to fail."""
        fault = self._announce(operation, path)
        if fault is not None and fault.error is not None:
            _refuse(fault.error, path)

    def _announce(self, operation: str, path: str) -> Fault | None:
        self._alive()
        if self._machine.watch is not None:
            self._machine.watch(self, operation, path)
            self._alive()
        self._machine.changes += 1
        return self.fault(operation, path) if self.fault is not None else None

    def _begin_sync(self, operation: str, path: str) -> bool:
        wanted = self._machine.wanted
        if wanted is not None and not wanted(operation):
            self._alive()
            return False
        self._meet(operation, path)
        return True

    def _sync(self, operation: str, fd: int) -> None:
        node, path = self._file(fd), self._opened(fd).path
        try:
            if not self._begin_sync(operation, path):
                return
        except OSError:
            # The pages are clean now, whether their bytes reached the platter or not.
            node.durable, node.pending = self._machine.survivors(node), []
            raise
        node.durable, node.pending = applied(node.durable, node.pending), []

    def _write(
        self, opened: _Open, node: File, data: memoryview, offset: int, operation: str
    ) -> int:
        if not opened.writable:
            _refuse(errno.EBADF, opened.path)
        fault = self._announce(operation, opened.path)
        if fault is not None:
            data = data[: fault.part]
        if data:
            self._change(node, Write(offset, bytes(data)))
        if fault is not None and fault.error is not None:
            _refuse(fault.error, opened.path)
        return len(data)

    def _change(self, node: File, change: Change) -> None:
        if isinstance(node.data, bytes):
            node.data = bytearray(node.data)
        apply(node.data, change)
        node.pending.append(change)
        node.stamp = self._machine.tick()

    def _create(self, path: str) -> File:
        node = self._machine.new_file()
        node.stamp = self._machine.tick()
        self._name(path, node)
        return node

    def _name(self, path: str, node: File | Directory) -> None:
        above, _, name = path.rpartition("/")
        directory = self._machine.directory(above)
        if name in directory.entries:
            _refuse(errno.EEXIST, path)
        directory.entries[name] = node
        directory.pending.append(Entry(name, node))

    def _unname(self, path: str, renamed: str | None = None) -> None:
        above, _, name = path.rpartition("/")
        directory = self._machine.directory(above)
        if name not in directory.entries:
            _refuse(errno.ENOENT, path)
        del directory.entries[name]
        directory.pending.append(Entry(name, None, renamed))

    def _unlock(self, opened: _Open) -> None:
        if isinstance(opened.node, File):
            opened.node.lockers.discard(opened)


def _status(node: File | Directory) -> os.stat_result:
    if isinstance(node, File):
        mode, size, stamp = stat.S_IFREG | 0o600, len(node.data), node.stamp
    else:
        mode, size, stamp = stat.S_IFDIR | 0o700, 4096, 1
    times = {"st_atime_ns": stamp, "st_mtime_ns": stamp, "st_ctime_ns": stamp}
    return os.stat_result((mode, node.number, _DEVICE, 1, 0, 0, size, 0, 0, 0), times)
