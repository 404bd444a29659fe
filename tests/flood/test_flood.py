"""F2, F8, L2: what was acknowledged in a flood is there, also without anything not synced."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .rounds import Outcome, Plan, run

SESSIONS = 100
SEGMENT_SIZE = 64 * 1024


def flooded(directory: Path, seed: int, **options) -> Outcome:
    directory.mkdir()
    plan = Plan(sessions=SESSIONS, segment_size=SEGMENT_SIZE, **options)
    return run(directory, plan, random.Random(seed))


@pytest.mark.parametrize(
    ("durability", "take"),
    [("journal", "nothing"), ("journal", "all"), ("journal", "some"), ("file", "all")],
)
def test_F8_every_acknowledged_event_survives_two_writers(tmp_path, durability, take) -> None:
    outcome = flooded(tmp_path / "0", 1, durability=durability, take=take, events=5)
    assert outcome.losses == []
    assert outcome.sessions == SESSIONS
    assert outcome.acknowledged >= 2 * SESSIONS
    assert len(outcome.deaths) == 2
    assert outcome.undone or take == "nothing"
    assert f"{'journal.file:append' if durability == 'journal' else 'store:_append'}:fdatasync" in (
        outcome.places
    )


@pytest.mark.parametrize(
    "place", ["journal.file:append:fdatasync", "journal.store:_sync_file:fdatasync"]
)
def test_F8_a_build_without_a_sync_loses_what_it_acknowledged(tmp_path: Path, place: str) -> None:
    # A mere death of the process loses nothing, and not every power cut hits what it could.
    for seed in range(8):
        outcome = flooded(tmp_path / str(seed), seed, take="all", without=place)
        if outcome.losses:
            return
    pytest.fail(f"nobody misses {place}")
