"""One round: flood, kill, take away, open everything again, compare with what was acknowledged."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .compare import compare
from .host import Acknowledged, Host
from .remains import places, take_away

#: What the power cut takes of what was not synced.
Take = Literal["nothing", "all", "some"]


@dataclass(frozen=True)
class Plan:
    """What a round does.

    Each of ``lives`` writers is killed in the middle of its work: the first after ``events`` to
    twice as many acknowledgements a session, later ones while they take over or soon after.
    ``segment_size`` (bytes) is small, so that segments are used up and retired meanwhile.
    ``without`` leaves the syncs of one place out; ``deadly`` and ``grace`` say when the writer dies
    of it (:class:`~.recording.RecordingDisk`).
    """

    sessions: int = 1000
    durability: Literal["journal", "file"] = "journal"
    take: Take = "nothing"
    lives: int = 2
    events: int = 10
    segment_size: int = 256 * 1024
    without: str = ""
    deadly: int = 0
    grace: int = 0


@dataclass
class Outcome:
    """What a round found. ``losses`` is empty where everything acknowledged was there."""

    acknowledged: int = 0
    sessions: int = 0
    deaths: list[str] = field(default_factory=list)
    undone: int = 0
    losses: list[str] = field(default_factory=list)
    places: Counter[str] = field(default_factory=Counter)


def run(directory: Path, plan: Plan, rng: random.Random) -> Outcome:
    """Run one round in an empty directory."""
    root, notes = directory / "root", directory / "notes"
    outcome, acknowledged = Outcome(), Acknowledged()
    told: dict[str, object] = {
        "notes": str(notes),
        "graves": str(directory / "graves"),
        "without": plan.without,
        "deadly": plan.deadly,
        "grace": plan.grace,
        "segment_size": plan.segment_size,
    }
    host: Host | None = None
    try:
        for life in range(plan.lives):
            if host is None:
                host = Host(root, plan.sessions, plan.durability, life, told, acknowledged)
            alive = host.flood(_lines(plan, life, rng))
            if alive:
                host.linger(rng.uniform(0.0, 0.02))
                host.kill_writer()
            if alive and life + 1 < plan.lives and rng.random() < 0.5:
                # The host goes on; a new writer takes over what the page cache holds.
                outcome.deaths.append("writer")
                continue
            host.kill()
            host.close()
            host = None
            outcome.deaths.append("machine" if plan.take != "nothing" else "host")
            _cut_power(directory, plan, rng, outcome)
            if not alive:
                break
    finally:
        if host is not None:
            host.close()
    outcome.sessions, outcome.acknowledged = len(acknowledged.durable), acknowledged.count
    outcome.losses = acknowledged.refused + compare(root, plan.durability, acknowledged)
    return outcome


def _lines(plan: Plan, life: int, rng: random.Random) -> int:
    """How much is heard of the client before the writer dies."""
    least, most = (1, 2) if life == 0 else (0, 1)
    return 1 + int(plan.sessions * plan.events * rng.uniform(least, most))


def _cut_power(directory: Path, plan: Plan, rng: random.Random, outcome: Outcome) -> None:
    """Take away what was not synced; the rest is durable from now on."""
    notes = directory / "notes"
    outcome.places += places(notes)
    if plan.take != "nothing":
        outcome.undone += take_away(
            directory / "root",
            notes,
            directory / "graves",
            keep=rng if plan.take == "some" else None,
            # File mode rests on it; of a journaled log nothing is assumed.
            prefix=plan.durability == "file",
        )
    notes.unlink()
