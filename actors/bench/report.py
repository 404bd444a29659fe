"""A measurement as JSON that other programs rely on, and as the cells of a table."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from .histogram import Histogram
from .measure import Measurement, Row


def as_json(measured: Measurement) -> dict[str, Any]:
    """The JSON of ``bench flush --json`` and ``bench calls --json``.

    Durations are in us. ``floor_us`` is the floor's median over the whole run; each row has that of
    its own moments beside it, and its latencies as ``[lower bound, count]``.
    """
    return {
        "floor_us": _us(measured.floor, 50),
        "rows": [_row(row, measured) for row in measured.rows],
        "floor": {
            "p99_us": _us(measured.floor, 99),
            "count": measured.floor.count,
        },
        "machine": {
            "cpus": os.cpu_count(),
            "platform": sys.platform,
            "python": platform.python_version(),
        },
    }


def _row(row: Row, measured: Measurement) -> dict[str, Any]:
    done = row.done
    shown: dict[str, Any] = {
        "system": row.system,
        measured.unit: row.clients,
        "p50_us": _us(done.latency, 50),
        "p99_us": _us(done.latency, 99),
        "per_second": round(done.per_second, 1),
        "floor_us": _us(row.floor, 50),
        "ratio": round(row.ratio, 2),
        "count": done.latency.count,
        "histogram": [[low, count] for low, count in done.latency.buckets_us()],
    }
    if measured.cycle is not None:
        shown[f"{measured.cycle}_p50_us"] = _us(done.cycle, 50)
        shown[f"{measured.cycle}_p99_us"] = _us(done.cycle, 99)
    return shown


def _us(histogram: Histogram, percent: float) -> float:
    return round(histogram.percentile_us(percent), 1)


def table(measured: Measurement) -> list[list[str]]:
    """The heading of a table and its rows, all as text; the floor (write, fdatasync) comes
    first."""
    with_cycle = measured.cycle is not None
    heading = ["system", measured.unit, "p50 µs", "p99 µs", "× floor", "per second"]
    heading += [f"{measured.cycle} p50 µs"] if with_cycle else []
    floor = ["floor", "-", *_pair(measured.floor), "1.0", "-"]
    rows = [heading, floor + ["-"] * with_cycle]
    for row in measured.rows:
        done = row.done
        cells = [row.system, str(row.clients), *_pair(done.latency)]
        cells += [f"{row.ratio:.1f}", f"{done.per_second:,.0f}"]
        cells += [f"{done.cycle.percentile_us(50):,.0f}"] if with_cycle else []
        rows.append(cells)
    return rows


def _pair(histogram: Histogram) -> list[str]:
    return [f"{histogram.percentile_us(percent):,.0f}" for percent in (50, 99)]


def as_markdown(measured: Measurement) -> str:
    """The table for a file."""
    heading, *rows = table(measured)
    marks = ["---"] * 2 + ["---:"] * (len(heading) - 2)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (heading, marks, *rows))
