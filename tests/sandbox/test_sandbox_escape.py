"""The escape probes against every backend and mode, judged from the host (S2, S6, S7, S9).

What may reach the host is decided by the policy (`escape.expected`), not by what a backend happens
to do. `python -m tests.sandbox.escape` prints the whole table.
"""

import os

import pytest
from interlock.sandbox import Mode, probe
from interlock.sandbox.cgroup import place as counting_place

from .escape.expected import Case
from .escape.starting import OWN, SHARED, Starter, starter, users

MODES = [Mode.READ_ONLY, Mode.WORKSPACE_WRITE]


@pytest.fixture(scope="module")
def suite():
    with starter() as made:
        yield made


@pytest.fixture(params=["root", "user"])
def user(request):
    if request.param not in users():
        pytest.skip(f"the suite cannot run as {request.param} here")
    return request.param


def case_of(backend: str, mode: Mode, user: str, *, network: bool = False) -> Case:
    return Case(backend, mode, network, user == "root", counting_place() is not None)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", MODES)
def test_S2_only_what_is_declared_reaches_the_host(backend, mode, user, suite: Starter):
    case = case_of(backend, mode, user)
    results = suite.run(backend, mode, user)
    assert len(results) > (120 if SHARED.is_dir() else 60)
    assert case.problems(results) == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_S9_with_the_network_on_nothing_but_the_network_is_added(backend, suite: Starter):
    user = users()[-1]
    results = suite.run(backend, Mode.WORKSPACE_WRITE, user, network=True)
    assert case_of(backend, Mode.WORKSPACE_WRITE, user, network=True).problems(results) == []


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_S2_each_protection_is_what_stops_its_probe(backend, suite: Starter):
    """With a protection taken away its probe gets through; with it, it does not."""
    told = suite.run(backend, "switches", users()[0])
    assert len(told) > 8
    for name, (held, open_) in told.items():
        assert held == "BLOCKED", f"{name}: {held}"
        assert open_.startswith("ESCAPE"), f"without {name} its probe still came to: {open_}"


def test_S2_there_are_more_than_a_hundred_attacks():
    if not SHARED.is_dir():
        pytest.skip("../shared/sandbox/probes is not here")
    probes = [p.name for folder in (OWN, SHARED) for p in folder.iterdir() if p.name[0].isdigit()]
    attacks = [name for name in probes if "-fn-" not in name and "commit-works" not in name]
    assert len(attacks) >= 100
    assert len({name[4:] for name in probes}) == len(probes), "two probes have one name"


def test_S1_the_gaps_of_the_table_are_the_ones_reported():
    user = "root" if os.geteuid() == 0 else "user"
    for report in probe():
        if report.usable:
            case = case_of(report.backend, Mode.WORKSPACE_WRITE, user)
            # Nothing was limited in the report's policy, so nothing could fail to be.
            assert set(report.gaps) == case.declared - {"process-limit"}
