"""Control groups, where root may make some: the limit on processes that rlimits cannot set.

For uid 0 the kernel does not count processes against ``RLIMIT_NPROC``; a control group counts them
for everybody. An ordinary user has nowhere to make groups unless a place was delegated, and needs
them less.
"""

import contextlib
import functools
import os
import sys
import tempfile
from pathlib import Path

#: Prefix of the names of our groups.
PREFIX = "interlock-"


@functools.cache
def place() -> str | None:
    """The control group below which processes can be counted, found by trying; None without one.

    It is the one that this process is in, so that what limits us limits our commands.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        return None
    return next((where for where in _candidates() if _counts(where)), None)


def make() -> str:
    """Make a group. Raises OSError."""
    where = place()
    if where is None:
        raise FileNotFoundError(2, "no control group can be made here")
    return tempfile.mkdtemp(prefix=PREFIX, dir=where)


def remove(group: str) -> None:
    """Delete a group that nothing runs in any more."""
    with contextlib.suppress(OSError):
        os.rmdir(group)


def _candidates() -> list[str]:
    """Where our own group is mounted, for each hierarchy that may count processes."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
        mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    except OSError:
        return []
    found = []
    for line in groups:
        _, controllers, path = line.split(":", 2)
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            old = kind == "cgroup" and "pids" in controllers.split(",") and "pids" in options
            if old or (kind == "cgroup2" and not controllers):
                root, point = mount[3], mount[4]
                found.append(os.path.normpath(f"{point}/{os.path.relpath(path, root)}"))
    return found


def _counts(where: str) -> bool:
    try:
        group = tempfile.mkdtemp(prefix=PREFIX, dir=where)
    except OSError:
        return False
    try:
        # Without the controller there is no such file, and none can be made.
        fd = os.open(f"{group}/pids.max", os.O_RDWR | os.O_CLOEXEC)
        try:
            os.write(fd, b"10")
            return os.pread(fd, 16, 0).strip() == b"10"
        finally:
            os.close(fd)
    except OSError:
        return False
    finally:
        remove(group)
