"""Runs a workload until enough different disks were opened, and counts what was wrong."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from .cut import Tree, is_beside_the_point, is_temporary
from .notes import Outcome, judge
from .recovery import interrupt, recover
from .turns import steady_names
from .workload import Moment, Stage, Workload

#: Disks made of one cut point in one run, at least and at most.
_LEAST, _MOST = 12, 400
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
    without: str | None = None,
    first_only: bool = False,
) -> Tally:
    """Run a workload, a seed after the other, until ``states`` different disks were opened.

    Disks differ if what can be recovered from differs: every file's bytes and name, but for
    temporary files and the lines in locks. Each run's cut points are all visited, so more may be
    opened. ``without`` is a place whose sync is left out; ``first_only`` stops at a violation.
    """
    return _Exploration(workload, states, seed, without, first_only).run()


class _Exploration:
    def __init__(
        self, workload: Workload, states: int, seed: int, without: str | None, first_only: bool
    ) -> None:
        self._workload = workload
        self._states = states
        self._seed = seed
        self._without = without
        self._first_only = first_only
        self._known: dict[bytes, Outcome] = {}
        self._results: set[bytes] = set()
        self._draw = random.Random(f"{seed} disks {workload.name}")
        self.tally = Tally(workload.name)

    def run(self) -> Tally:
        tally, began, fruitless = self.tally, time.monotonic(), 0
        while tally.runs < _MAX_RUNS and (
            tally.runs < self._workload.runs
            or (tally.distinct < self._states and fruitless < _FRUITLESS)
        ):
            before = tally.distinct
            stage = Stage(self._workload, tally.runs, self._seed, self._without)
            raised = stage.run()
            if raised is not None:
                tally.violations.append(f"run {tally.runs} itself: {raised!r}")
            tally.runs += 1
            tally.reached |= stage.reached
            with steady_names("names after a power cut"):
                self._visit(stage.moments)
            fruitless = fruitless + 1 if tally.distinct == before else 0
            if self._first_only and tally.violations:
                break
        tally.results = len(self._results)
        tally.seconds = time.monotonic() - began
        return tally

    def _visit(self, moments: list[Moment]) -> None:
        tally = self.tally
        due = 2 * (self._states - tally.distinct) // max(1, len(moments))
        limit = min(_MOST, max(_LEAST, due))
        for number, moment in enumerate(moments):
            tally.cuts += 1
            for tree in moment.cut.disks(self._workload.model, limit, self._draw):
                tally.tried += 1
                outcome = self._outcome(tree)
                for fault in judge(moment.notes, outcome, tree):
                    where = f"run {tally.runs - 1}, cut {number}, before {moment.cut.operation}"
                    tally.violations.append(f"{where}: {fault}")
            if self._first_only and tally.violations:
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
