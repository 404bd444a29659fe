"""A system call filter, assembled by hand: no library, about 150 instructions.

Default is allow. What is refused gets EPERM, except `clone3`, which gets ENOSYS so that the C
library falls back to `clone`, whose flags a filter can see. A foreign architecture is killed.
"""

import errno
import functools
import platform
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .calls import ARCHES

_LD_W_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL, _ASK = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
_NR, _ARCH, _ARG0 = 0, 4, 16
_X32 = 0x40000000

_CLONE_NEW = 0x7E020000  # all CLONE_NEW* that clone(2) takes
_UNSHARE_NEW = _CLONE_NEW | 0x80  # and CLONE_NEWTIME
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FILE_FLAGS = (0x40086602, 0x401C5820)  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

#: Refused in every confined mode: namespaces and mounts, other processes' memory and descriptors,
#: io_uring (it passes filters by), keyrings (they outlive the sandbox), and kernel surface.
_ALWAYS = (
    *("setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "open_tree_attr"),
    *("move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "pidfd_getfd", "kcmp"),
    *("open_by_handle_at", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("keyctl", "add_key", "request_key", "bpf", "perf_event_open", "userfaultfd", "fanotify_init"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot"),
    *("swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "vhangup", "iopl", "ioperm"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime"),
)
#: What a namespace does under bubblewrap and only a filter can do under Landlock.
_HOST_IPC = ("shmget", "semget", "msgget", "mq_open")
#: Landlock does not see metadata; in read-only mode the filter refuses it instead.
_METADATA = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "fsetxattr"),
    *("setxattrat", "removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    "file_setattr",
)
#: Calls of these by path, which a witness can say the object of.
_ATTRIBUTES = (
    *("chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes"),
    *("utimensat", "futimesat", "setxattr", "lsetxattr"),
)
#: Calls that change which files there are, or what is in them. Opening is looked at more closely.
_CHANGES = (
    *("creat", "openat2", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link"),
    *("linkat", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2", "truncate"),
)
#: Calls that name a process or a thread whose share of the processors they change.
_SCHEDULES = ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr")
_OTHERS = (*_SCHEDULES, "setpriority", "ioprio_set", "prlimit64")
#: O_WRONLY, O_RDWR, O_CREAT, O_TRUNC: alike on both architectures.
_OPENS_TO_WRITE = 0o1103


@dataclass(frozen=True)
class Filter:
    """Which families of calls to refuse beyond the ones that are always refused.

    internet: allow INET, INET6 and NETLINK sockets.
    unix: allow AF_UNIX sockets (socket pairs are always allowed).
    metadata: allow chmod, chown, times and extended attributes.
    ipc: allow System V and POSIX message IPC.
    others: allow changes to other processes' limits, priorities and processors.
    asks: ask a witness before changes to files (and before the network where ``internet`` is off)
        instead of leaving them to the sandbox alone, and about what is refused of those anyway.
    """

    internet: bool
    unix: bool = True
    metadata: bool = True
    ipc: bool = True
    others: bool = True
    asks: bool = False


def supported(machine: str | None = None) -> bool:
    """Whether there is a table for this machine's architecture."""
    return (machine or platform.machine()) in ARCHES


@functools.cache
def assemble(wanted: Filter, machine: str | None = None) -> bytes:
    """The filter as the bytes of a ``struct sock_filter`` array.

    Raises KeyError for an architecture without a table; `supported` tells beforehand.
    """
    arch, numbers = ARCHES[machine or platform.machine()]
    program = [
        _op(_LD_W_ABS, _ARCH),
        _op(_JEQ, arch, 1, 0),
        _op(_RET, _KILL),
        _op(_LD_W_ABS, _NR),
    ]
    if numbers is ARCHES["x86_64"][1]:
        program += [_op(_JGE, _X32, 0, 1), _op(_RET, _ERRNO | errno.ENOSYS)]
    program += [_op(_JEQ, numbers["clone3"], 0, 1), _op(_RET, _ERRNO | errno.ENOSYS)]
    refused = [*_ALWAYS]
    if not wanted.ipc:
        refused += _HOST_IPC
    if not wanted.metadata:
        refused += [n for n in _METADATA if not (wanted.asks and n in _ATTRIBUTES)]
    for name in refused:
        if name in numbers:
            program += [_op(_JEQ, numbers[name], 0, 1), _op(_RET, _ERRNO | errno.EPERM)]
    if wanted.asks:
        program += _questions(numbers, attributes=not wanted.metadata, network=False)
    if not wanted.others:
        program += _own_process_only(numbers, asks=wanted.asks)
    for name, mask in (("clone", _CLONE_NEW), ("unshare", _UNSHARE_NEW)):
        program += _when(numbers[name], 0, [_op(_JSET, mask, 0, 1), _refuse()])
    controls = _TERMINAL_INJECTION + (() if wanted.metadata else _FILE_FLAGS)
    program += _when(
        numbers["ioctl"], 1, [op for c in controls for op in (_op(_JEQ, c, 0, 1), _refuse())]
    )
    program += _when(numbers["socket"], 0, _only(_families(wanted), wanted))
    program.append(_op(_RET, _ALLOW))
    return b"".join(program)


def _own_process_only(numbers: Mapping[str, int], *, asks: bool) -> list[bytes]:
    """Refuse what the kernel lets one do to any process of one's user.

    The caller itself is 0, and also its own number: the C library names a new thread by that when
    it sets a schedule for it, and a program that is refused this may give up. A filter cannot tell
    whose number it is, so a witness is asked; without one scheduling is left alone, and limits,
    which nobody sets for a thread, are refused.
    """
    program: list[bytes] = []
    other = _op(_RET, _ASK) if asks else _op(_RET, _ALLOW)
    for name in _SCHEDULES:
        program += _when(numbers[name], 0, [_op(_JEQ, 0, 1, 0), other])
    for name, whole_user in (("setpriority", 2), ("ioprio_set", 3)):
        who = [_op(_LD_W_ABS, _ARG0 + 8), _op(_JEQ, 0, 1, 0), other]
        program += _when(numbers[name], 0, [_op(_JEQ, whole_user, 0, 1), _refuse(), *who])
    if asks:  # also before another's limits are read
        return program + _when(numbers["prlimit64"], 0, [_op(_JEQ, 0, 1, 0), other])
    new_limit = [_op(_LD_W_ABS, _ARG0 + 16), _op(_JEQ, 0, 0, 2)]
    new_limit += [_op(_LD_W_ABS, _ARG0 + 20), _op(_JEQ, 0, 1, 0), _refuse()]
    whose = [_op(_JEQ, 0, len(new_limit), 0)]
    return program + _when(numbers["prlimit64"], 0, [*whose, *new_limit])


def _families(wanted: Filter) -> list[int]:
    families = [_AF_UNIX] if wanted.unix else []
    if wanted.internet:
        families += [_AF_INET, _AF_INET6, _AF_NETLINK]
    return families


def _only(values: Iterable[int], wanted: Filter) -> list[bytes]:
    ops = [op for v in values for op in (_op(_JEQ, v, 0, 1), _op(_RET, _ALLOW))]
    if wanted.asks and not wanted.internet:
        for family in (_AF_INET, _AF_INET6):
            ops += [_op(_JEQ, family, 0, 1), _op(_RET, _ASK)]
    return [*ops, _refuse()]


def _questions(numbers: Mapping[str, int], *, attributes: bool, network: bool) -> list[bytes]:
    """Ask before calls that change files, and before the network is addressed where ``network``."""
    asked = [*_CHANGES, *(_ATTRIBUTES if attributes else ())]
    asked += ["connect"] if network else []
    program: list[bytes] = []
    for name in asked:
        if name in numbers:
            program += [_op(_JEQ, numbers[name], 0, 1), _op(_RET, _ASK)]
    for name, argument in (("open", 1), ("openat", 2)):
        if name in numbers:
            program += _when(
                numbers[name], argument, [_op(_JSET, _OPENS_TO_WRITE, 0, 1), _op(_RET, _ASK)]
            )
    if network:
        program += _when(numbers["sendto"], 4, [_op(_JEQ, 0, 1, 0), _op(_RET, _ASK)])
    return program


@functools.cache
def questions(*, network: bool, machine: str | None = None) -> bytes:
    """A filter that refuses nothing by itself and asks a witness before changes to files.

    network: ask before the network is addressed too. For a runner that has a filter of its own.
    """
    arch, numbers = ARCHES[machine or platform.machine()]
    return b"".join(
        [
            _op(_LD_W_ABS, _ARCH),
            _op(_JEQ, arch, 1, 0),
            _op(_RET, _ALLOW),
            _op(_LD_W_ABS, _NR),
            *_questions(numbers, attributes=True, network=network),
            _op(_RET, _ALLOW),
        ]
    )


@functools.cache
def names(machine: str | None = None) -> dict[int, str]:
    """Number to name of every call that a witness can be asked about."""
    numbers = ARCHES[machine or platform.machine()][1]
    asked = (*_CHANGES, *_ATTRIBUTES, "open", "openat", "connect", "sendto", "socket", *_OTHERS)
    return {numbers[name]: name for name in asked if name in numbers}


@functools.cache
def refused_always(wanted: Filter) -> list[str]:
    """Names of calls that a witness has to refuse whatever they are about."""
    refused = [] if wanted.metadata else [*_ATTRIBUTES]
    return refused if wanted.internet else [*refused, "socket"]


def _when(number: int, argument: int, body: list[bytes]) -> list[bytes]:
    """Run ``body`` with the low half of an argument loaded if the call is ``number``."""
    load = _op(_LD_W_ABS, _ARG0 + 8 * argument)
    return [_op(_JEQ, number, 0, len(body) + 2), load, *body, _op(_RET, _ALLOW)]


def _refuse() -> bytes:
    return _op(_RET, _ERRNO | errno.EPERM)


def _op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, k)
