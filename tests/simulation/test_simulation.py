"""A fixed share of the simulation with every run of the tests; the rest on demand."""

from __future__ import annotations

import os

import pytest

from .planted import PLANTED
from .runs import account, many, one

#: Runs in CI: `python -m tests.simulation --runs N` does more.
SHARE = 20_000
#: Runs within which each planted bug has to be found.
FIND = 2000


@pytest.mark.timeout(600)
def test_runs_from_fixed_seeds_break_nothing() -> None:
    jobs = min(2, os.cpu_count() or 1)
    wrong = [found for share in many(0, SHARE, jobs) for found in share]
    assert wrong == [], f"python -m tests.simulation --replay {wrong[0].seed}"


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_found(name) -> None:
    with PLANTED[name]():
        assert any(one(seed) for seed in range(FIND)), f"{name} was not found"


@pytest.mark.parametrize("seed", [3, 38, 41, 147])
def test_a_seed_tells_the_same_again(seed) -> None:
    """Names that are drawn at random differ; what happens, when, and to whom, does not."""

    def told() -> list[tuple[str, str]]:
        lines, _ = account(seed)
        return [(line[:9], " ".join(line[11:].split("(")[0].split())) for line in lines]

    assert told() == told()
