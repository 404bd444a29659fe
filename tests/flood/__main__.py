"""``python -m tests.flood``: kill the writer in a flood, again and again."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from .rounds import Outcome, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flood", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", choices=("journal", "file"), default="journal")
    parser.add_argument(
        "--take-unsynced",
        action="store_true",
        help="take every byte and name away that was not synced, before anything is opened again",
    )
    parser.add_argument("--without-sync", default="", metavar="PLACE", help="leave this sync out")
    parser.add_argument(
        "--table", action="store_true", help="leave each sync out in turn, until it is missed"
    )
    told = parser.parse_args()
    if told.table:
        return _table(told)
    lost = 0
    for number in range(told.rounds):
        outcome = _round(told, number, told.without_sync)
        lost += bool(outcome.losses)
        print(_line(number, outcome), flush=True)
    print(f"{told.rounds} rounds, {lost} with losses")
    return 1 if lost else 0


def _round(told: argparse.Namespace, number: int, without: str, *, deadly: bool = False) -> Outcome:
    rng = random.Random(f"{told.seed}-{number}")
    with tempfile.TemporaryDirectory(prefix="interlock-flood-") as directory:
        return run(
            Path(directory).absolute(),
            sessions=told.sessions,
            durability=told.durability,
            rng=rng,
            take=told.take_unsynced or told.table,
            without=without,
            deadly=deadly,
        )


def _line(number: int, outcome: Outcome) -> str:
    words = (
        f"round {number}: {outcome.acknowledged} acknowledged in {outcome.sessions} sessions, "
        f"{outcome.undone} unsynced operations taken away, "
    )
    if not outcome.losses:
        return words + "nothing lost"
    return words + f"{len(outcome.losses)} LOSSES, the first: {outcome.losses[0]}"


def _table(told: argparse.Namespace) -> int:
    """Print, for each place that syncs, how soon it is missed; 1 where one never is."""
    missed = 0
    found = _round(told, 0, "").places
    for place in found:
        loss, number = "", 0
        for number in range(1, told.rounds + 1):
            # Two ways to die, in turn: at any moment, and right after what was not synced.
            outcome = _round(told, number, place, deadly=number % 2 == 0)
            if outcome.losses:
                loss = outcome.losses[0]
                break
        missed += not loss
        print(f"{place:<40} {number:>3}  {loss or 'not missed'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
