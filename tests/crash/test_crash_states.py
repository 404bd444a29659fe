"""A fixed share of the crash states, and that each sync of the product is missed (F8)."""

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


@pytest.fixture(scope="module")
def reaching():
    return table.reached_by(WORKLOADS)


@pytest.mark.parametrize("place", sorted(set(places().values())))
def test_every_place_that_syncs_is_reached_and_missed_or_known_to_be_harmless(place, reaching):
    assert reaching[place], "no workload syncs here"
    if place in table.HARMLESS:
        pytest.skip(table.HARMLESS[place])
    row = table.without(place, reaching[place])
    assert row.good, row.report
