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

#: The workload that soonest misses a sync: it is tried first.
SOONEST = {
    "files:Temporary.fill fsync": "file: first publication",
    "files:write_spill fsync": "file: appends",
    "files:write_spill sync_directory": "file: appends",
    "generations.publish:_encode fsync": "file: migration",
    "journal.dead:DeadJournals._note fsync": "journal: two epochs removed",
    "journal.dead:DeadJournals._note sync_directory": "journal: two epochs removed",
    "journal.dead:DeadJournals.keep sync_directory": "journal: replay interrupted",
    "journal.dead:DeadJournals._remove sync_directory": "journal: two epochs removed",
    "journal.file:JournalFile._write_slot fdatasync": "journal: wrap and retirement",
    "journal.file:JournalFile.append fdatasync": "journal: two sessions a record",
    "journal.file:JournalFile.create fsync": "journal: two epochs removed",
    "journal.file:JournalFile.create sync_directory": "journal: two sessions a record",
    "journal.replay:_sync fsync": "journal: replay interrupted",
    "journal.replay:_sync sync_directory": "journal: replay interrupted",
    "journal.store:JournaledStore._sync_file fdatasync 1": "journal: wrap and retirement",
    "journal.store:JournaledStore._sync_file fdatasync 2": "journal: files that do not sync",
    "journal.writer:Journal._remove sync_directory": "journal: a batch given up",
    "journal.writer:Journal.start sync_directory": "journal: two sessions a record",
    "store:Store._append fdatasync": "file: appends",
    "store:Store._put_back fsync": "file: failed appends",
    "store:Store._sync_names sync_directory": "file: first publication",
    "store:Store.mend fsync": "file: torn-tail rewrite",
    "store:Store.sync_opened fdatasync": "file: takeover",
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
    for workload in sorted(reaching, key=lambda w: w.name != SOONEST.get(place)):
        tally = explore(workload, _STATES, seed=seed, without=place)
        if tally.violations:
            report = tally.violations[0]
            if place in HARMLESS:
                report += f" (called harmless: {HARMLESS[place]})"
            return Row(place, workload.name, report, good=place not in HARMLESS)
    if place in HARMLESS:
        return Row(place, None, f"harmless: {HARMLESS[place]}", good=True)
    return Row(place, None, "nothing is reported", good=False)
