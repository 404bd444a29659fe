"""The command line: workloads, how many disks, which sync is left out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import TypeVar

from . import table
from .explore import Tally, explore
from .file_mode import FILE_MODE
from .journal_mode import JOURNAL_MODE
from .places import places
from .workload import Workload

WORKLOADS: Sequence[Workload] = (*FILE_MODE, *JOURNAL_MODE)

Done = TypeVar("Done")

#: Violations that are shown of each workload.
_SHOWN = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 where anything is violated or unexplained."""
    options = _parser().parse_args(arguments)
    chosen = [w.name for w in WORKLOADS if options.workload in w.name]
    if not chosen:
        sys.exit(f"no workload has {options.workload!r} in its name: see --help")
    if options.table:
        return _print_table(chosen, options.seed, options.jobs)
    if options.without_sync not in (None, *places().values()):
        sys.exit(f"no such place: {options.without_sync!r}; --table lists them")
    work = partial(
        _explore,
        states=options.states,
        seed=options.seed,
        without=options.without_sync,
    )
    return _print_tallies(_spread(work, chosen, options.jobs))


def _parser() -> argparse.ArgumentParser:
    names = "\n".join(f"  {workload.name}" for workload in WORKLOADS)
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description="Runs workloads on a disk in memory, makes every disk that a power cut could "
        "leave at each of their file operations, opens each, and checks it against what the "
        "clients were told. docs/crash-states.md states the assumptions and the bounds.",
        epilog=f"workloads:\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--states",
        type=int,
        default=3500,
        metavar="N",
        help="different disks for each workload, at least (default 3500)",
    )
    parser.add_argument("--workload", default="", metavar="W", help="only those with W in the name")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="another choice of disks")
    parser.add_argument(
        "--without-sync", metavar="PLACE", help="leave one sync of the product out (see --table)"
    )
    parser.add_argument(
        "--table", action="store_true", help="leave each sync out in turn and show what is reported"
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="processes (default 1)")
    return parser


def _explore(name: str, *, states: int, seed: int, without: str | None) -> Tally:
    return explore(_named(name), states, seed=seed, thorough=True, without=without)


def _row(place: str, *, by_name: dict[str, list[str]], seed: int) -> table.Row:
    return table.without(place, [_named(name) for name in by_name[place]], seed)


def _named(name: str) -> Workload:
    return next(workload for workload in WORKLOADS if workload.name == name)


def _spread(work: Callable[[str], Done], names: list[str], jobs: int) -> Iterator[Done]:
    if jobs <= 1:
        yield from map(work, names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(work, names)


def _print_tallies(tallies: Iterator[Tally]) -> int:
    line = "{:36} {:>6} {:>6} {:>9} {:>9} {:>8} {:>8} {:>10}"
    print(
        line.format(
            "workload", "runs", "cuts", "tried", "distinct", "results", "per s", "violations"
        )
    )
    total = Tally("all")
    for tally in tallies:
        _print_tally(line, tally)
        total.runs += tally.runs
        total.cuts += tally.cuts
        total.tried += tally.tried
        total.distinct += tally.distinct
        total.results += tally.results
        total.seconds += tally.seconds
        total.violations += tally.violations
    _print_tally(line, total, shown=0)
    return 1 if total.violations else 0


def _print_tally(line: str, tally: Tally, shown: int = _SHOWN) -> None:
    rate = round(tally.distinct / tally.seconds) if tally.seconds else 0
    numbers = (tally.runs, tally.cuts, tally.tried, tally.distinct, tally.results, rate)
    print(line.format(tally.workload, *numbers, len(tally.violations)), flush=True)
    for violation in tally.violations[:shown]:
        print(f"    {violation}")


def _print_table(names: list[str], seed: int, jobs: int) -> int:
    reached = table.reached_by([_named(name) for name in names], seed)
    by_name = {place: [w.name for w in workloads] for place, workloads in reached.items()}
    work = partial(_row, by_name=by_name, seed=seed)
    good = True
    for row in _spread(work, list(by_name), jobs):
        good = good and row.good
        print(f"{'ok ' if row.good else 'BAD'} {row.place}")
        print(f"    {row.workload or 'no workload'}: {row.report}", flush=True)
    return 0 if good else 1
