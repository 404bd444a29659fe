"""Limits as the kernel takes them: (resource, soft, hard) triples."""

import math
import sys

from . import cgroup
from .policy import Limits

#: Processes that bubblewrap itself needs in the sandbox's user namespace: its init and a spare one
#: while it starts.
NAMESPACE_OWN = 2


def rlimits(limits: Limits, *, namespace: bool) -> tuple[tuple[int, int, int], ...]:
    """Translate ``limits``; core dumps are off in every case.

    namespace: the command gets a user namespace of its own, in which the kernel counts processes
    from zero. Otherwise it counts everything that the user runs: the starter adds that, at the last
    moment (`interlock.sandbox.prepared.confining.set_limits`).
    """
    if sys.platform == "win32":
        return ()
    import resource

    wanted = [(resource.RLIMIT_CORE, 0, 0)]
    if limits.cpu_seconds is not None:
        seconds = math.ceil(limits.cpu_seconds)
        # SIGXCPU at the soft limit, SIGKILL a second later for what ignores it.
        wanted.append((resource.RLIMIT_CPU, seconds, seconds + 1))
    if limits.memory_bytes is not None:
        wanted.append((resource.RLIMIT_DATA, limits.memory_bytes, limits.memory_bytes))
    if limits.file_bytes is not None:
        wanted.append((resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes))
    if limits.open_files is not None:
        wanted.append((resource.RLIMIT_NOFILE, limits.open_files, limits.open_files))
    if limits.processes is not None:
        most = limits.processes + (NAMESPACE_OWN if namespace else 0)
        wanted.append((resource.RLIMIT_NPROC, most, most))
    return tuple(wanted)


def tasks(limits: Limits, own: int) -> int | None:
    """How many tasks a control group is to let there be, where the kernel counts none for root.

    own: those of the launcher and its runner that are in the group too.
    """
    if limits.processes is None or cgroup.place() is None:
        return None
    return limits.processes + own


def apply_from_outside(pid: int, limits: tuple[tuple[int, int, int], ...]) -> None:
    """Set limits on a process that has not started its command yet. Raises OSError."""
    if sys.platform == "linux":
        import resource

        for number, soft, hard in limits:
            ceiling = resource.prlimit(pid, number)[1]
            most = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
            resource.prlimit(pid, number, (min(soft, most), most))
