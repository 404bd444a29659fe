"""Run one command under a policy and say truthfully how it went."""

import errno
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import denial
from .confine import confine, supervised
from .confined import Backend, Confined, Enforcement
from .output import Output
from .policy import Policy
from .probe import forget
from .watch import CancelToken, Ended, OnOutput, OnStarted, watch

Verdict = Literal[
    "exited",
    "signalled",
    "denied",
    "timeout",
    "cancelled",
    "exceeded",
    "lost",
    "not-found",
    "not-executable",
    "sandbox-failed",
]


@dataclass(frozen=True)
class Outcome:
    """How a command went (S5).

    status: ``exited`` by itself; ``signalled``: a signal ended it; ``denied``: it failed, and the
        sandbox refused it something (``evidence``); ``timeout``, ``cancelled``, ``exceeded`` (a
        limit on the disk): we ended it;
        ``lost``: it was started and what ran it was killed, so how it ended is not known;
        ``not-found``, ``not-executable``: the sandbox was up but there was nothing to start;
        ``sandbox-failed``: the sandbox itself broke and nothing ran.
    exit_code: the command's own status where it has one, 128 + N after signal N.
    signal: its number. Bubblewrap reports a status only, so there 128 + N counts as signal N.
    stdout, stderr: what it wrote, within the limit; empty where it wrote to our own streams.
    duration: seconds.
    backend, enforcement, gaps: what held it, see `Confined`.
    evidence: what was refused to a command that failed, in words; known from the answer that the
        sandbox gave, never from the command's words. That it failed for this is likely, not known.
    refused: everything that was refused and could have been done without the sandbox, also to a
        command that succeeded. What is only refused by the kernel is not in it (docs/sandbox.md).
    hint: what the command's complaint suggests where nothing is known; a guess, not a verdict.
    message: one sentence for a person or a model.
    """

    status: Verdict
    exit_code: int | None
    signal: int | None
    stdout: Output
    stderr: Output
    duration: float
    backend: Backend
    enforcement: Enforcement
    gaps: frozenset[str]
    evidence: str | None
    message: str
    refused: tuple[str, ...] = ()
    hint: str | None = None


def run(
    argv: Sequence[str],
    policy: Policy,
    *,
    timeout: float | None,
    grace: float = 2.0,
    cancel: CancelToken | None = None,
    output_limit: int = 262_144,
    on_output: OnOutput | None = None,
    stdin: bytes = b"",
    backends: Sequence[str] | None = None,
    on_started: OnStarted | None = None,
    stdio: Literal["capture", "inherit"] = "capture",
) -> Outcome:
    """Run ``argv`` under ``policy`` to its end, in the calling thread.

    timeout: seconds until the command is asked to stop (SIGTERM to its group); None waits for ever.
    grace: seconds between that and the end of everything it started (SIGKILL).
    cancel: a token that ends the run in the same way.
    output_limit: bytes kept of each stream, half head and half tail; the rest is read and dropped.
    on_output: gets ("stdout" or "stderr", bytes) as they come, in this thread; it must not block.
    stdin: what the command reads; nothing by default.
    backends: see `confine`.
    on_started: gets the process id of the sandbox's first process, in this thread.
    stdio: ``inherit`` gives the command our own three streams; nothing is then kept of them.

    Returns when the command has ended or was ended, and nothing that it started is left (S7), also
    while somebody still holds its pipe (S8). An exception in the middle, Ctrl-C included, ends the
    command first. Raises `SandboxUnavailable` and `PolicyError` before anything has run.
    """
    confined = confine(argv, policy, backends=backends)
    if confined.backend == "none" and sys.platform != "win32":
        supervised(confined)
    ended = watch(
        confined,
        timeout=timeout,
        grace=grace,
        cancel=cancel,
        output_limit=output_limit,
        on_output=on_output,
        on_started=on_started,
        stdin=stdin,
        inherit=stdio == "inherit",
    )
    return _outcome(ended, confined)


def _outcome(ended: Ended, confined: Confined) -> Outcome:
    status, message, evidence = _verdict(ended, confined)
    if status == "sandbox-failed":
        forget()
    code, number = _code(ended)
    ran = status in ("exited", "denied", "signalled", "timeout", "cancelled", "exceeded")
    return Outcome(
        status=status,
        exit_code=code if ran else None,
        signal=number if ran else None,
        stdout=ended.stdout,
        stderr=ended.stderr,
        duration=ended.duration,
        backend=confined.backend,
        enforcement=confined.enforcement,
        gaps=confined.gaps,
        evidence=evidence,
        message=message,
        refused=tuple(str(refusal) for refusal in ended.status.refused),
        hint=_hint(ended, confined) if status == "exited" and code else None,
    )


def _hint(ended: Ended, confined: Confined) -> str | None:
    complaint = ended.stderr.head + ended.stderr.tail
    return denial.evidence(complaint, confined.policy, confined.backend)


def _code(ended: Ended) -> tuple[int | None, int | None]:
    """The command's exit status, and the signal that ended it if one did."""
    code, number = ended.status.exit_code, ended.status.signal
    if code is not None and number is None and code > 128:
        number = code - 128 if code - 128 in set(signal.Signals) else None
    return code, number or None


def _verdict(ended: Ended, confined: Confined) -> tuple[Verdict, str, str | None]:
    """Status, message and evidence, from the status records first (S5)."""
    name = confined.command[0]
    if ended.end == "cancelled":
        return "cancelled", f"{name} was cancelled and ended with everything it started", None
    if ended.end == "timeout":
        return "timeout", f"{name} took longer than allowed and was ended", None
    if ended.end == "exceeded":
        return "exceeded", f"{name} was ended with everything it started: {ended.error}", None
    if not ended.status.ran:
        if _was_lost(ended, confined):
            return "lost", f"{name} was started, but what ran it was killed", None
        return *_not_started(ended, confined), None
    code, number = _code(ended)
    if number is not None:
        return "signalled", f"{name} was ended by {_signal_name(number)}", None
    evidence = denial.counted(ended.status.refused) if code != 0 else None
    if evidence is not None:
        return "denied", f"{name} exited with {code}; the sandbox refused {evidence}", evidence
    return "exited", f"{name} exited with {code}", None


def _was_lost(ended: Ended, confined: Confined) -> bool:
    """Whether the command may have run although nothing is known of its end (F5)."""
    status = ended.status
    if confined.backend == "bwrap":
        # Its own runner was up and then killed, or whoever watched that was.
        killed = (status.runner or ended.runner_code or 0) < 0
        return status.child is not None and (killed or not status.over)
    return status.started


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _not_started(ended: Ended, confined: Confined) -> tuple[Verdict, str]:
    """Why the command never ran. What is on the error stream came from the runner, then."""
    said = ended.stderr.text().strip().splitlines()
    last = said[-1] if said else ""
    error = ended.status.exec_error
    if error is None and confined.backend == "bwrap" and ended.status.child is not None:
        if last.startswith("bwrap: execvp "):
            gone = (os.strerror(errno.ENOENT), os.strerror(errno.ENOTDIR))
            error = errno.ENOENT if last.endswith(gone) else errno.EACCES
        elif not said and not _can_start(confined):
            error = errno.EACCES  # its words went to our own streams; the look below decides
    if error is not None:
        return _no_program(confined, error)
    reason = ended.error or ended.status.failed or last or _runner_end(ended)
    message = (
        f"the sandbox ({confined.backend}) failed, {confined.command[0]} did not run: {reason}"
    )
    return "sandbox-failed", message


def _no_program(confined: Confined, error: int) -> tuple[Verdict, str]:
    name = confined.command[0]
    # A directory in PATH that may not be searched makes EACCES of a name that is nowhere.
    missing = error in (errno.ENOENT, errno.ENOTDIR) or not any(
        os.path.lexists(path) for path in _candidates(confined)
    )
    if missing:
        return "not-found", f"{name} was not found in the sandbox"
    return "not-executable", f"{name} is not executable in the sandbox: {os.strerror(error)}"


def _can_start(confined: Confined) -> bool:
    return any(os.access(path, os.X_OK) and path.is_file() for path in _candidates(confined))


def _candidates(confined: Confined) -> list[Path]:
    """Where the command's program would be looked for."""
    name, start = confined.command[0], confined.policy.start
    if "/" in name:
        return [start / name]
    search = confined.policy.env.get("PATH", confined.env.get("PATH", os.defpath))
    return [start / directory / name for directory in search.split(os.pathsep)]


def _runner_end(ended: Ended) -> str:
    code = ended.runner_code
    if code is not None and code < 0:
        return f"its runner was ended by {_signal_name(-code)}"
    return f"its runner ended with {code} and no status"
