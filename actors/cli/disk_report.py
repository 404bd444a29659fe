"""What kind of disk lies under a root, and how long it takes to make something durable there."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from interlock.backends.disk import OsDisk

#: How often and how much is written and synced, in bytes, to measure the latency.
ROUNDS, BLOCK = 20, 4096

#: On these a lock or a sync may not mean what it means on a local disk.
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs"),
        *("ocfs2", "gfs2", "beegfs", "orangefs", "coda", "ncpfs", "virtiofs"),
    }
)
MEMORY = frozenset({"tmpfs", "ramfs", "rootfs"})


@dataclass(frozen=True)
class Mount:
    """The file system that a path lies on."""

    type: str
    source: str
    point: str
    options: str


@dataclass(frozen=True)
class DiskReport:
    """``place`` is the root, or the nearest directory above it that exists.

    ``sync_us`` is the median of appending 4 KiB and syncing it, in µs; None where nothing can be
    written (``problem`` says why).
    """

    root: Path
    place: Path
    mount: Mount | None
    sync_us: float | None
    slowest_us: float | None
    free_bytes: int | None
    problem: str | None


def examine(root: Path) -> DiskReport:
    """Look at the disk under ``root`` and measure it. Leaves nothing there."""
    place = nearest(root)
    try:
        table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        mount = find_mount(table, os.path.realpath(place))
    except OSError:
        mount = None
    free = None
    times: list[float] = []
    problem = None
    try:
        statistic = os.statvfs(place)
        free = statistic.f_bavail * statistic.f_frsize
        times = _measure(place)
    except OSError as error:
        problem = f"{place} cannot be written: {error.strerror or error}"
    return DiskReport(
        root=root,
        place=place,
        mount=mount,
        sync_us=round(statistics.median(times), 1) if times else None,
        slowest_us=round(max(times), 1) if times else None,
        free_bytes=free,
        problem=problem,
    )


def nearest(root: Path) -> Path:
    """Return ``root``, or the nearest directory above it that exists."""
    place = root
    while not place.is_dir() and place != place.parent:
        place = place.parent
    return place


def find_mount(table: str, path: str) -> Mount | None:
    """Return the mount of ``path`` (resolved) in the text of ``/proc/self/mountinfo``.

    A line: id parent major:minor root point options [tags…] - type source super-options.
    """
    best: Mount | None = None
    for line in table.splitlines():
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if not dash or len(fields) < 6 or len(rest) < 3:
            continue
        point = _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        # Of two mounts on one point the later one covers the earlier.
        if inside and (best is None or len(point) >= len(best.point)):
            options = ",".join(dict.fromkeys([*fields[5].split(","), *rest[2].split(",")]))
            best = Mount(rest[0], _unescape(rest[1]), point, options)
    return best


def warnings(report: DiskReport) -> list[str]:
    """Return what a person should know about this disk, with what to do."""
    told = []
    mount = report.mount
    if report.problem is not None:
        told.append(f"{report.problem}; choose another --root or mend its rights")
    mount_warning = None if mount is None else _mount_warning(mount, report.root)
    if mount_warning is not None:
        told.append(mount_warning)
    if report.free_bytes is not None and report.free_bytes < 256 * 1024 * 1024:
        told.append(
            f"only {report.free_bytes // (1024 * 1024)} MiB are free under {report.root}; make "
            "room: a full disk releases no tool calls"
        )
    if report.sync_us is not None and report.sync_us > 20_000:
        told.append(
            f"making a record durable takes {report.sync_us / 1000:.0f} ms here, and every tool "
            "call waits for it; a local SSD takes well under 5 ms"
        )
    return told


def _mount_warning(mount: Mount, root: Path) -> str | None:
    options = mount.options.split(",")
    if mount.type in NETWORK or mount.type.startswith("fuse"):
        return (
            f"{root} is on {mount.type} ({mount.source}): locks and syncs may not hold across a "
            "network or through FUSE; put the root on a local disk"
        )
    if mount.type in MEMORY:
        return (
            f"{root} is on {mount.type}, which is memory: nothing there survives a restart of the "
            "machine; put the root on a disk"
        )
    if mount.type == "overlay":
        return (
            f"{root} is in a container's own layer (overlay) and goes with the container; mount a "
            "volume for logs that you want to keep"
        )
    if mount.type in ("ext3", "ext4") and "data=writeback" in options:
        return (
            f"{mount.point} is {mount.type} in data=writeback mode: after a power cut a log may "
            "end in bytes that were never written; mount it with data=ordered"
        )
    if "ro" in options:
        return f"{mount.point} is mounted read-only: logs there can be read, not written"
    return None


def _measure(place: Path) -> list[float]:
    """Append and sync, the floor of every durable record; each round in µs."""
    disk = OsDisk()
    block = b"\xa5" * BLOCK
    times = []
    descriptor, name = tempfile.mkstemp(prefix=".interlock-doctor-", dir=place)
    try:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            os.write(descriptor, block)
            disk.fdatasync(descriptor)
            times.append((time.perf_counter() - start) * 1e6)
    finally:
        os.close(descriptor)
        os.unlink(name)
    return times


def _unescape(field: str) -> str:
    """Undo the kernel's octal escapes of blanks and backslashes."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field
