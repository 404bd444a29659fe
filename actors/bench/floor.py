"""The floor: what the disk alone takes to make one record survive power loss."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Self

from interlock.backends.disk import OsDisk, write_all

from .slices import Slice, run_one

#: Bytes of one record: about what a flush of one event adds to a log.
RECORD = 256


class Floor:
    """A growing file beside the logs, to which each operation appends a record and syncs it."""

    def __init__(self, directory: Path) -> None:
        self._disk = OsDisk()
        self._path = directory / "floor"
        self._record = os.urandom(RECORD)
        self._fd = -1

    def run(self, seconds: float) -> Slice:
        """Append and sync in this thread for ``seconds``, at least once."""
        return run_one(self._append, seconds)

    def _append(self) -> int:
        begin = perf_counter_ns()
        write_all(self._disk, self._fd, self._record)
        self._disk.fdatasync(self._fd)
        return perf_counter_ns() - begin

    def __enter__(self) -> Self:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        self._fd = self._disk.open(self._path, flags)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._disk.close(self._fd)
        self._path.unlink()
