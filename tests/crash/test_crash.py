"""F8: a fixed share of what ``python -m tests.crash`` opens, and proof that it can fail."""

from __future__ import annotations

import pytest

from .explore import explore
from .file_mode import FILE_MODE
from .journal_mode import JOURNAL_MODE
from .places import places
from .table import without
from .workload import Workload

WORKLOADS = (*FILE_MODE, *JOURNAL_MODE)

#: Different disks for each workload; the command opens thousands.
STATES = 60

#: Syncs that each hold up a different part of the argument, and a workload that misses each.
MISSED = {
    "store:Store._append fdatasync": "file: appends",
    "journal.file:JournalFile.append fdatasync": "journal: two sessions a record",
    "journal.store:JournaledStore._sync_file fdatasync 1": "journal: wrap and retirement",
}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_F8_every_disk_that_a_power_cut_could_leave_opens_with_all_that_was_told(
    workload: Workload,
) -> None:
    tally = explore(workload, STATES)
    assert tally.violations == []
    assert tally.distinct >= STATES


@pytest.mark.parametrize("place", MISSED)
def test_F8_a_sync_that_is_left_out_is_missed(place: str) -> None:
    assert place in places().values(), sorted(set(places().values()))
    row = without(place, [w for w in WORKLOADS if w.name == MISSED[place]])
    assert row.workload is not None, row.report
