"""Bubblewrap: namespaces and a read-only view of the machine. The first choice on Linux."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import landlock, launcher, seccomp
from .confined import Confined, trusted
from .policy import Policy, base_environment, inside, kind
from .protected import Protection, protection
from .rlimits import NAMESPACE_OWN, rlimits, tasks
from .sealed import sealed

#: Sizes of the private /tmp and /dev/shm, bytes. They are memory.
TMP_BYTES = 512 * 1024 * 1024
SHM_BYTES = 64 * 1024 * 1024
_TMP, _RUN, _SHM = Path("/tmp"), Path("/run"), Path("/dev/shm")  # noqa: S108 the sandbox's own


@dataclass(frozen=True)
class Rung:
    """One step of the ladder: what could be switched on here, found by trying.

    network_namespace: off where loopback cannot be set up; the filter then refuses sockets.
    no_nested: ``--disable-userns``, which old versions lack; the filter refuses the same calls.
    """

    network_namespace: bool = True
    no_nested: bool = True

    @property
    def name(self) -> str:
        """The rung in words, for error texts."""
        off = [] if self.network_namespace else ["no network namespace"]
        off += [] if self.no_nested else ["no --disable-userns"]
        return ", ".join(off) or "complete profile"


#: From the complete profile down. Never without the pid and user namespaces, /proc or --cap-drop.
LADDER = (Rung(), Rung(no_nested=False), Rung(network_namespace=False), Rung(False, False))


def find(policy: Policy) -> str | None:
    """The path of a bwrap that no confined command could have planted, or None."""
    return trusted("bwrap", policy)


def namespaces(policy: Policy, rung: Rung) -> list[str]:
    """Flags that separate processes, users, IPC and the network from the host's."""
    # --unshare-user: for uid 0 it is not automatic, and without it nothing holds. --cap-drop: uid 0
    # inside could otherwise undo the mounts.
    flags = ["--unshare-user", "--cap-drop", "ALL"]
    if rung.no_nested:
        flags.append("--disable-userns")
    flags += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not policy.network and rung.network_namespace:
        flags.append("--unshare-net")
    return [*flags, "--new-session", "--die-with-parent"]


def view(policy: Policy, rooted: Sequence[Protection]) -> list[str]:
    """Flags that build what the command sees. Order matters: what comes later covers."""
    flags = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    # /dev is memory: what could be written there would have no limit.
    flags += ["--size", str(SHM_BYTES), "--tmpfs", str(_SHM), "--remount-ro", "/dev"]
    # For uid 0 a new /proc leaves kernel settings writable, whatever the capabilities.
    flags += ["--ro-bind", "/proc/sys", "/proc/sys"]
    for name in ("sysrq-trigger", "irq", "bus", "fs"):
        flags += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    # S5: the first process is bubblewrap's own, and says how the command ended: its memory is shut.
    for name in ("mem", "task/1/mem"):
        flags += ["--ro-bind", "/dev/null", f"/proc/1/{name}"]
    flags += ["--size", str(TMP_BYTES), "--tmpfs", str(_TMP), "--tmpfs", str(_RUN)]
    if policy.network:
        # resolv.conf often is a link into here.
        flags += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
    roots = policy.roots
    if policy.workspace not in roots and inside(policy.workspace, (_TMP, _RUN)):
        flags += _bind("--ro-bind", policy.workspace)
    for root in roots:
        flags += _bind("--bind", root)
    hidden = landlock.present(policy.hidden)
    for path in landlock.pins(policy, hidden):
        flags += _bind("--bind", path)
    for guard in rooted:
        for path in guard.pinned:
            flags += _bind("--bind", path)
        for path in guard.readonly:
            flags += _bind("--ro-bind", path)
    closed = [path for guard in rooted for path in guard.readonly]
    for path in policy.writable if roots else ():
        if inside(path, closed):
            flags += _bind("--bind", path)
    flags += _covers(hidden, roots, policy.workspace)
    return [*flags, "--remount-ro", str(_RUN)]


def gaps(policy: Policy, rung: Rung, rooted: Sequence[Protection]) -> frozenset[str]:
    """What this profile does not hold."""
    found = landlock.root_gaps(policy)
    filtered = seccomp.supported()
    refuses_sockets = filtered and "ipc" in policy.require
    if not refuses_sockets:
        # Sockets in the file system outside /run and /tmp: a read-only mount does not stop connect.
        found.add("unix-sockets")
    shared = policy.network or not rung.network_namespace
    if shared and not refuses_sockets and landlock.scope_layer() is None:
        found.add("abstract-sockets")
    if not filtered:
        found.add("kernel-surface")
        if not policy.network and not rung.network_namespace:
            found.add("network")
    if any(guard.loose for guard in rooted):
        found.add("protected-paths")
    if launcher.is_writable(policy) and shared:
        found.add("launcher-writable")
    return frozenset(found)


def build(policy: Policy, argv: Sequence[str], rung: Rung, program: str) -> Confined:
    """Make ``argv`` ready to run under bubblewrap. Raises OSError where descriptors run out."""
    rooted = [protection(root, policy.protected, policy.writable) for root in policy.roots]
    found = gaps(policy, rung, rooted)
    status, status_end = os.pipe()
    flags = [*namespaces(policy, rung), *view(policy, rooted)]
    fds = [status_end]
    flags += ["--json-status-fd", str(status_end)]
    if seccomp.supported():
        fds.append(sealed("interlock-filter", _filter(policy, rung)))
        flags += ["--seccomp", str(fds[-1])]
    gate = None
    if policy.limits.of_processes:
        # Limits are set on the sandbox's first process, before it may go on to start the command:
        # set any earlier, they would count what the user runs outside.
        gate_end, gate = os.pipe()
        fds.append(gate_end)
        flags += ["--block-fd", str(gate_end)]
    # The caller's variables travel by descriptor: given to bwrap itself, LD_PRELOAD would run
    # outside the sandbox; given as flags, everyone on the machine could read them.
    settings = b"".join(
        os.fsencode(word) + b"\0" for k, v in policy.env.items() for word in ("--setenv", k, v)
    )
    if settings:
        fds.append(sealed("interlock-environment", settings))
        flags += ["--args", str(fds[-1])]
    env = base_environment(str(_TMP))
    shared = policy.network or not rung.network_namespace
    confined = Confined(
        env=env,
        cwd="/",
        backend="bwrap",
        enforcement="full" if not found & {"network", "kernel-surface"} else "partial",
        gaps=found,
        policy=policy,
        command=tuple(argv),
        errand=launcher.Errand(
            argv=[program, *flags, "--chdir", str(policy.start), "--", *argv],
            env=env,
            cwd="/",
            runner=True,
            # Abstract sockets live in the network that it shares here: a scope goes below it.
            landlock=landlock.scope_layer() if shared else None,
            witness=_witness(policy, rung, program),
            tasks=tasks(policy.limits, NAMESPACE_OWN),
            keep=tuple(fds),
        ),
        status=status,
        status_end=status_end,
        gate=gate,
        limits=rlimits(policy.limits, namespace=True),
    )
    confined.own(*fds, status, *(() if gate is None else (gate,)))
    return confined


def _witness(policy: Policy, rung: Rung, program: str) -> dict[str, Any] | None:
    """How a witness answers: what lies on a read-only mount is closed (S5)."""
    if not seccomp.supported():
        return None
    closed = not policy.network and rung.network_namespace
    return {
        "filter": seccomp.questions(network=closed),
        "calls": seccomp.names(),
        "always": [],
        "runner": os.path.realpath(program),
        "writable": None,
        "network": not closed,
    }


def _bind(flag: str, path: Path) -> list[str]:
    return [flag, str(path), str(path)]


def _covers(hidden: Sequence[Path], roots: Sequence[Path], workspace: Path) -> list[str]:
    """Flags that put nothing over each hidden path that the view would show."""
    flags: list[str] = []
    for path in hidden:
        if inside(path, (_TMP, _RUN)) and not inside(path, (*roots, workspace)):
            continue  # covered already, and a mount point here would show the name
        if kind(path) == "dir":
            flags += ["--perms", "0000", "--tmpfs", str(path), "--remount-ro", str(path)]
        else:
            # A device on a mount without devices: neither reading nor writing opens.
            flags += ["--ro-bind", "/dev/null", str(path)]
    return flags


def _filter(policy: Policy, rung: Rung) -> bytes:
    # In a network namespace of its own a command may use its loopback.
    internet = policy.network or rung.network_namespace
    return seccomp.assemble(seccomp.Filter(internet=internet, unix="ipc" not in policy.require))
