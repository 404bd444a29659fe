"""How a run is laid out: rounds over all loads, each slice of ours next to a slice of the floor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .floor import Floor
from .histogram import Histogram
from .slices import Load, Slice

#: How often each load gets a slice, so that a slow spell of the disk falls on all of them.
ROUNDS = 5
#: A round before those, not counted and shorter by this: code, workers and files get warm.
WARM_UP = 0.3
#: The part of a slice's time that goes to the floor.
FLOOR_SHARE = 0.25


@dataclass
class Row:
    """One load: how many clients, what they did, and the floor of the same moments."""

    clients: int
    done: Slice = field(default_factory=Slice)
    floor: Histogram = field(default_factory=Histogram)
    system: str = "interlock"
    #: Operations of the warm-up, which counts nowhere else.
    warm_up: int = 0

    @property
    def ratio(self) -> float:
        """Median latency in multiples of the floor's median."""
        return self.done.latency.percentile_us(50) / self.floor.percentile_us(50)


@dataclass
class Measurement:
    """What one benchmark measured. ``unit`` is what its clients are, ``cycle`` what they repeat."""

    unit: str
    rows: list[Row]
    floor: Histogram
    cycle: str | None = None


def measure(
    root: Path,
    unit: str,
    loads: Mapping[tuple[str, int], Load],
    seconds: float,
    *,
    cycle: str | None = None,
) -> Measurement:
    """Run every load in turn, :data:`ROUNDS` times, for about ``seconds`` in all.

    ``loads`` are by system and number of clients: all of them share each round.
    """
    share = seconds / ((ROUNDS + WARM_UP) * len(loads))
    rows = {key: Row(key[1], system=key[0]) for key in loads}
    floor = Histogram()
    with Floor(root) as ground:
        for key, load in loads.items():
            rows[key].warm_up = load(share * WARM_UP).latency.count
        for _ in range(ROUNDS):
            for key, load in loads.items():
                below = ground.run(share * FLOOR_SHARE).latency
                floor.merge(below)
                rows[key].floor.merge(below)
                rows[key].done.add(load(share * (1 - FLOOR_SHARE)))
    return Measurement(unit, list(rows.values()), floor, cycle)
