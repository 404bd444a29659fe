"""Runs a workload until enough different disks were opened, and counts what was wrong."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from .cut import Tree, is_beside_the_point, is_temporary
from .notes import Outcome, judge
from .recovery import interrupt, recover
from .turns import in_one_thread, steady_names
from .workload import Moment, Stage, Workload

#: Disks made of one cut point in one run, at least and at most.
_LEAST, _MOST = 4, 400
#: One in so many disks is also opened with an interruption.
_INTERRUPTED = 16
#: Runs that bring no new disk, after which a workload has no more to give.
_FRUITLESS = 6
_MAX_RUNS = 400


@dataclass
class Tally:
    """What the exploration of one workload came to."""

    workload: str
    cuts: int = 0
    tried: int = 0
    distinct: int = 0
    results: int = 0
    runs: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    reached: set[str] = field(default_factory=set)


def explore(
    workload: Workload,
    states: int,
    *,
    seed: int = 0,
    thorough: bool = False,
    without: str | None = None,
) -> Tally:
    """Run a workload, a case after the other, until ``states`` different disks were opened.

    Disks differ if what can be recovered from differs: every file's bytes and name, but for
    temporary files and the lines in locks. All cut points of a run are visited, and if
    ``thorough`` all cases of the workload, so more may be opened. ``without`` is a place whose
    sync is left out; the first violation is then the last.
    """
    return _Exploration(workload, states, seed, thorough, without).run()


def cases(workload: Workload, seed: int) -> list[int]:
    """Return the numbers of a workload's cases, in an order of the seed's."""
    numbers = list(range(workload.runs))
    random.Random(f"{seed} cases").shuffle(numbers)
    return numbers


class _Exploration:
    def __init__(
        self, workload: Workload, states: int, seed: int, thorough: bool, without: str | None
    ) -> None:
        self._workload = workload
        self._states = states
        self._seed = seed
        self._without = without
        self._least_runs = workload.runs if thorough else 0
        self._known: dict[bytes, Outcome] = {}
        self._results: set[bytes] = set()
        self._draw = random.Random(f"{seed} disks {workload.name}")
        self.tally = Tally(workload.name)

    def run(self) -> Tally:
        tally, began, fruitless = self.tally, time.monotonic(), 0
        cases_first = cases(self._workload, self._seed)
        for number in chain(cases_first, range(len(cases_first), _MAX_RUNS)):
            before = tally.distinct
            stage = Stage(self._workload, number, self._seed, self._without)
            raised = stage.run()
            if raised is not None:
                tally.violations.append(f"run {number} itself: {raised!r}")
            tally.runs += 1
            tally.reached |= stage.reached
            with in_one_thread(), steady_names("names after a power cut"):
                self._visit(number, stage.moments)
            if self._over():
                break
            fruitless = fruitless + 1 if tally.distinct == before else 0
            done = tally.distinct >= self._states or fruitless == _FRUITLESS
            if done and tally.runs >= self._least_runs:
                break
        tally.results = len(self._results)
        tally.seconds = time.monotonic() - began
        return tally

    def _over(self) -> bool:
        return self._without is not None and bool(self.tally.violations)

    def _visit(self, number: int, moments: list[Moment]) -> None:
        tally = self.tally
        runs_left = max(1, self._least_runs - tally.runs)
        due = 2 * (self._states - tally.distinct) // max(1, len(moments) * runs_left)
        limit = min(_MOST, max(_LEAST, due))
        for position, moment in enumerate(moments):
            tally.cuts += 1
            for tree in moment.cut.disks(self._workload.model, limit, self._draw):
                tally.tried += 1
                outcome = self._outcome(tree)
                for fault in judge(moment.notes, outcome, tree):
                    where = f"run {number}, cut {position}, before {moment.cut.operation}"
                    tally.violations.append(f"{where}: {fault}")
            if self._over():
                return

    def _outcome(self, tree: Tree) -> Outcome:
        key = fingerprint(tree)
        known = self._known.get(key)
        if known is None:
            self.tally.distinct += 1
            known = recover(tree, self._workload.durability)
            if not known.faults and self.tally.distinct % _INTERRUPTED == 0:
                fault = interrupt(tree, self._workload.durability, self._workload.model, self._draw)
                if fault is not None:
                    known = known._replace(faults=(fault,))
            self._known[key] = known
            self._results.add(_result(known))
        return known


def fingerprint(tree: Tree) -> bytes:
    """Return a digest of what can be recovered from on a disk."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(tree):
        name = path.rpartition("/")[2]
        if is_temporary(name):
            continue
        content = b"" if is_beside_the_point(name) else tree[path]
        digest.update(b"%s\0%d\0" % (path.encode(), -1 if content is None else len(content)))
        if content:
            digest.update(content)
    return digest.digest()


def _result(outcome: Outcome) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    sessions: Mapping[str, tuple[bytes, ...]] = outcome.sessions
    for name in sorted(sessions):
        digest.update(name.encode() + b"\0%d\0" % len(sessions[name]))
        for line in sessions[name]:
            digest.update(line)
    return digest.digest()
