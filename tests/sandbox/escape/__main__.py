"""``python -m tests.sandbox.escape``: every probe against every backend, as a table.

For each backend, mode, network setting and user: how many attacks there were, how many reached the
host, and which. What may is decided from the policy; anything else ends with status 1. With
``--switches`` each protection is taken away in turn, and the probe that it stops must get through.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product

from interlock.sandbox import Mode, probe
from interlock.sandbox.cgroup import place

from .expected import Case
from .starting import Starter, starter, users

MODES = {"read-only": Mode.READ_ONLY, "workspace-write": Mode.WORKSPACE_WRITE}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sandbox.escape", description=__doc__)
    usable = [report.backend for report in probe() if report.usable]
    parser.add_argument("--backend", choices=usable, action="append", help="only this one")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this one")
    parser.add_argument("--network", choices=("off", "on"), action="append", help="only this")
    parser.add_argument("--user", choices=users(), action="append", help="only as this one")
    parser.add_argument("--switches", action="store_true", help="take each protection away in turn")
    told = parser.parse_args()
    with starter() as suite:
        backends, who = told.backend or usable, told.user or users()
        if told.switches:
            return switches(suite, backends, who)
        nets = told.network or ["off", "on"]
        return table(suite, [*product(backends, told.mode or MODES, nets, who)])


def table(suite: Starter, rows: list[tuple[str, str, str, str]]) -> int:
    """Print one line for each combination; 1 where something got through that must not."""
    say(f"{'backend':10}{'mode':17}{'net':5}{'user':6}{'probes':>7}{'through':>9}  which")
    problems = []
    for backend, mode, net, user in rows:
        case = Case(backend, MODES[mode], net == "on", user == "root", place() is not None)
        results = suite.run(backend, case.mode, user, network=case.network)
        through = sorted(n for n, result in results.items() if result.startswith("ESCAPE"))
        attacks = [n for n in results if not n.startswith("fn-") and n != "git-commit-works"]
        found = case.problems(results)
        counts = f"{len(attacks):>7}{len(through):>9}"
        say(f"{backend:10}{mode:17}{net:5}{user:6}{counts}  {', '.join(through)}")
        problems += [f"{backend} {mode} net {net} as {user}: {problem}" for problem in found]
    for problem in problems:
        say(f"NOT AS DECLARED: {problem}")
    say(f"{len(problems)} surprises")
    return 1 if problems else 0


def switches(suite: Starter, backends: list[str], who: list[str]) -> int:
    """Print one line for each protection; 1 where taking it away changes nothing."""
    say(f"{'backend':10}{'user':6}{'protection':28}{'with it':10}without it")
    dead = 0
    for backend, user in product(backends, who):
        for name, (held, open_) in suite.run(backend, "switches", user).items():
            alive = held == "BLOCKED" and open_.startswith("ESCAPE")
            dead += not alive
            mark = "" if alive else "   <- not what it is for"
            say(f"{backend:10}{user:6}{name:28}{held:10}{open_[:60]}{mark}")
    say(f"{dead} protections without effect")
    return 1 if dead else 0


def say(line: str) -> None:
    sys.stdout.write(line.rstrip() + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
