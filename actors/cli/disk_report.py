"""What kind of disk lies under a root, and how long it takes to make something durable there."""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from interlock.backends.disk import OsDisk
from interlock.backends.mounts import Mount, mount_of, nearest

#: How often and how much is written and synced, in bytes, to measure the latency.
ROUNDS, BLOCK = 20, 4096

MEMORY = frozenset({"tmpfs", "ramfs", "rootfs"})


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
    mount = mount_of(root)
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
    if mount.is_network:
        return (
            f"{root} is on {mount.type} ({mount.source}): locks and syncs may not hold across a "
            "network or through FUSE, and writing is refused there unless you insist; put the "
            "root on a local disk"
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
