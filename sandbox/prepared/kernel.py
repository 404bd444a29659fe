"""Calls into the kernel and the C library, and descriptors sent from process to process."""

from __future__ import annotations

import _socket
import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: the import would double the start
    from collections.abc import Callable, Sequence
    from typing import Any

    Call = Callable[..., int]
    Spec = dict[str, Any]

LINUX = sys.platform == "linux"
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 4, 23, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
SYS_CLOSE_RANGE, CLOSE_RANGE_CLOEXEC = 436, 4

#: Bytes of one message between the launcher's processes; what is longer travels as a file.
MESSAGE = 4096
#: Descriptors that one message may carry.
_MOST_FDS = 64


class SetupError(Exception):
    """The sandbox could not be put up; the command was not started."""


libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, function: Call, *arguments: Any) -> int:
    """Call into the C library; raise `SetupError` with the reason where it refuses."""
    result: int = function(*arguments)
    if result < 0:
        raise SetupError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def syscall(what: str, number: int, *arguments: Any) -> int:
    """Make a system call that the C library has no name for."""
    return call(what, libc.syscall, ctypes.c_long(number), *arguments)


def prctl(what: str, option: int, *arguments: int) -> int:
    """``prctl`` with its arguments padded to the full number."""
    padded = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    return call(what, libc.prctl, ctypes.c_int(option), *padded)


def close_on_exec() -> None:
    """Leave what is executed next its three standard descriptors and nothing else."""
    if LINUX:
        first, last = ctypes.c_uint(3), ctypes.c_uint(0xFFFFFFFF)
        if libc.syscall(SYS_CLOSE_RANGE, first, last, ctypes.c_uint(CLOSE_RANGE_CLOEXEC)) == 0:
            return
    for name in os.listdir("/dev/fd"):
        try:
            if int(name) > 2:
                os.set_inheritable(int(name), False)
        except OSError:
            continue


def pair() -> tuple[_socket.socket, _socket.socket]:
    """Two connected sockets that keep messages apart and close on exec."""
    kind = _socket.SOCK_SEQPACKET if LINUX else _socket.SOCK_STREAM
    first, second = _socket.socketpair(_socket.AF_UNIX, kind)
    return first, second


def send(to: _socket.socket, message: bytes, fds: Sequence[int] = ()) -> None:
    """Send one message, with descriptors. Raises OSError where nobody is there any more."""
    packed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in fds)
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if fds else []
    to.sendmsg([message], ancillary, getattr(_socket, "MSG_NOSIGNAL", 0))


def receive(from_: _socket.socket) -> tuple[bytes, list[int]]:
    """Wait for one message and its descriptors; empty where the other end is gone."""
    room = _socket.CMSG_SPACE(4 * _MOST_FDS)
    try:
        flags = getattr(_socket, "MSG_CMSG_CLOEXEC", 0)
        message, ancillary, _, _ = from_.recvmsg(MESSAGE, room, flags)
    except ConnectionError:
        return b"", []
    packed = b"".join(
        data for level, kind, data in ancillary if kind == _socket.SCM_RIGHTS and level == 1
    )
    steps = range(0, len(packed) - len(packed) % 4, 4)
    return message, [int.from_bytes(packed[i : i + 4], sys.byteorder) for i in steps]
