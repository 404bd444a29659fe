"""``interlock bench``: what a flush and a call cost on this machine."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..bench.measure import Measurement

app = typer.Typer(
    help="Measure what durability costs here, next to the bare disk.",
    no_args_is_help=True,
)

#: Most clients of one row: each is an open session with a lock, so with a descriptor.
_LIMIT = 10_000


def _counts(text: str) -> list[int]:
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no list of numbers such as 1,16,64") from None
    if counts[0] < 1 or counts[-1] > _LIMIT:
        raise typer.BadParameter(f"each number is between 1 and {_LIMIT}")
    return counts


_Sessions = Annotated[str, typer.Option(help="How many sessions, one row for each number.")]
_Agents = Annotated[str, typer.Option(help="How many agents, one row for each number.")]
_Seconds = Annotated[float, typer.Option(min=0.01, help="Time for measuring, in seconds.")]
_Root = Annotated[
    Path | None,
    typer.Option(
        help="A directory on the disk to measure; by default that of the session logs. The "
        "benchmark works in a directory of its own in it and removes that."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@app.command()
def flush(
    sessions: _Sessions = "1,16,64,256,1000",
    seconds: _Seconds = 25.0,
    root: _Root = None,
    peers: Annotated[
        bool,
        typer.Option("--peers", help="Measure SQLite and the harness's npm packages beside it."),
    ] = False,
    as_json: _Json = False,
) -> None:
    """Append one event and wait until it is durable, from each session at once.

    With the journal (interlock) and with a sync of each session's file (interlock-file), in the
    same rounds. A peer that is not there is left out with a word.

    \b
    Examples:
      interlock bench flush --sessions 1,256 --seconds 10
      interlock bench flush --peers --json
    """
    from ..bench.flush import bench_flush
    from .output import explain

    bench = partial(bench_flush, peers=peers, skipped=explain)
    _run("forced flush", bench, _counts(sessions), seconds, root, as_json)


@app.command()
def calls(
    agents: _Agents = "1,16,64,256",
    seconds: _Seconds = 25.0,
    root: _Root = None,
    as_json: _Json = False,
) -> None:
    """Call a tool that does nothing, from each agent at once: record, body in a worker, result.

    Example: interlock bench calls --agents 1,64 --json
    """
    from ..bench.calls import bench_calls

    _run("whole call, empty body", bench_calls, _counts(agents), seconds, root, as_json)


def _run(
    title: str,
    bench: Callable[[Path, Sequence[int], float], Measurement],
    counts: Sequence[int],
    seconds: float,
    root: Path | None,
    as_json: bool,
) -> None:
    from rich.console import Console

    from ..bench import report
    from ..bench.scratch import scratch

    aside = Console(stderr=True)
    waiting = aside.status(f"{title}: measuring for {seconds:g} s …")
    with scratch(root) as directory, waiting if aside.is_terminal else nullcontext():
        measured = bench(directory, counts, seconds)
    if as_json:
        sys.stdout.write(json.dumps(report.as_json(measured)) + "\n")
    else:
        _show(title, report.table(measured))


def _show(title: str, cells: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    heading, *rows = cells
    shown = Table(title=title, title_justify="left")
    for number, name in enumerate(heading):
        shown.add_column(name, justify="right" if number else "left")
    for row in rows:
        shown.add_row(*row)
    Console().print(shown)
