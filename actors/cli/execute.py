"""``interlock exec``: one command under the sandbox, with the shell's own statuses."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, Root, root_of

if TYPE_CHECKING:
    from interlock.sandbox.policy import Policy
    from interlock.sandbox.run import Outcome

#: How bubblewrap begins to say that it found nothing to start, where it has set all up.
_NO_PROGRAM = "bwrap: execvp "
MODES = ("read-only", "workspace-write", "danger-full-access")
#: Exit statuses of our own, as `timeout`, `env` and shells use them.
TIMED_OUT, SANDBOX_FAILED, NOT_EXECUTABLE, NOT_FOUND = 124, 125, 126, 127


Argv = Annotated[list[str], typer.Argument(metavar="-- ARGV", help="The command.")]
ModeName = Annotated[
    str, typer.Option(help="read-only, workspace-write or danger-full-access (no sandbox at all).")
]
Net = Annotated[bool, typer.Option("--net", help="Let it reach the network.")]
Workspace = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Its working directory and workspace (default: this one)."),
]
Timeout = Annotated[float | None, typer.Option(metavar="SECONDS", help="End it after this long.")]
Writable = Annotated[
    list[Path] | None,
    typer.Option(metavar="DIR", help="Another directory to write in (workspace-write)."),
]
Variables = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Pass on this environment variable, or NAME=VALUE."),
]


def execute(
    argv: Argv,
    mode: ModeName = "read-only",
    net: Net = False,
    cwd: Workspace = None,
    timeout: Timeout = None,
    writable: Writable = None,
    env: Variables = None,
    root: Root = None,
    as_json: Json = False,
) -> int:
    """Run one command under the sandbox.

    It has your terminal's input and output. It sees this system read-only, its workspace (the
    working directory) writable in workspace-write, no network unless --net, none of your
    environment but a harmless few variables unless --env, and never Interlock's logs and sockets.
    Nothing it started is left when it ends.

    Exit status: the command's own; 128+N if signal N ended it; 124 after --timeout; 125 if the
    sandbox could not be set up or failed; 126 not executable; 127 not found. What the sandbox
    refused is said on stderr and changes no status.

    \b
    Examples:
      interlock exec -- git log -3
      interlock exec --mode workspace-write -- make test
      interlock exec --mode workspace-write --net --timeout 300 -- npm install
      interlock exec --json -- sh -c 'echo hi; touch /etc/x'
    """
    from interlock.sandbox import PolicyError, SandboxUnavailable

    from .output import CommandFailed, emit, explain

    if mode not in MODES:
        raise CommandFailed(f"--mode {mode!r} is not one of {', '.join(MODES)}", 2)
    if timeout is not None and timeout <= 0:
        raise CommandFailed("--timeout is a positive number of seconds", 2)
    variables = _variables(env or [])
    try:
        policy = _policy(mode, cwd or Path(), writable or [], variables, net, root_of(root))
        outcome = _captured(argv, policy, timeout) if as_json else _run(argv, policy, timeout)
    except (PolicyError, SandboxUnavailable) as error:
        if as_json:
            emit(_refusal(error, mode))
        explain(str(error))
        return SANDBOX_FAILED
    if as_json:
        emit(_document(outcome, policy))
    _say(outcome, policy)
    return status(outcome)


def status(outcome: Outcome) -> int:
    """Return the exit status for how a command ended."""
    match outcome.status:
        case "not-found":
            return NOT_FOUND
        case "not-executable":
            return NOT_EXECUTABLE
        case "sandbox-failed" | "lost":
            return SANDBOX_FAILED
        case "timeout":
            return TIMED_OUT
        case _ if outcome.signal is not None:
            return 128 + outcome.signal
        case _:
            return outcome.exit_code if outcome.exit_code is not None else SANDBOX_FAILED


def _policy(
    mode: str,
    cwd: Path,
    writable: list[Path],
    variables: dict[str, str],
    net: bool,
    root: Path,
) -> Policy:
    from interlock.backends.paths import default_root
    from interlock.sandbox import Mode, Policy

    from ..runtime_dir import base_directory

    # S6: logs, sockets and the answerer's key, also where the workspace contains them.
    hidden = (root, default_root(), base_directory())
    return Policy(
        mode=Mode(mode),
        workspace=cwd,
        writable=() if mode == Mode.READ_ONLY else tuple(writable),
        hidden=hidden,
        network=net,
        env=variables,
    )


def _variables(names: list[str]) -> dict[str, str]:
    """X5: only what was named reaches the command."""
    import os

    from .output import CommandFailed

    variables = {}
    for given in names:
        name, equals, value = given.partition("=")
        if not name:
            raise CommandFailed(f"--env {given!r} names no variable", 2)
        if not equals and name not in os.environ:
            raise CommandFailed(f"--env {name}: there is no such variable here", 2)
        variables[name] = value if equals else os.environ[name]
    return variables


def _run(argv: list[str], policy: Policy, timeout: float | None) -> Outcome:
    """Run with our own streams. What it writes to stderr passes through us, to be looked at."""
    from dataclasses import replace

    from interlock.sandbox import Mode, run
    from interlock.sandbox.denial import evidence

    from .tee import ErrorTee

    if policy.mode is Mode.DANGER_FULL_ACCESS:
        return run(argv, policy, timeout=timeout, stdio="inherit")
    with ErrorTee() as tee:
        outcome = run(argv, policy, timeout=timeout, stdio="inherit")
    last = tee.end.decode(errors="replace").strip().rpartition("\n")[2]
    if (
        outcome.status == "sandbox-failed"
        and last.startswith(_NO_PROGRAM)
        and last.endswith("No such file or directory")
    ):
        # The command never ran, so these are the runner's own words: a program that the sandbox
        # hides (in the host's /tmp) is not there for it.
        return replace(
            outcome, status="not-found", message=f"{argv[0]} was not found in the sandbox"
        )
    if outcome.status == "exited" and outcome.exit_code:
        # S5: only a guess from its words, so it is said and decides nothing.
        return replace(outcome, hint=evidence(tee.end, policy, outcome.backend))
    return outcome


def _captured(argv: list[str], policy: Policy, timeout: float | None) -> Outcome:
    from interlock.sandbox import run

    return run(argv, policy, timeout=timeout)


def _say(outcome: Outcome, policy: Policy) -> None:
    from interlock.sandbox import Mode

    from .output import explain

    if outcome.status == "denied":
        explain(f"the sandbox ({outcome.backend}) refused {outcome.evidence}")
    elif outcome.hint is not None:
        explain(f"the sandbox ({outcome.backend}) may have refused something: {outcome.hint}")
    elif outcome.status not in ("exited", "signalled"):
        explain(outcome.message)
    if policy.mode is Mode.DANGER_FULL_ACCESS:
        explain("this command was not confined (danger-full-access)")


def _document(outcome: Outcome, policy: Policy) -> dict[str, Any]:
    return {
        "status": outcome.status,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "stdout": outcome.stdout.text(),
        "stderr": outcome.stderr.text(),
        "stdout_bytes": outcome.stdout.total,
        "stderr_bytes": outcome.stderr.total,
        "duration_s": round(outcome.duration, 3),
        "mode": str(policy.mode),
        "backend": outcome.backend,
        "enforcement": outcome.enforcement,
        "gaps": sorted(outcome.gaps),
        "evidence": outcome.evidence,
        "refused": list(outcome.refused),
        "hint": outcome.hint,
        "code": _CODES.get(outcome.status),
        "message": outcome.message,
    }


_CODES = {
    "denied": "SANDBOX_DENIED",
    "sandbox-failed": "SANDBOX_UNAVAILABLE",
    "lost": "TOOL_OUTCOME_UNKNOWN",
}


def _refusal(error: Exception, mode: str) -> dict[str, Any]:
    return {
        "status": "refused",
        "exit_code": None,
        "signal": None,
        "mode": mode,
        "code": getattr(error, "code", None),
        "message": str(error),
    }
