"""What a child process does to itself before it becomes a command: give up all it was not granted.

In this order: limits, masks, working directory, Landlock, no new privileges, no capabilities,
seccomp, exec.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys

from .kernel import (
    PR_CAP_AMBIENT,
    PR_CAPBSET_DROP,
    PR_CAPBSET_READ,
    PR_SET_NO_NEW_PRIVS,
    SetupError,
    call,
    libc,
    prctl,
    syscall,
)
from .tree import tasks_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernel import Spec

    Begin = Callable[[bytes, list[bytes], dict[bytes, bytes]], int | None]

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446
#: Rights that a rule on a file may carry; a directory may carry all.
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
#: Loading a filter, by machine.
SYS_SECCOMP = {"x86_64": 317, "aarch64": 277}
SET_FILTER, NEW_LISTENER, WAIT_KILLABLE = 1, 1 << 3, 1 << 5
#: The private temporary directory where it is memory: bytes and files that it may hold.
SCRATCH = "size=512m,nr_inodes=200k,mode=700"


def restrict_files(rules: Spec, *, rehearsal: bool = False) -> None:
    """Apply a Landlock ruleset: only what is granted below is possible from here on.

    rehearsal: do everything but apply it.
    """
    words = (rules["files"], rules["network"], rules["scopes"])
    attribute = (ctypes.c_uint64 * 3)(*words)
    size = 24 if rules["abi"] >= 6 else 16 if rules["abi"] >= 4 else 8
    ruleset = syscall(
        "landlock_create_ruleset",
        SYS_LANDLOCK_CREATE,
        ctypes.byref(attribute),
        ctypes.c_size_t(size),
        ctypes.c_uint32(0),
    )
    number = ctypes.c_long(SYS_LANDLOCK_ADD)
    for path, rights, required in rules["grants"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            if required:
                raise SetupError(f"{path}: {error.strerror}") from None
            continue
        granted = rights & rules["files"]
        for some in (granted, granted & FILE_RIGHTS):  # a file takes fewer than a directory
            beneath = some.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
            if not some or libc.syscall(number, ruleset, 1, beneath, 0) == 0:
                break
            problem = ctypes.get_errno()
            if problem != errno.EINVAL or some != granted:
                raise SetupError(f"landlock_add_rule {path}: {os.strerror(problem)}")
        os.close(fd)
    if rehearsal:
        os.close(ruleset)
        return
    no_new_privileges()
    if rules["files"]:
        # Not below a runner that makes namespaces: it needs its rights, and files are not ruled.
        drop_capabilities()
    syscall(
        "landlock_restrict_self",
        SYS_LANDLOCK_RESTRICT,
        ctypes.c_int(ruleset),
        ctypes.c_uint32(0),
    )
    os.close(ruleset)


def no_new_privileges() -> None:
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Empty every capability set, the bounding set too, so that exec as uid 0 regains none.

    Needed also below Landlock: with capabilities, memory of host processes is readable.
    """
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            break
    libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(4), 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", libc.capset, ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def filter_calls(program: bytes) -> None:
    """Install a seccomp filter given as the bytes of a ``sock_filter`` array."""
    call("seccomp", _load, program, 0)


def witnessed(program: bytes) -> int | None:
    """Install a filter and return the descriptor that its questions come by; None where not to be.

    There is one such descriptor for a process at most: a sandbox inside another has none.
    """
    listener = _load(program, NEW_LISTENER | WAIT_KILLABLE)
    return listener if listener >= 0 else None


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _load(program: bytes, flags: int) -> int:
    number = SYS_SECCOMP.get(os.uname().machine)
    if number is None:
        raise SetupError("seccomp: there is no table for this machine")
    prog = _Program(len(program) // 8, program)
    loaded: int = libc.syscall(
        ctypes.c_long(number),
        ctypes.c_uint(SET_FILTER),
        ctypes.c_uint(flags),
        ctypes.byref(prog),
    )
    return loaded


def own_mounts() -> None:
    """Move into a mount namespace of our own. Mounts made in it are seen by the command only."""
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(ctypes.c_int(CLONE_NEWNS)) < 0:
        call("unshare", libc.unshare, ctypes.c_int(CLONE_NEWNS | CLONE_NEWUSER))
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, text.encode())
            os.close(fd)
    mount("make mounts private", None, "/", None, MS_REC | MS_PRIVATE)


def mount(
    what: str, source: str | None, target: str, kind: str | None, flags: int, options: str = ""
) -> None:
    encoded = [None if t is None else os.fsencode(t) for t in (source, target, kind)]
    data = options.encode() or None
    call(f"{what} {target}", libc.mount, *encoded, ctypes.c_ulong(flags), data)


def mask(hidden: list[tuple[str, bool]], pinned: list[str], scratch: str | None) -> None:
    """Cover hidden paths with nothing, and pin the directories above so that none can be moved.

    The private temporary directory becomes memory of a limited size while we are at it.
    """
    own_mounts()
    for path in pinned:
        mount("pin", path, path, None, MS_BIND | MS_REC)
    locked = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    for path, directory in hidden:
        if directory:
            mount("hide", "tmpfs", path, "tmpfs", locked, "size=4k,mode=000")
        else:
            mount("hide", "/dev/null", path, None, MS_BIND)
            mount("hide", None, path, None, MS_REMOUNT | MS_BIND | locked)
    if scratch is not None:
        mount("temporary directory", "tmpfs", scratch, "tmpfs", MS_NOSUID | MS_NODEV, SCRATCH)


def limit_tasks(group: str | None, tasks: int | None) -> None:
    """Enter a control group that counts this process's descendants, and limit them."""
    if group is None:
        raise SetupError("the number of processes cannot be limited: there is no control group")
    most = b"max" if tasks is None else b"%d" % tasks
    for name, text in (("pids.max", most), ("cgroup.procs", b"0")):
        fd = os.open(f"{group}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        os.write(fd, text)
        os.close(fd)


def set_limits(limits: list[tuple[int, int, int]], *, shared: bool) -> None:
    """Set limits; with ``shared`` the user's other processes count, so they are added."""
    import resource

    # That of descriptors comes with the command (`allow_descriptors`): here some are still needed.
    for number, soft, hard in limits:
        if number == resource.RLIMIT_NOFILE:
            continue
        others = tasks_of(os.getuid()) if shared and number == resource.RLIMIT_NPROC else 0
        ceiling = resource.getrlimit(number)[1]
        most = hard + others
        if ceiling != resource.RLIM_INFINITY:
            most = min(most, ceiling)
        resource.setrlimit(number, (min(soft + others, most), most))


def allow_descriptors(limits: list[tuple[int, int, int]]) -> None:
    """Limit how many files the command may have open: the last thing before it starts."""
    import resource

    for number, soft, hard in limits:
        if number == resource.RLIMIT_NOFILE:
            ceiling = resource.getrlimit(number)[1]
            most = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
            resource.setrlimit(number, (min(soft, most), most))


def confine(spec: Spec) -> int | None:
    """Give up everything that the description does not grant. Cannot be undone.

    Returns the descriptor by which the filter asks, where it was wanted and could be had.
    """
    if spec["tasks"] is not None:
        limit_tasks(spec["group"], spec["tasks"])
    set_limits(spec["limits"], shared=not spec["runner"])
    if spec["hidden"]:
        mask(spec["hidden"], spec["pinned"], spec["scratch"])
    os.chdir(spec["cwd"])
    if spec["landlock"] is not None:
        restrict_files(spec["landlock"])
    listener = None
    if spec["witness"] is not None:
        no_new_privileges()
        listener = witnessed(spec["witness"]["filter"])
    if listener is None and spec["seccomp"] is not None:
        no_new_privileges()
        filter_calls(spec["seccomp"])
    return listener


def rehearse() -> None:
    """Do ahead of time what takes long the first time in a new process, and changes nothing.

    A forked process copies each page that it writes to, and Python writes to what it only reads.
    """
    version = ctypes.c_uint32(1)
    abi = libc.syscall(ctypes.c_long(SYS_LANDLOCK_CREATE), None, ctypes.c_size_t(0), version)
    rules = {"abi": abi, "files": (1 << 13) - 1, "network": 0, "scopes": 0}
    if abi > 0:
        try:
            restrict_files(rules | {"grants": [("/", 1 << 3, True)] * 2}, rehearsal=True)
        except (SetupError, OSError):
            pass
    _load(b"", 0)  # refused: it is empty
    libc.prctl(PR_CAPBSET_READ, ctypes.c_ulong(0), 0, 0, 0)
    os.waitpid(spawn([b"true"], {b"PATH": b"/bin:/usr/bin"}), 0)


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Replace this process by the command, as a shell would find and start it. Raises OSError."""
    _try_each(argv, env, os.execve)


def spawn(argv: list[bytes], env: dict[bytes, bytes]) -> int:
    """Start the command as a child, found as a shell would; returns its process id.

    The child borrows our memory until it is the command, so nothing is copied or torn down: half
    a millisecond less than to become it. Raises OSError.
    """
    return _try_each(argv, env, os.posix_spawn)


def _try_each(argv: list[bytes], env: dict[bytes, bytes], begin: Begin) -> int:
    problem = OSError(2, os.strerror(2))
    for path in candidates(argv[0], env):
        try:
            return begin(path, argv, env) or 0
        except OSError as error:
            if error.errno == 8:  # a script without an interpreter line, which a shell runs
                return begin(b"/bin/sh", [b"sh", path, *argv[1:]], env) or 0
            if error.errno not in (2, 20) or problem.errno == 2:
                problem = error
            if error.errno not in (2, 13, 20):
                break
    raise problem


def candidates(name: bytes, env: dict[bytes, bytes]) -> list[bytes]:
    """Where a command of this name may lie, in the order in which a shell looks."""
    if b"/" in name:
        return [name]
    path = env.get(b"PATH", b"/bin:/usr/bin")
    return [os.path.join(directory or b".", name) for directory in path.split(b":")]
