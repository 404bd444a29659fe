"""Which file system a path lies on, and on which ones a log may be written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .codes import Code
from .errors import LogError

#: On these a lock or a sync may not mean what it means on a local disk.
NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "glusterfs"),
        *("ocfs2", "gfs2", "beegfs", "orangefs", "coda", "ncpfs", "virtiofs"),
    }
)


@dataclass(frozen=True)
class Mount:
    """The file system that a path lies on."""

    type: str
    source: str
    point: str
    options: str

    @property
    def is_network(self) -> bool:
        """Whether it is reached over a network, or through a program that may do so (FUSE)."""
        return self.type in NETWORK or self.type.startswith("fuse")


def nearest(path: Path) -> Path:
    """Return ``path``, or the nearest directory above it that exists."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return path


def mount_of(path: Path) -> Mount | None:
    """Return the mount under ``path`` (or what of it exists); None where this system tells none."""
    try:
        table = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
        return find_mount(table, os.path.realpath(nearest(path)))
    except OSError:
        return None


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


def refuse_network(root: Path, mount: Mount | None) -> None:
    """Refuse to write logs where locks and syncs may not hold.

    Raises ``LogError`` (``LOG_WRITE_FAILED``).
    """
    if mount is not None and mount.is_network:
        raise LogError(
            Code.LOG_WRITE_FAILED,
            f"{root} is on {mount.type} ({mount.source}): locks and syncs may not hold across a "
            "network or through FUSE, so nothing is written there. Put the root on a local disk, "
            "or insist (allow_network_root) if you know that it keeps both",
            root=str(root),
            closed=False,
        )


def _unescape(field: str) -> str:
    """Undo the kernel's octal escapes of blanks and backslashes."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field
