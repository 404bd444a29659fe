"""Seatbelt: macOS's own sandbox, by way of ``sandbox-exec``. Allows by default, denies writes."""

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from . import launcher
from .confined import Confined
from .policy import Policy, base_environment
from .protected import protection
from .rlimits import rlimits

PROGRAM = "/usr/bin/sandbox-exec"
GAPS = ("process-visibility", "signals", "leftover-processes", "unix-sockets")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/tty", "/dev/ptmx", "/dev/dtracehelper")


def absent() -> str | None:
    """Why Seatbelt cannot be used here, or None."""
    if sys.platform != "darwin":
        return "only macOS has Seatbelt"
    return None if os.access(PROGRAM, os.X_OK) else f"{PROGRAM} is missing"


def profile(policy: Policy, scratch: str) -> tuple[str, list[tuple[str, str]]]:
    """The profile's text, and its parameters. Paths are parameters: nothing is quoted into text."""
    rules = ["(version 1)", "(allow default)", "(deny file-write*)"]
    parameters: list[tuple[str, str]] = []

    def rule(text: str, path: Path | str) -> None:
        name = f"P{len(parameters)}"
        parameters.append((name, str(path)))
        rules.append(text.format(f'(param "{name}")'))

    for device in _DEVICES:
        rule("(allow file-write* (literal {}))", device)
    rules.append('(allow file-write* (regex #"^/dev/ttys[0-9]+$"))')
    for root in (*policy.roots, Path(os.path.realpath(scratch))):
        rule("(allow file-write* (subpath {}))", root)
    for root in policy.roots:
        guard = protection(root, policy.protected, policy.writable)
        for path in guard.readonly:
            rule("(deny file-write* (subpath {}))", path)
        for path in (*guard.pinned, *(p.parent for p in guard.readonly)):
            rule("(deny file-write-unlink (literal {}))", path)
    for path in policy.hidden:
        rule("(deny file-read* file-write* (subpath {}))", path)
        for parent in path.parents:
            rule("(deny file-write-unlink (literal {}))", parent)
    if not policy.network:
        rules.append("(deny network*)")
    return "\n".join(rules), parameters


def build(policy: Policy, argv: Sequence[str]) -> Confined:
    """Make ``argv`` ready to run under Seatbelt, with the launcher as its supervisor."""
    scratch = tempfile.mkdtemp(prefix="interlock-")
    text, parameters = profile(policy, scratch)
    defined = [word for name, path in parameters for word in ("-D", f"{name}={path}")]
    status, status_end = os.pipe()
    confined = Confined(
        env=base_environment(None),
        cwd="/",
        backend="seatbelt",
        enforcement="partial",
        gaps=frozenset(GAPS),
        policy=policy,
        command=tuple(argv),
        errand=launcher.Errand(
            argv=[PROGRAM, "-p", text, *defined, "--", *argv],
            env=base_environment(scratch) | dict(policy.env),
            cwd=str(policy.start),
            limits=rlimits(policy.limits, namespace=False),
            scratch=scratch,
        ),
        status=status,
        status_end=status_end,
        scratch=scratch,
    )
    confined.own(status, status_end)
    return confined
