"""``python -m tests.simulation``: runs by the thousand, one run to read, bugs to find."""

from __future__ import annotations

import argparse
import sys
from time import monotonic

from .mutate import mutants
from .planted import PLANTED
from .runs import account, many, one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, help="the first one's number")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--replay", type=int, metavar="SEED", help="show what happens in one run")
    parser.add_argument("--planted", action="store_true", help="plant each bug, and find it")
    parser.add_argument("--mutate", action="store_true", help="take the commit path apart")
    told = parser.parse_args()
    if told.replay is not None:
        return replay(told.replay)
    if told.planted:
        return planted(told.runs, told.seed)
    if told.mutate:
        return mutate(told.runs, told.seed)
    return search(told.seed, told.runs, told.jobs)


def search(seed: int, runs: int, jobs: int) -> int:
    """Lead the runs; 1 where something is wrong."""
    begin, wrong = monotonic(), 0
    for found in many(seed, runs, jobs):
        for each in found:
            wrong += 1
            say(f"seed {each.seed}: " + "; ".join(each.violations))
    seconds = monotonic() - begin
    say(f"{runs} runs, {wrong} with violations, {runs / seconds:.0f} a second")
    return 1 if wrong else 0


def replay(seed: int) -> int:
    """Print one run."""
    lines, violations = account(seed)
    for line in lines:
        say(line)
    for violation in violations:
        say(f"VIOLATION {violation}")
    return 1 if violations else 0


def planted(runs: int, seed: int) -> int:
    """Plant each bug in turn; 1 where one is not found."""
    missed = 0
    say(f"{'bug':44}{'found at run':>13}  as")
    for name, plant in PLANTED.items():
        with plant():
            found = next(
                ((n, wrong) for n in range(runs) if (wrong := one(seed + n))), (None, ["not found"])
            )
        missed += found[0] is None
        say(f"{name:44}{'-' if found[0] is None else found[0] + 1:>13}  {found[1][0][:90]}")
    return 1 if missed else 0


def mutate(runs: int, seed: int) -> int:
    """Try every mutant of the commit path; print those that no run notices."""
    tried = survived = 0
    for mutant in mutants():
        tried += 1
        with mutant.made:
            noticed = any(one(seed + n) for n in range(runs))
        if not noticed:
            survived += 1
            say(f"{mutant.owner}.{mutant.function}, line {mutant.line}: {mutant.what}")
    say(f"{tried} mutants, {survived} survive {runs} runs")
    return 0


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
