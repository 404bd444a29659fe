"""How to start the launcher script: interpreter, script and description, each out of reach.

The script travels as an anonymous file of compiled code that was read when this module was
imported. A command with a writable workspace that contains the virtual environment can therefore
not change what runs unconfined for the next command.
"""

import importlib.util
import marshal
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .confined import sealed
from .policy import Policy, inside

_SCRIPT = Path(__file__).with_name("landlock_exec.py")
_SOURCE = _SCRIPT.read_bytes()
_lock = threading.Lock()
_compiled: bytes | None = None


@dataclass(frozen=True)
class Errand:
    """What the launcher is to do, as plain data.

    supervise: stay as the command's supervisor; otherwise become the command (for a runner that
        supervises itself).
    landlock: a ruleset description, or None for none.
    seccomp: a filter's bytes, or None.
    hidden: (path, is a directory) pairs to cover in a mount namespace of the command's own.
    pinned: directories to make immovable there, outermost first.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    supervise: bool = True
    landlock: dict[str, Any] | None = None
    seccomp: bytes | None = None
    hidden: Sequence[tuple[str, bool]] = ()
    pinned: Sequence[str] = ()
    limits: Sequence[tuple[int, int, int]] = ()
    scratch: str | None = None
    status: int = -1
    alive: int = -1
    #: Extra descriptors that the runner needs, for errands without supervision.
    keep: Sequence[int] = field(default=())


def interpreter() -> str:
    """The real path of the running interpreter, past the links of a virtual environment."""
    return os.path.realpath(sys.executable)


def is_writable(policy: Policy) -> bool:
    """Whether the command could replace the interpreter that starts the next launcher."""
    return inside(Path(interpreter()), policy.roots)


def start(errand: Errand) -> tuple[list[str], tuple[int, ...]]:
    """The argv that runs ``errand``, and the descriptors it needs: the first two are new."""
    description = {
        "argv": [os.fsencode(a) for a in errand.argv],
        "env": {os.fsencode(k): os.fsencode(v) for k, v in errand.env.items()},
        "cwd": errand.cwd,
        "supervise": errand.supervise,
        "landlock": errand.landlock,
        "seccomp": errand.seccomp,
        "hidden": list(errand.hidden),
        "pinned": list(errand.pinned),
        "limits": list(errand.limits),
        "scratch": errand.scratch,
        "status": errand.status,
        "alive": errand.alive,
        "host": os.getpid(),
    }
    script = sealed("interlock-launcher", _code())
    told = sealed("interlock-errand", marshal.dumps(description, 2))
    path = f"/proc/self/fd/{script}" if sys.platform == "linux" else f"/dev/fd/{script}"
    argv = [interpreter(), "-I", "-S", "-E", path, str(told)]
    mine = tuple(fd for fd in (errand.status, errand.alive) if fd >= 0)
    return argv, (script, told, *mine, *errand.keep)


def _code() -> bytes:
    """The script as the bytes of a ``.pyc`` file: a memory file has no cache next to it."""
    global _compiled  # noqa: PLW0603 compiled once per process
    with _lock:
        if _compiled is None:
            code = compile(_SOURCE, "interlock-launcher", "exec", dont_inherit=True)
            _compiled = importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)
        return _compiled
