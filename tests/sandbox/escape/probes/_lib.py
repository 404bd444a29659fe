"""What the probes share: where the attack's targets are, and how a result is printed."""

import ctypes
import os
import sys

libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
WS, OUT, TAG, ABS = (os.environ.get(name, "") for name in ("WS", "OUT", "TAG", "ABS"))
HIDDEN, PORT = os.environ.get("HIDDEN", ""), int(os.environ.get("PORT", "0"))
HOSTPID = int(os.environ.get("HOSTPID", "0"))
TMP = os.environ.get("TMPDIR", "/tmp")


def done(escaped, why=""):
    """Print the result and leave."""
    print("RESULT", "ESCAPE" if escaped else "BLOCKED", why, flush=True)
    sys.exit(0)


def attempt(action):
    """Escaped where ``action`` raises nothing and returns nothing false."""
    try:
        returned = action()
    except OSError as error:
        done(False, error)
    done(returned is None or bool(returned), returned)


def syscall(number, *arguments):
    """A raw system call; raises OSError. Numbers and pointers go as 64 bits."""
    packed = [
        a if isinstance(a, (bytes, ctypes.Array)) or a is None else ctypes.c_long(a)
        for a in arguments
    ]
    result = libc.syscall(ctypes.c_long(number), *packed)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
