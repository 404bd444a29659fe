"""Landlock: a kernel allow-list that a process puts on itself. Used where bubblewrap cannot be.

What it cannot express is named as a gap: it does not see metadata, pathname sockets or processes,
and a read-only child of a writable directory does not exist for it.
"""

import ctypes
import functools
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cgroup, launcher, seccomp
from .confined import Confined, Enforcement
from .policy import Mode, Policy, base_environment, inside, kind
from .rlimits import rlimits, tasks

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_ABI_1 = (1 << 13) - 1
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_UNIX, _SIGNAL = 1, 2
#: The newest interface whose rights were tried; newer kernels are used at this level.
_TRIED_ABI = 8
#: Below it, files outside can be emptied with truncate(2).
LEAST_ABI = 3

_READ = EXECUTE | READ_FILE | READ_DIR
_DEVICE = WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
#: The launcher's own process in the command's control group, until the command is there.
_OWN_TASKS = 1
_DEV = Path("/dev")
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")


@dataclass(frozen=True)
class Features:
    """What this kernel offers, found by trying.

    abi: the Landlock interface level, 0 for none.
    masks: whether a mount namespace can be had to cover hidden paths in.
    """

    abi: int
    masks: bool


@functools.cache
def abi() -> int:
    """The kernel's Landlock interface level; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(
        ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1)
    )  # landlock_create_ruleset(VERSION)
    return max(0, int(version))


def files_handled(level: int) -> int:
    """Every file right that the interface knows: one that is not handled would be allowed."""
    handled = _ABI_1
    if level >= 2:
        handled |= REFER
    if level >= 3:
        handled |= TRUNCATE
    if level >= 5:
        handled |= IOCTL_DEV
    return handled


def scopes(level: int) -> int:
    """Isolation from the host's signals and abstract sockets, where the interface has it."""
    return _ABSTRACT_UNIX | _SIGNAL if level >= 6 else 0


def scope_layer() -> dict[str, Any] | None:
    """A ruleset with scopes only, to put below bubblewrap when it shares the host's network."""
    level = min(abi(), _TRIED_ABI)
    if not scopes(level):
        return None
    return {"abi": level, "files": 0, "network": 0, "scopes": scopes(level), "grants": []}


def around(root: Path, hidden: Sequence[Path]) -> list[Path]:
    """The largest trees below ``root`` that contain nothing hidden, links left out.

    A grant holds for everything below it and cannot be taken back further down, so a hidden path is
    kept closed by granting its siblings, and those of each directory above it, one by one.
    """
    below = [h for h in hidden if inside(h, (root,))]
    if not below:
        return [root]
    if root in below:
        return []
    try:
        names = sorted(os.listdir(root))
    except OSError:
        return []
    children = [root / name for name in names]
    return [tree for c in children if not c.is_symlink() for tree in around(c, below)]


def grants(policy: Policy, scratch: str, hidden: Sequence[Path]) -> list[tuple[str, int, bool]]:
    """(path, rights, must exist) for each rule; ``hidden`` are the paths to grant around."""
    everything = files_handled(_TRIED_ABI) & ~(MAKE_CHAR | MAKE_BLOCK)
    rules: list[tuple[str, int, bool]] = []
    if hidden:
        # Listing stays: without it nothing works above a hidden path. Names show, contents do not.
        rules.append(("/", READ_DIR, True))
    rules += [(path, _READ, not hidden) for path in _around_all(hidden)]
    rules += [(f"/dev/{name}", _DEVICE, False) for name in _DEVICES]
    rules += [("/dev/pts", everything, False), (scratch, everything, True)]
    for root in policy.roots:
        rules += [(str(p), everything, p == root) for p in around(root, hidden)]
    return rules


def _around_all(hidden: Sequence[Path]) -> Iterable[str]:
    """`around` for the whole machine."""
    if list(hidden) == [_DEV]:
        return _around_devices(os.stat("/").st_ctime_ns)
    return map(str, around(Path("/"), hidden))


@functools.lru_cache(maxsize=1)
def _around_devices(_changed: int) -> tuple[str, ...]:
    """The same where only devices are closed: until the root directory changes."""
    return tuple(map(str, around(Path("/"), [_DEV])))


def gaps(policy: Policy, features: Features) -> frozenset[str]:
    """What Landlock does not hold of ``policy`` on this kernel."""
    level = min(features.abi, _TRIED_ABI)
    found = {"process-visibility"}
    filtered = seccomp.supported()
    if not filtered:
        found |= {"network", "sysv-ipc", "kernel-surface", "metadata"}
    if not (filtered and _refuses_sockets(policy)):
        found |= {"unix-sockets"} | (set() if level >= 6 else {"abstract-sockets"})
    if policy.mode is Mode.WORKSPACE_WRITE:
        found |= {"metadata", "protected-paths"}
    if level < 5:
        found.add("device-ioctl")
    if level < 6:
        found |= {"signals", "leftover-processes"}
    if present(policy.hidden) and not features.masks:
        found |= {"hidden-names", "hidden-parents"}
    if launcher.is_writable(policy):
        found.add("launcher-writable")
    return frozenset(found | root_gaps(policy))


def root_gaps(policy: Policy) -> set[str]:
    """What no backend can hold for uid 0."""
    if os.geteuid() != 0:
        return set()
    counted = cgroup.place() is not None
    limited = policy.limits.processes is not None
    return {"running-as-root"} | ({"process-limit"} if limited and not counted else set())


def enforcement(policy: Policy) -> Enforcement:
    """``full`` only for a read-only command whose caller cares about files alone."""
    full = policy.mode is Mode.READ_ONLY and policy.require == {"files"}
    return "full" if full and abi() >= 6 and seccomp.supported() else "partial"


def build(policy: Policy, argv: Sequence[str], features: Features) -> Confined:
    """Make ``argv`` ready to run under Landlock. Raises OSError where descriptors run out."""
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="interlock-"))
    hidden = present(policy.hidden)
    level = min(features.abi, _TRIED_ABI)
    granted = grants(policy, scratch, _closed(features, hidden))
    rules = {
        "abi": level,
        "files": files_handled(level),
        "network": 0 if policy.network or level < 4 else _BIND_TCP | _CONNECT_TCP,
        "scopes": scopes(level),
        "grants": granted,
    }
    status, status_end = os.pipe()
    masks = [(str(p), kind(p) == "dir") for p in hidden] if features.masks else []
    errand = launcher.Errand(
        argv=argv,
        env=base_environment(scratch) | dict(policy.env),
        cwd=str(policy.start),
        landlock=rules,
        seccomp=_filter(policy, asks=False),
        witness=_witness(policy, granted),
        hidden=masks,
        pinned=[str(p) for p in pins(policy, hidden)] if masks else [],
        limits=rlimits(policy.limits, namespace=False),
        tasks=tasks(policy.limits, _OWN_TASKS),
        scratch=scratch,
    )
    confined = Confined(
        env=base_environment(None),
        cwd="/",
        backend="landlock",
        enforcement=enforcement(policy),
        gaps=gaps(policy, features),
        policy=policy,
        command=tuple(argv),
        errand=errand,
        status=status,
        status_end=status_end,
        scratch=scratch,
    )
    confined.own(status, status_end)
    return confined


def _closed(features: Features, hidden: Sequence[Path]) -> list[Path]:
    """What no rule may open, not even for reading."""
    # S6: on a disk's device root could read what is hidden in its file system.
    devices = [_DEV] if os.geteuid() == 0 else []
    return devices if features.masks else [*devices, *hidden]


def present(hidden: Iterable[Path]) -> list[Path]:
    """The hidden paths that exist now, outermost first and without those inside another one."""
    kept: list[Path] = []
    for path in sorted(hidden):
        if kind(path) is not None and not inside(path, kept):
            kept.append(path)
    return kept


def pins(policy: Policy, hidden: Sequence[Path]) -> list[Path]:
    """Writable directories between a root and a hidden path, outermost first.

    Only a mount point cannot be renamed: without a pin the command could move a hidden directory's
    parent, and the log with it, though it could not look inside.
    """
    found = {
        parent
        for path in hidden
        for parent in path.parents
        if inside(parent, policy.roots) and parent not in policy.roots
    }
    return sorted(found)


def _refuses_sockets(policy: Policy) -> bool:
    return "ipc" in policy.require


def _filter(policy: Policy, *, asks: bool) -> bytes | None:
    return seccomp.assemble(_wanted(policy, asks=asks)) if seccomp.supported() else None


def _wanted(policy: Policy, *, asks: bool) -> seccomp.Filter:
    return seccomp.Filter(
        internet=policy.network,
        unix=not _refuses_sockets(policy),
        metadata=policy.mode is not Mode.READ_ONLY,
        ipc=False,
        others=False,
        asks=asks,
    )


def _witness(policy: Policy, granted: Sequence[tuple[str, int, bool]]) -> dict[str, Any] | None:
    """How a witness answers: what no rule opens is closed (S5)."""
    program = _filter(policy, asks=True)
    if program is None:
        return None
    return {
        "filter": program,
        "calls": seccomp.names(),
        "always": seccomp.refused_always(_wanted(policy, asks=True)),
        "runner": None,
        "writable": [path for path, rights, _ in granted if rights & WRITE_FILE],
        "network": True,
    }
