"""One writer per session: ``flock`` on ``session.lock`` (L11).

The kernel's lock is the truth. It is gone with its holder's last descriptor, so a dead holder
frees it at once and a stopped one keeps it; neither the file's existence nor the line in it proves
anything. The line is for people, and for the error that names the holder.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .codes import Code
from .disk import Disk, write_all
from .errors import SessionError

LOCK_NAME = "session.lock"

#: The file at the path may change between opening and locking it; a few tries settle that.
_TRIES = 3

#: `verify` touches a lock for an instant to see whether it is held; a writer looks again after it.
_SECOND_LOOK_S = 0.005
_LINE_LIMIT = 4096
_POLL_S = 0.05


class SessionLock:
    """A held lock. Release it with :meth:`release`; the file stays."""

    __slots__ = ("_disk", "_fd", "path")

    def __init__(self, path: Path, fd: int, disk: Disk) -> None:
        self.path = path
        self._fd: int | None = fd
        self._disk = disk

    @classmethod
    def acquire(
        cls, directory: Path, session_id: str, disk: Disk, *, wait: float = 0.0
    ) -> SessionLock:
        """Take the lock of the session in ``directory``, waiting up to ``wait`` seconds for it.

        Raises ``SessionError``: ``SESSION_LOCKED``, naming the holder, if another handle has it (in
        this process or another), or where this system has no such lock.
        """
        if sys.platform == "win32":
            raise SessionError(
                Code.SESSION_LOCKED,
                f"session {session_id!r} cannot be opened for writing: Interlock has no tried lock "
                "on Windows yet. Reading works",
                session=session_id,
            )
        path = directory / LOCK_NAME
        deadline = time.monotonic() + wait
        while True:
            fd = _try(path, disk)
            if fd is not None:
                _describe_holder(fd, disk)
                return cls(path, fd, disk)
            if time.monotonic() >= deadline:
                raise _locked(path, session_id, disk)
            time.sleep(min(_POLL_S, max(0.0, deadline - time.monotonic())))

    def release(self) -> None:
        """Give the lock back. The file is never removed: that would lose the exclusion."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            self._disk.truncate(fd, 0)
        except OSError:
            # The line is for people only; the lock itself goes with the descriptor.
            pass
        finally:
            self._disk.close(fd)


def held(directory: Path, disk: Disk) -> bool:
    """Tell whether some living handle holds the lock of the session in ``directory``."""
    if sys.platform == "win32":
        return False
    try:
        fd = disk.open(directory / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return False
    try:
        if not disk.lock(fd, exclusive=False):
            return True
        disk.unlock(fd)
        return False
    except OSError:
        return False
    finally:
        disk.close(fd)


def holder(directory: Path, disk: Disk) -> dict[str, Any] | None:
    """Return what the lock's line says about its holder, or None where it says nothing."""
    try:
        fd = disk.open(directory / LOCK_NAME, os.O_RDONLY)
    except OSError:
        return None
    try:
        line = json.loads(disk.pread(fd, _LINE_LIMIT, 0))
    except (OSError, ValueError):
        return None
    finally:
        disk.close(fd)
    return line if isinstance(line, dict) else None


def _try(path: Path, disk: Disk) -> int | None:
    """Return a locked descriptor of the file that is at ``path``, or None if someone holds it."""
    for _ in range(_TRIES):
        fd = disk.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if not disk.lock(fd):
                time.sleep(_SECOND_LOOK_S)
                if not disk.lock(fd):
                    disk.close(fd)
                    return None
            if is_at(path, fd, disk):
                return fd
        except BaseException:
            disk.close(fd)
            raise
        # Someone replaced the file meanwhile: the lock on the old one excludes nobody.
        disk.close(fd)
    return None


def is_at(path: Path, fd: int, disk: Disk) -> bool:
    """Tell whether an open file is still the one at ``path``."""
    try:
        there = disk.stat(path)
    except FileNotFoundError:
        return False
    mine = disk.fstat(fd)
    return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)


def _describe_holder(fd: int, disk: Disk) -> None:
    line = {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "command": " ".join(sys.argv)[:200] or sys.executable,
        "since": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    try:
        disk.truncate(fd, 0)
        write_all(disk, fd, json.dumps(line).encode() + b"\n")
    except OSError:
        # A full disk must not keep a session from being opened; the lock holds without its line.
        return


def _locked(path: Path, session_id: str, disk: Disk) -> SessionError:
    line = holder(path.parent, disk)
    if line is None:
        who = "a holder that left no line about itself"
    else:
        who = (
            f"process {line.get('pid')} on {line.get('host')} ({line.get('command')}), "
            f"since {line.get('since')}"
        )
    return SessionError(
        Code.SESSION_LOCKED,
        f"session {session_id!r} is open for writing by {who}; close it there, or end that process",
        session=session_id,
        holder=line,
        lock=str(path),
    )
