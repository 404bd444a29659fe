"""A fixed share of the crash states, and proof that a missing sync is found (F8)."""

from __future__ import annotations

import pytest

from tests.crash import command, table
from tests.crash.command import WORKLOADS
from tests.crash.explore import explore
from tests.crash.places import places

#: Different disks for each workload, some 2,000 for each mode; `python -m tests.crash` opens more.
SHARE = {"file": 350, "journal": 160}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload.name)
def test_F8_every_disk_that_a_power_cut_leaves_opens_with_all_that_was_acknowledged(workload):
    share = SHARE[workload.durability]
    tally = explore(workload, share)
    assert not tally.violations, "\n".join(tally.violations[:5])
    assert tally.distinct >= share


def test_the_same_seed_gives_the_same_disks():
    first, second = (explore(WORKLOADS[0], 50, seed=3) for _ in range(2))
    assert (first.tried, first.distinct) == (second.tried, second.distinct)
    assert explore(WORKLOADS[0], 50, seed=4).tried != first.tried


def test_without_a_sync_the_command_reports_what_is_lost_and_fails(capsys):
    place = "store:Store._append fdatasync"
    options = ["--workload", "file: appends", "--states", "50", "--without-sync", place]
    assert command.main(options) == 1
    assert "was acknowledged" in capsys.readouterr().out


#: Syncs that each hold up a different part of the argument, and a workload that misses each. All
#: of them: `python -m tests.crash --table`.
MISSED = {
    "store:Store._append fdatasync": "file: appends",
    "journal.file:JournalFile.append fdatasync": "journal: two sessions a record",
    "journal.store:JournaledStore._sync_file fdatasync 1": "journal: wrap and retirement",
}


@pytest.mark.parametrize("place", MISSED)
def test_F8_a_sync_that_is_left_out_is_missed(place: str) -> None:
    assert place in places().values()
    row = table.without(place, [w for w in WORKLOADS if w.name == MISSED[place]])
    assert row.workload is not None, row.report
