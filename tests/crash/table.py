"""Each sync of the product left out in turn: which workload reports what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .explore import cases, explore
from .places import places
from .workload import Stage, Workload

#: Places whose sync may be left out, and why: each is backed by another one that is in this table.
HARMLESS = {
    "generations.publish:migrate sync_directory": (
        "until something is appended the older generation holds everything, and before that the "
        "opening syncs the same directory (store:Store._sync_names)"
    ),
}

#: Different disks that every workload which reaches a place gets to report something.
_STATES = 1200

#: Cases of a workload that are run to see which places it reaches.
_CASES = 16


class Row(NamedTuple):
    """A place, the workload that misses its sync, and what it reports; or why none does."""

    place: str
    workload: str | None
    report: str
    #: Whether this is as it should be: reported, or known to be harmless and not reported.
    good: bool


def reached_by(workloads: Sequence[Workload], seed: int = 0) -> dict[str, list[Workload]]:
    """Return, for each place in the product's text, the workloads that sync there."""
    found: dict[str, list[Workload]] = {name: [] for name in sorted(set(places().values()))}
    for workload in workloads:
        reached: set[str] = set()
        for number in cases(workload, seed)[:_CASES]:
            stage = Stage(workload, number, seed, None)
            stage.cutting = False
            stage.run()
            reached |= stage.reached
        for name in reached:
            found[name].append(workload)
    return found


def without(place: str, reaching: Sequence[Workload], seed: int = 0) -> Row:
    """Leave one sync out in the workloads that reach it until one reports something."""
    if not reaching:
        return Row(place, None, "no workload reaches it", good=False)
    for workload in reaching:
        tally = explore(workload, _STATES, seed=seed, without=place)
        if tally.violations:
            report = tally.violations[0]
            if place in HARMLESS:
                report += f" (called harmless: {HARMLESS[place]})"
            return Row(place, workload.name, report, good=place not in HARMLESS)
    if place in HARMLESS:
        return Row(place, None, f"harmless: {HARMLESS[place]}", good=True)
    return Row(place, None, "nothing is reported", good=False)
