"""How much of a disk was taken since a command began: the brake that no rlimit is."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from .policy import Limits

#: Seconds between two looks.
LOOK = 0.1


@dataclass
class DiskWatch:
    """Compares free space with what there was when it was made. Used in one thread."""

    workspace: Path
    limits: Limits

    def __post_init__(self) -> None:
        self._bytes, self._files = self._free()

    @property
    def wanted(self) -> bool:
        """Whether there is anything to look for."""
        return self.limits.disk_bytes is not None or self.limits.disk_files is not None

    def exceeded(self) -> str | None:
        """What was taken too much of, in words, or None."""
        free_bytes, free_files = self._free()
        taken_bytes, taken_files = self._bytes - free_bytes, self._files - free_files
        if self.limits.disk_bytes is not None and taken_bytes > self.limits.disk_bytes:
            return f"{taken_bytes} bytes of disk were taken, {self.limits.disk_bytes} are allowed"
        if self.limits.disk_files is not None and taken_files > self.limits.disk_files:
            return f"{taken_files} files were made, {self.limits.disk_files} are allowed"
        return None

    def _free(self) -> tuple[int, int]:
        with contextlib.suppress(OSError):
            info = os.statvfs(self.workspace)
            return info.f_bfree * info.f_frsize, info.f_ffree
        return 0, 0
