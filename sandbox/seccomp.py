"""A system call filter, assembled by hand: no library, about 150 instructions.

Default is allow. What is refused gets EPERM, except `clone3`, which gets ENOSYS so that the C
library falls back to `clone`, whose flags a filter can see. A foreign architecture is killed.
"""

import errno
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass

_LD_W_ABS, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NR, _ARCH, _ARG0 = 0, 4, 16
_X32 = 0x40000000

_CLONE_NEW = 0x7E020000  # all CLONE_NEW* that clone(2) takes
_UNSHARE_NEW = _CLONE_NEW | 0x80  # and CLONE_NEWTIME
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_FILE_FLAGS = (0x40086602, 0x401C5820)  # FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16

#: Numbers that all architectures share (those above 424).
_COMMON = {
    "pidfd_getfd": 438,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "fchmodat2": 452,
    "setxattrat": 463,
    "removexattrat": 466,
    "open_tree_attr": 467,
    "file_setattr": 469,
}
_X86_64 = {
    "ioctl": 16,
    "shmget": 29,
    "socket": 41,
    "clone": 56,
    "semget": 64,
    "msgget": 68,
    "chmod": 90,
    "fchmod": 91,
    "chown": 92,
    "fchown": 93,
    "lchown": 94,
    "ptrace": 101,
    "utime": 132,
    "vhangup": 153,
    "pivot_root": 155,
    "adjtimex": 159,
    "chroot": 161,
    "acct": 163,
    "settimeofday": 164,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "setxattr": 188,
    "lsetxattr": 189,
    "fsetxattr": 190,
    "removexattr": 197,
    "lremovexattr": 198,
    "fremovexattr": 199,
    "clock_settime": 227,
    "utimes": 235,
    "mq_open": 240,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "fchownat": 260,
    "futimesat": 261,
    "fchmodat": 268,
    "unshare": 272,
    "utimensat": 280,
    "perf_event_open": 298,
    "fanotify_init": 300,
    "open_by_handle_at": 304,
    "clock_adjtime": 305,
    "setns": 308,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
}
_AARCH64 = {
    "setxattr": 5,
    "lsetxattr": 6,
    "fsetxattr": 7,
    "removexattr": 14,
    "lremovexattr": 15,
    "fremovexattr": 16,
    "ioctl": 29,
    "umount2": 39,
    "mount": 40,
    "pivot_root": 41,
    "chroot": 51,
    "fchmod": 52,
    "fchmodat": 53,
    "fchownat": 54,
    "fchown": 55,
    "vhangup": 58,
    "quotactl": 60,
    "utimensat": 88,
    "acct": 89,
    "unshare": 97,
    "kexec_load": 104,
    "init_module": 105,
    "delete_module": 106,
    "clock_settime": 112,
    "ptrace": 117,
    "reboot": 142,
    "settimeofday": 170,
    "adjtimex": 171,
    "mq_open": 180,
    "msgget": 186,
    "semget": 190,
    "shmget": 194,
    "socket": 198,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "clone": 220,
    "swapon": 224,
    "swapoff": 225,
    "perf_event_open": 241,
    "fanotify_init": 262,
    "open_by_handle_at": 265,
    "clock_adjtime": 266,
    "setns": 268,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "finit_module": 273,
    "bpf": 280,
    "userfaultfd": 282,
    "kexec_file_load": 294,
}
_ARCHES = {
    "x86_64": (0xC000003E, _X86_64 | _COMMON),
    "aarch64": (0xC00000B7, _AARCH64 | _COMMON),
}

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


@dataclass(frozen=True)
class Filter:
    """Which families of calls to refuse beyond the ones that are always refused.

    internet: allow INET, INET6 and NETLINK sockets.
    unix: allow AF_UNIX sockets (socket pairs are always allowed).
    metadata: allow chmod, chown, times and extended attributes.
    ipc: allow System V and POSIX message IPC.
    """

    internet: bool
    unix: bool = True
    metadata: bool = True
    ipc: bool = True


def supported(machine: str | None = None) -> bool:
    """Whether there is a table for this machine's architecture."""
    return (machine or platform.machine()) in _ARCHES


def assemble(wanted: Filter, machine: str | None = None) -> bytes:
    """The filter as the bytes of a ``struct sock_filter`` array.

    Raises KeyError for an architecture without a table; `supported` tells beforehand.
    """
    arch, numbers = _ARCHES[machine or platform.machine()]
    program = [
        _op(_LD_W_ABS, _ARCH),
        _op(_JEQ, arch, 1, 0),
        _op(_RET, _KILL),
        _op(_LD_W_ABS, _NR),
    ]
    if numbers is _ARCHES["x86_64"][1]:
        program += [_op(_JGE, _X32, 0, 1), _op(_RET, _ERRNO | errno.ENOSYS)]
    program += [_op(_JEQ, numbers["clone3"], 0, 1), _op(_RET, _ERRNO | errno.ENOSYS)]
    refused = [*_ALWAYS]
    if not wanted.ipc:
        refused += _HOST_IPC
    if not wanted.metadata:
        refused += _METADATA
    for name in refused:
        if name in numbers:
            program += [_op(_JEQ, numbers[name], 0, 1), _op(_RET, _ERRNO | errno.EPERM)]
    for name, mask in (("clone", _CLONE_NEW), ("unshare", _UNSHARE_NEW)):
        program += _when(numbers[name], 0, [_op(_JSET, mask, 0, 1), _refuse()])
    controls = _TERMINAL_INJECTION + (() if wanted.metadata else _FILE_FLAGS)
    program += _when(
        numbers["ioctl"], 1, [op for c in controls for op in (_op(_JEQ, c, 0, 1), _refuse())]
    )
    program += _when(numbers["socket"], 0, _only(_families(wanted)))
    program.append(_op(_RET, _ALLOW))
    return b"".join(program)


def _families(wanted: Filter) -> list[int]:
    families = [_AF_UNIX] if wanted.unix else []
    if wanted.internet:
        families += [_AF_INET, _AF_INET6, _AF_NETLINK]
    return families


def _only(values: Iterable[int]) -> list[bytes]:
    allowed = [op for v in values for op in (_op(_JEQ, v, 0, 1), _op(_RET, _ALLOW))]
    return [*allowed, _refuse()]


def _when(number: int, argument: int, body: list[bytes]) -> list[bytes]:
    """Run ``body`` with the low half of an argument loaded if the call is ``number``."""
    load = _op(_LD_W_ABS, _ARG0 + 8 * argument)
    return [_op(_JEQ, number, 0, len(body) + 2), load, *body, _op(_RET, _ALLOW)]


def _refuse() -> bytes:
    return _op(_RET, _ERRNO | errno.EPERM)


def _op(code: int, k: int, true: int = 0, false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, true, false, k)
