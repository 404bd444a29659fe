"""The machine in memory: to programs it is a disk like any other, and it loses what disks lose."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from interlock.backends.disk import Disk, OsDisk

from tests.crash.cut import Cut
from tests.crash.machine import Fault, Killed, Machine
from tests.crash.remains import Remains


def told(action: Callable[[], object]) -> object:
    """What a program is told: the result, or the error's number."""
    try:
        result = action()
    except OSError as error:
        return error.errno
    if isinstance(result, os.stat_result):
        return result.st_size if result.st_mode & 0o100000 else "directory"
    return sorted(result) if isinstance(result, list) else result


def script(disk: Disk, at: Path) -> list[object]:
    """Use a disk in every way that the product does; return all that it said."""
    said: list[object] = []

    def do(action: Callable[[], object]) -> None:
        said.append(told(action))

    exclusive = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    file, other, folder = at / "file", at / "other", at / "folder"
    do(lambda: disk.open(file, os.O_RDONLY) and None)
    fd = disk.open(file, exclusive)
    do(lambda: disk.open(file, exclusive) and None)
    do(lambda: disk.write(fd, memoryview(b"one ")))
    do(lambda: disk.write(fd, memoryview(b"two")))
    end = disk.open(file, os.O_RDWR | os.O_APPEND)
    do(lambda: disk.write(end, memoryview(b" three")))
    do(lambda: disk.pread(end, 100, 4))
    do(lambda: disk.truncate(end, 5))
    do(lambda: disk.write(end, memoryview(b"!")))
    do(lambda: disk.truncate(end, 9))
    do(lambda: disk.pread(end, 100, 0))
    do(lambda: disk.fstat(end))
    place = disk.open(file, os.O_RDWR)
    do(lambda: disk.pwrite(place, memoryview(b"XY"), 12))
    do(lambda: disk.pread(place, 3, 10))
    do(lambda: disk.write(disk.open(file, os.O_RDONLY), memoryview(b"x")))
    for sync in (disk.fsync, disk.fdatasync):
        do(lambda sync=sync: sync(place))
    do(lambda: disk.reserve(place, 0, 4096))
    do(lambda: disk.stat(file))
    do(lambda: disk.link(file, other))
    do(lambda: disk.link(file, other))
    do(lambda: disk.rename_noreplace(file, other))
    do(lambda: disk.rename_noreplace(file, at / "moved"))
    do(lambda: disk.stat(file))
    do(lambda: disk.mkdir(folder))
    do(lambda: disk.mkdir(folder))
    do(lambda: disk.listdir(at))
    do(lambda: disk.listdir(other))
    do(lambda: disk.listdir(file))
    do(lambda: disk.open(folder, os.O_RDWR) and None)
    do(lambda: disk.open(other / "below", os.O_RDONLY) and None)
    do(lambda: disk.rmdir(at))
    do(lambda: disk.rmdir(folder))
    do(lambda: disk.sync_directory(at))
    do(lambda: disk.unlink(other))
    do(lambda: disk.unlink(other))
    do(lambda: disk.pread(place, 3, 0))
    do(lambda: disk.open(at / "moved", os.O_WRONLY | os.O_TRUNC) and None)
    do(lambda: disk.stat(at / "moved"))
    do(lambda: disk.statvfs(at).f_bavail > 0)
    return said


def locks(disk: Disk, at: Path) -> list[object]:
    """Take and give back locks with three descriptors of one file."""
    first, second, third = (disk.open(at / "lock", os.O_RDWR | os.O_CREAT) for _ in range(3))
    said: list[object] = [disk.lock(first), disk.lock(second), disk.lock(first)]
    disk.unlock(first)
    said += [disk.lock(second, exclusive=False), disk.lock(third, exclusive=False)]
    said += [disk.lock(first), disk.lock(first, exclusive=False)]
    disk.close(first)
    disk.close(second)
    said += [disk.lock(third), disk.lock(disk.open(at / "lock", os.O_RDWR), exclusive=False)]
    return said


@pytest.mark.parametrize("use", [script, locks])
def test_programs_are_told_the_same_as_by_the_operating_system(use, tmp_path):
    machine = Machine.of({str(tmp_path): None})
    assert use(machine.process(), tmp_path) == use(OsDisk(), tmp_path)


@pytest.fixture
def machine() -> Machine:
    return Machine.of({"/d": None})


def remains(machine: Machine, model="prefix") -> set[tuple[str, bytes | None]]:
    """Every file that some power cut leaves, with what it holds."""
    return {
        (path, content)
        for tree in Cut(machine, "").disks(model, 10_000, random.Random(0))
        for path, content in tree.items()
        if path != "/d"
    }


def test_what_is_not_synced_is_kept_up_to_any_byte_and_its_name_or_not(machine):
    disk = machine.process()
    fd = disk.open(Path("/d/f"), os.O_WRONLY | os.O_CREAT)
    disk.write(fd, memoryview(b"ab"))
    disk.fsync(fd)
    disk.write(fd, memoryview(b"cd"))
    assert remains(machine) == {("/d/f", b"ab"), ("/d/f", b"abc"), ("/d/f", b"abcd")}
    assert {} in [{k: v for k, v in t.items() if k != "/d"} for t in all_disks(machine)]
    disk.sync_directory(Path("/d"))
    assert all("/d/f" in tree for tree in all_disks(machine))


def all_disks(machine: Machine):
    return list(Cut(machine, "").disks("prefix", 10_000, random.Random(0)))


def test_a_shorter_length_may_be_lost_while_later_bytes_survive(machine):
    left = Remains(b"0123456789", machine_changes(b"0123456789"), "prefix")
    contents = {left.content(i) for i in range(left.count)}
    assert {b"0123", b"0123ab", b"0123ab6789", b"0123456789"} <= contents
    assert left.content(left.count - 1) == b"0123ab"


def machine_changes(content: bytes):
    machine = Machine.of({"/f": content})
    disk = machine.process()
    fd = disk.open(Path("/f"), os.O_RDWR | os.O_APPEND)
    disk.truncate(fd, 4)
    disk.write(fd, memoryview(b"ab"))
    return machine.files[0].pending


def test_sectors_survive_in_any_order_and_synced_bytes_always(machine):
    disk = machine.process()
    fd = disk.open(Path("/d/f"), os.O_RDWR | os.O_CREAT | os.O_APPEND)
    disk.write(fd, memoryview(b"s" * 100))
    disk.fsync(fd)
    disk.sync_directory(Path("/d"))
    disk.write(fd, memoryview(b"n" * 1500))
    contents = [content or b"" for _, content in remains(machine, "sectors")]
    assert all(content.startswith(b"s" * 100) for content in contents)
    assert any(c[100:512].strip(b"\0") == b"" and c[512:1024] == b"n" * 512 for c in contents)
    assert any(c[512:1024].strip(b"n") and c[1024:] == b"n" * 576 for c in contents)


def test_a_failed_sync_drops_what_was_dirty_and_the_next_one_does_not_bring_it_back(machine):
    disk = machine.process()
    fd = disk.open(Path("/d/f"), os.O_RDWR | os.O_CREAT)
    disk.sync_directory(Path("/d"))
    disk.write(fd, memoryview(b"lost"))
    disk.fault = lambda operation, path: Fault(5) if operation == "fsync" else None
    with pytest.raises(OSError, match="Input/output"):
        disk.fsync(fd)
    disk.fault = None
    assert disk.pread(fd, 4, 0) == b"lost"
    disk.fsync(fd)
    assert remains(machine) == {("/d/f", b"")}
    disk.pwrite(fd, memoryview(b"kept"), 0)
    disk.fsync(fd)
    assert remains(machine) == {("/d/f", b"kept")}


def test_a_rename_never_leaves_neither_name(machine):
    disk = machine.process()
    fd = disk.open(Path("/d/a"), os.O_WRONLY | os.O_CREAT)
    disk.fsync(fd)
    disk.sync_directory(Path("/d"))
    disk.rename_noreplace(Path("/d/a"), Path("/d/b"))
    left = {frozenset(tree) - {"/d"} for tree in all_disks(machine)}
    assert left == {frozenset({"/d/a"}), frozenset({"/d/b"}), frozenset({"/d/a", "/d/b"})}


def test_a_killed_process_does_nothing_more_and_its_locks_are_free(machine):
    disk, other = machine.process(), machine.process()
    fd = disk.open(Path("/d/lock"), os.O_RDWR | os.O_CREAT)
    assert disk.lock(fd)
    theirs = other.open(Path("/d/lock"), os.O_RDWR)
    assert not other.lock(theirs)
    disk.kill()
    assert other.lock(theirs)
    with pytest.raises(Killed):
        disk.stat(Path("/d"))
