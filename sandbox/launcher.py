"""How to start the launcher's processes: interpreter, code and description, each out of reach.

Their code (`interlock.sandbox.prepared`) travels as an anonymous file of compiled code that was
read when this module was imported. A command with a writable workspace that contains the virtual
environment can therefore not change what runs unconfined for the next command.
"""

import functools
import importlib.util
import marshal
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import cgroup
from .policy import Policy, inside
from .sealed import sealed

#: The modules of `interlock.sandbox.prepared`, each after those it imports.
_MODULES = ("kernel", "tree", "confining", "witness", "supervisor", "nursery", "boot")
_PACKAGE = "interlock.sandbox.prepared"
_SOURCES = {
    name: (Path(__file__).parent / "prepared" / f"{name}.py").read_bytes() for name in _MODULES
}
#: Puts the modules where their imports of each other find them, then begins.
_START = """
import marshal, sys
for name in ("interlock", "interlock.sandbox", PACKAGE):
    sys.modules[name] = type(sys)(name)
for name, code in marshal.loads(MODULES):
    module = sys.modules[PACKAGE + "." + name] = type(sys)(PACKAGE + "." + name)
    module.__package__ = PACKAGE
    exec(code, module.__dict__)
module.main()
"""


@dataclass(frozen=True)
class Errand:
    """What the launcher is to do, as plain data.

    argv, env, cwd: the command, or the runner that builds the sandbox for it.
    runner: whether it is such a runner, which writes status records of its own.
    landlock: a ruleset description, or None for none.
    seccomp: a filter's bytes, or None.
    witness: the filter that asks, and what to answer by (`interlock.sandbox.prepared.witness`); in
        place of ``seccomp`` where the kernel can, and then not both.
    hidden: (path, is a directory) pairs to cover in a mount namespace of the command's own.
    pinned: directories to make immovable there, outermost first.
    tasks: how many processes and threads there may be at once, the launcher's own included, where a
        control group can count them; None leaves them alone.
    scratch: a private temporary directory to delete afterwards.
    keep: descriptors that the command is to have, by number.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    runner: bool = False
    landlock: dict[str, Any] | None = None
    seccomp: bytes | None = None
    witness: dict[str, Any] | None = None
    hidden: Sequence[tuple[str, bool]] = ()
    pinned: Sequence[str] = ()
    limits: Sequence[tuple[int, int, int]] = ()
    tasks: int | None = None
    scratch: str | None = None
    keep: Sequence[int] = ()

    def described(self, **more: object) -> bytes:
        """The errand as the launcher's processes read it."""
        umask = os.umask(0o077)
        os.umask(umask)
        description = {
            "argv": [os.fsencode(a) for a in self.argv],
            "env": {os.fsencode(k): os.fsencode(v) for k, v in self.env.items()},
            "cwd": self.cwd,
            "runner": self.runner,
            "landlock": self.landlock,
            "seccomp": self.seccomp,
            "witness": self.witness,
            "hidden": list(self.hidden),
            "pinned": list(self.pinned),
            "limits": list(self.limits),
            "tasks": self.tasks,
            "group": None,
            "scratch": self.scratch,
            "keep": list(self.keep),
            "umask": umask,
        }
        return marshal.dumps(description | more, 2)


def interpreter() -> str:
    """The real path of the running interpreter, past the links of a virtual environment."""
    return os.path.realpath(sys.executable)


def is_writable(policy: Policy) -> bool:
    """Whether the command could replace the interpreter that starts the next launcher."""
    return inside(Path(interpreter()), policy.roots)


def start(
    errand: Errand, *, status: int, alive: int, group: str | None = None, supervise: bool = True
) -> tuple[list[str], tuple[int, ...]]:
    """The argv of a process that runs ``errand`` once, and the new descriptors that it needs.

    status: where records go. alive: its end ends the command. group: the control group to count
    processes in. supervise: stay as the command's supervisor; otherwise become the command (for a
    runner that supervises itself).
    """
    told = errand.described(
        status=status, alive=alive, group=group, supervise=supervise, host=os.getpid()
    )
    return _argv(told)


def start_guardian(control: int) -> tuple[list[str], tuple[int, ...]]:
    """The argv of the guardian, and the new descriptors that it needs besides ``control``."""
    told = {"control": control, "host": os.getpid(), "groups": cgroup.place()}
    return _argv(marshal.dumps(told, 2))


def _argv(told: bytes) -> tuple[list[str], tuple[int, ...]]:
    script = sealed("interlock-launcher", _code())
    description = sealed("interlock-errand", told)
    path = f"/proc/self/fd/{script}" if sys.platform == "linux" else f"/dev/fd/{script}"
    argv = [interpreter(), "-I", "-S", "-E", path, str(description)]
    return argv, (script, description)


@functools.cache
def _code() -> bytes:
    """The code as the bytes of a ``.pyc`` file: a memory file has no cache next to it."""
    modules = [
        (name, compile(source, f"interlock-{name}", "exec", dont_inherit=True))
        for name, source in _SOURCES.items()
    ]
    start = _START.replace("PACKAGE", repr(_PACKAGE)).replace(
        "MODULES", repr(marshal.dumps(modules))
    )
    code = compile(start, "interlock-launcher", "exec", dont_inherit=True)
    return importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code)
