"""Process trees and directory trees, and their end."""

from __future__ import annotations

import os
import signal
import time

from .kernel import LINUX

#: Seconds to spend on ending left-overs before reporting that some would not go.
REAP_LIMIT = 5.0


def reap(child: int = 0, others: dict[int, int] | None = None) -> tuple[bool, int | None]:
    """Collect whatever has ended: (whether a child is left, the status of ``child`` if it was).

    others: takes the statuses of all that are collected.
    """
    status = None
    while True:
        try:
            pid, ended = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False, status
        if pid == 0:
            return True, status
        if pid == child:
            status = ended
        if others is not None:
            others[pid] = ended


def end_all(child: int = 0, *, group: int = 0, spare: int = 0) -> tuple[int, int | None]:
    """Kill every descendant until none is left; stop first, so that none can fork away meanwhile.

    child: the one whose status is wanted. group: what to kill where there is no ``/proc``.
    spare: one to leave alone, with all below it.
    Returns how many would not go, and that status where it was collected here.
    """
    limit = time.monotonic() + REAP_LIMIT
    status = None
    while True:
        pids = descendants(os.getpid(), spare) if LINUX else [-group]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                try:
                    os.kill(pid, number)
                except OSError:
                    continue
        left, ended = reap(child)
        status = ended if ended is not None else status
        if not left or (spare and not descendants(os.getpid(), spare)):
            return 0, status
        if time.monotonic() > limit:
            return len(descendants(os.getpid(), spare)) if LINUX else 1, status
        time.sleep(0.001)


def descendants(root: int, spare: int = 0) -> list[int]:
    """Every process below ``root``, nearest first; from /proc."""
    found: list[int] = []
    queue = [root]
    while queue:
        children = [pid for pid in children_of(queue.pop()) if pid != spare]
        found += children
        queue += children
    return found


def tasks_of(uid: int) -> int:
    """Threads that a user runs on this machine, which is what ``RLIMIT_NPROC`` counts."""
    count = 0
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid == uid:
                count += len(os.listdir(f"/proc/{entry.name}/task"))
        except OSError:
            pass  # it has ended
    return count


def children_of(pid: int) -> list[int]:
    """The children of every thread of ``pid``; none where it is gone."""
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return children


def remove_groups(path: str) -> None:
    """Delete a control group and those below it, as far as nothing runs in them."""
    try:
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                os.rmdir(entry.path)
        os.rmdir(path)
    except OSError:
        return


class Removal:
    """Deletes a directory tree. Everything that could change it meanwhile has been ended."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._patience = 0

    def go_on(self, entries: int) -> bool:
        """Delete, giving up for now after ``entries``; whether nothing is left to do."""
        self._patience = entries
        return self._remove(self._path)

    def _remove(self, path: str) -> bool:
        try:
            os.chmod(path, 0o700)
            with os.scandir(path) as entries:
                for entry in entries:
                    if self._patience <= 0:
                        return False
                    self._patience -= 1
                    if not entry.is_dir(follow_symlinks=False):
                        os.unlink(entry.path)
                    elif not self._remove(entry.path) and self._patience <= 0:
                        return False
            os.rmdir(path)
        except OSError:
            return not os.path.lexists(path)
        return True
