"""F8, L2: what was acknowledged in a flood is there, also without anything that was not synced."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .rounds import run

SESSIONS = 120


@pytest.mark.parametrize("durability", ["journal", "file"])
@pytest.mark.parametrize("take", [False, True])
def test_F8_every_acknowledged_event_survives_the_writer(tmp_path, durability, take) -> None:
    rng = random.Random(f"{durability}-{take}")
    outcome = run(tmp_path, sessions=SESSIONS, durability=durability, rng=rng, take=take)
    assert outcome.losses == []
    assert outcome.acknowledged >= SESSIONS
    assert not take or outcome.undone


@pytest.mark.parametrize(
    "place", ["backends.journal.file:append", "backends.journal.store:_sync_file"]
)
def test_F8_a_build_without_a_sync_loses_what_it_acknowledged(tmp_path: Path, place: str) -> None:
    losses: list[str] = []
    for number in range(5):
        directory = tmp_path / str(number)
        directory.mkdir()
        losses += run(
            directory,
            sessions=SESSIONS,
            durability="journal",
            rng=random.Random(number),
            take=True,
            without=place,
        ).losses
        if losses:
            break
    assert losses
