"""``python -m tests.flood``: kill the writer in a flood, again and again."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from .rounds import Outcome, Plan, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flood", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="number of the first round")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument(
        "--events", type=int, default=10, help="acknowledged events a session, at least"
    )
    parser.add_argument("--lives", type=int, default=2, help="writers killed in a round")
    parser.add_argument(
        "--segment-size", type=int, help="in bytes (default: 256 KiB, 64 KiB for the table)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--durability", choices=("journal", "file"), default="journal")
    parser.add_argument(
        "--take-unsynced",
        nargs="?",
        const="all",
        default="nothing",
        choices=("all", "some"),
        help="cut the power: take away all that was not synced, or some of it by chance",
    )
    parser.add_argument(
        "--without-sync", default="", metavar="PLACE", help="leave the syncs of this place out"
    )
    parser.add_argument(
        "--table",
        action="store_true",
        help="leave each place out in turn (or that one), until it is missed",
    )
    told = parser.parse_args()
    plan = Plan(
        sessions=told.sessions,
        durability=told.durability,
        take=told.take_unsynced,
        lives=told.lives,
        events=told.events,
        segment_size=told.segment_size or (64 if told.table else 256) * 1024,
        without=told.without_sync,
    )
    numbers = range(told.first, told.first + told.rounds)
    return _table(plan, told.seed, numbers) if told.table else _rounds(plan, told.seed, numbers)


def _rounds(plan: Plan, seed: int, numbers: range) -> int:
    """Print a line a round; 1 where something acknowledged was missing."""
    lost = events = 0
    for number in numbers:
        started = time.monotonic()
        outcome = _round(plan, seed, number)
        lost += bool(outcome.losses)
        events += outcome.acknowledged
        print(f"round {number}: {_words(outcome)} ({time.monotonic() - started:.0f} s)", flush=True)
    print(f"{len(numbers)} rounds, {events} events acknowledged, {lost} rounds with losses")
    return 1 if lost else 0


def _round(plan: Plan, seed: int, number: int) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="interlock-flood-") as directory:
        return run(Path(directory).absolute(), plan, random.Random(f"{seed}-{number}"))


def _words(outcome: Outcome) -> str:
    words = (
        f"{outcome.acknowledged} events of {outcome.sessions} sessions acknowledged, "
        f"killed: {', '.join(outcome.deaths)}; "
    )
    if outcome.undone:
        words += f"{outcome.undone} unsynced changes taken away, "
    if not outcome.losses:
        return words + "nothing lost"
    return words + f"{len(outcome.losses)} LOSSES, the first: {outcome.losses[0]}"


def _table(plan: Plan, seed: int, numbers: range) -> int:
    """Print, for each place that syncs, in which round it is missed; 1 where one never is."""
    missed = 0
    plan = replace(plan, take="all")
    found = _round(replace(plan, without=""), seed, 0).places
    for place in [plan.without] if plan.without else found:
        times = found[place]
        losses: list[str] = []
        tried = 0
        rng = random.Random(f"{seed}-{place}")
        for number in numbers:
            losses = _round(_without(plan, place, number, times, rng), seed, number).losses
            tried += 1
            if losses:
                break
        missed += not losses
        words = f"not missed in {tried} rounds"
        if losses:
            words = f"missed in round {tried}, {len(losses)} times: {losses[0]:.160}"
        print(f"{place:<42} {times:>5} syncs, {words}", flush=True)
    return 1 if missed else 0


def _without(plan: Plan, place: str, number: int, times: int, rng: random.Random) -> Plan:
    """Leave a sync out, and die in turn at any moment, at the next write to what was not synced,
    or soon. In a small segment space is used again sooner than it is freed in the background.
    """
    size = rng.choice((plan.segment_size, plan.segment_size // 4))
    plan = replace(plan, without=place, segment_size=size)
    if number % 3 == 0:
        return plan
    # Each writer counts for itself.
    deadly, soon = rng.randint(1, max(1, times // plan.lives)), rng.randint(1, 12)
    if number % 3 == 1:
        return replace(plan, deadly=deadly, take="some")
    return replace(plan, deadly=deadly, grace=soon, take=rng.choice(("all", "some")))


if __name__ == "__main__":
    sys.exit(main())
