"""``interlock run``."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from interlock.backends.errors import InterlockError

if TYPE_CHECKING:
    from ..hosting.host import Host


def run(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.toml", help="What to host; see below, and docs/run.md.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document at the end, nothing before.")
    ] = False,
) -> None:
    """Host the agents that a file describes, many at once, until all have finished.

    The same command again resumes after a kill or Ctrl-C: who had finished is skipped, who was
    interrupted is told what is known of its calls and goes on.

    Approvals are asked for on the terminal. Without one they wait for `interlock approvals`, unless
    the file says approval = "never".

    Ends with 0 if every agent finished, 1 if one failed, 130 after Ctrl-C.

    \b
    The file has these tables (docs/run.md has all of it):
      runtime   root, sandbox, approval, approval_timeout, workers, worker_env
      tools     use = "read_file", list_files, search, write_file, run_command,
                or "module:name"
      agents    id = the session's id; prompt, or prompts, a turn each; model;
                and count, system, cwd, sandbox, approval
      model     kind = "scripted", script = (text, calls, ...), or
                kind = "python", factory = "module:callable", options
    """
    import asyncio

    from ..hosting.file import FileError, read_file
    from ..hosting.host import host

    began = time.monotonic()
    made: list[Host] = []
    try:
        described = read_file(file)
        ask = not as_json and sys.stdin.isatty() and sys.stdout.isatty()
        host(described, quiet=as_json, ask=ask, made=made.append)
    except (FileError, InterlockError, OSError) as error:
        sys.stderr.write(f"interlock: {' '.join(str(error).split())}\n")
        raise typer.Exit(1) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        for hosting in made:
            _tell(hosting, file, time.monotonic() - began, as_json=as_json)
        sys.stderr.write(f"interlock: stopped; `interlock run {file}` goes on from here\n")
        raise typer.Exit(130) from None
    [hosting] = made
    _tell(hosting, file, time.monotonic() - began, as_json=as_json)
    if any(report.state == "failed" for report in hosting.reports.values()):
        raise typer.Exit(1)


def _tell(hosting: Host, file: Path, seconds: float, *, as_json: bool) -> None:
    reports = list(hosting.reports.values())
    states = ("finished", "skipped", "failed", "interrupted")
    counts = {state: sum(report.state == state for report in reports) for state in states}
    if as_json:
        document = {
            "file": str(file),
            "root": str(hosting.root),
            **counts,
            "resumed": sum(report.resumed for report in reports),
            "calls": sum(report.calls for report in reports),
            "agents": [report.document() for report in reports],
            "duration_s": round(seconds, 2),
        }
        json.dump(document, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    if counts["skipped"] == len(reports):
        sys.stdout.write(f"All {len(reports)} agents had finished before; nothing is left to do.\n")
        return
    for report in reports:
        if report.state == "failed":
            sys.stdout.write(f"{report.id} failed: {report.error}\n")
    words = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    calls = sum(report.calls for report in reports)
    sys.stdout.write(f"{len(reports)} agents: {words}; {calls} calls in {seconds:.1f} s.\n")
    sys.stdout.write(f"Their logs are in {hosting.root}.\n")
