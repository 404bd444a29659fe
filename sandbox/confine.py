"""The way in: turn a command and a policy into what to run instead (S1)."""

import os
from collections.abc import Sequence

from . import bwrap, landlock, launcher, seatbelt
from .confined import Confined
from .errors import SandboxUnavailable
from .policy import PROPERTIES, Mode, Policy, PolicyError, base_environment
from .probe import Finding, find, platform_backends
from .rlimits import rlimits, tasks


def confine(
    argv: Sequence[str], policy: Policy, *, backends: Sequence[str] | None = None
) -> Confined:
    """Make ``argv`` ready to run under ``policy``, with the first backend that holds it.

    backends: names to try in this order; by default all of the platform's. Each counts only after a
    try has shown that it confines here (S3).

    In mode ``danger-full-access`` the result is the caller's own argv, backend ``none`` and
    enforcement ``none``: not a sandbox (S2).

    Raises `SandboxUnavailable` where no backend holds the policy and what it requires,
    `PolicyError` for an empty or malformed argv, OSError where the process has no descriptors left.

    >>> with confine(["make"], Policy(Mode.WORKSPACE_WRITE, Path("."))) as confined:
    ...     confined.backend, confined.enforcement, confined.gaps
    """
    _check(argv)
    if policy.mode is Mode.DANGER_FULL_ACCESS:
        return _unconfined(argv, policy)
    tried: list[tuple[str, str]] = []
    for name in platform_backends() if backends is None else backends:
        finding = find(name)
        if not finding.report.usable:
            tried.append((name, finding.report.reason))
            continue
        confined = _build(finding, argv, policy)
        if missing := unmet(policy.require, confined.gaps):
            confined.close()
            tried.append((name, f"it cannot hold {missing} here"))
            continue
        return confined
    raise SandboxUnavailable(policy.mode, tried)


def unmet(require: frozenset[str], gaps: frozenset[str]) -> str:
    """Which requirements the gaps break, in words; empty where none."""
    return ", ".join(
        f"{name} ({', '.join(sorted(PROPERTIES[name] & gaps))})"
        for name in sorted(require)
        if PROPERTIES[name] & gaps
    )


def supervised(confined: Confined) -> Confined:
    """Put an unconfined command under the launcher, which limits it and ends all that it started.

    Takes ``confined`` over. It stays what it was: backend and enforcement ``none``.
    """
    if confined.backend != "none":
        return confined
    policy = confined.policy
    confined.errand = launcher.Errand(
        argv=confined.command,
        env=confined.env,
        cwd=str(policy.start),
        limits=rlimits(policy.limits, namespace=False),
        tasks=tasks(policy.limits, 1),
    )
    confined.env, confined.cwd = base_environment(None), "/"
    confined.status, confined.status_end = os.pipe()
    confined.own(confined.status, confined.status_end)
    return confined


def _check(argv: Sequence[str]) -> None:
    if isinstance(argv, str) or not argv or not argv[0]:
        raise PolicyError("a command is a non-empty list of words, the program first")
    for word in argv:
        if not isinstance(word, str) or "\0" in word:
            raise PolicyError(f"a command's words are text without NUL, not {word!r}")


def _build(finding: Finding, argv: Sequence[str], policy: Policy) -> Confined:
    if finding.rung is not None and finding.program is not None:
        program = bwrap.find(policy)
        if program is None:
            raise SandboxUnavailable(
                policy.mode, [("bwrap", f"{finding.program} lies where the command can write")]
            )
        return bwrap.build(policy, argv, finding.rung, program)
    if finding.features is not None:
        return landlock.build(policy, argv, finding.features)
    return seatbelt.build(policy, argv)


def _unconfined(argv: Sequence[str], policy: Policy) -> Confined:
    return Confined(
        env=base_environment(None) | dict(policy.env),
        cwd=str(policy.start),
        backend="none",
        enforcement="none",
        gaps=frozenset(),
        policy=policy,
        command=tuple(argv),
    )
