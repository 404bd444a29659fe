"""What confining a command adds: ``python -m benchmarks.exec``.

Plain, Landlock and bubblewrap take turns at starting ``/bin/true``, reading its output and learning
its status, each from this process; ``plain`` is :mod:`subprocess` with pipes. The processes that
confine are prepared beforehand, as they are in a runtime. Medians; what comes on top of plain is
the overhead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns, sleep

from interlock.sandbox import Mode, Policy, probe, run

COMMAND = ["/bin/true"]
#: Seconds between two runs: a prepared process is made anew meanwhile, as between an agent's calls.
PAUSE = 0.02


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exec", description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="runs of each")
    parser.add_argument("--mode", choices=[m.value for m in Mode][:2], default="workspace-write")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interlock-bench-", dir="/var/tmp") as place:
        measured = measure(Policy(Mode(told.mode), Path(place)), told.runs)
    rows = [row(name, times, measured["plain"]) for name, times in measured.items()]
    if told.json:
        sys.stdout.write(json.dumps({"command": COMMAND, "rows": rows}) + "\n")
        return
    sys.stdout.write(f"{'':10}{'p50 µs':>9}{'p90 µs':>9}{'added µs':>10}\n")
    for r in rows:
        sys.stdout.write(f"{r['name']:10}{r['p50_us']:>9}{r['p90_us']:>9}{r['added_us']:>10}\n")


def measure(policy: Policy, runs: int) -> dict[str, list[int]]:
    """Return the times of each way in ns."""
    usable = [report.backend for report in probe() if report.usable]
    ways: dict[str, Callable[[], None]] = {"plain": _plain}
    ways |= {name: _confined(policy, name) for name in usable}
    found: dict[str, list[int]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for _ in range(runs):
        for name, way in ways.items():
            sleep(PAUSE)
            begin = perf_counter_ns()
            way()
            found[name].append(perf_counter_ns() - begin)
    return found


def row(name: str, times: list[int], plain: list[int]) -> dict[str, object]:
    """Return one line: medians and the 90th percentile, and what is added to plain."""
    middle = statistics.median(times)
    return {
        "name": name,
        "p50_us": round(middle / 1000),
        "p90_us": round(statistics.quantiles(times, n=10)[-1] / 1000),
        "added_us": round((middle - statistics.median(plain)) / 1000),
    }


def _plain() -> None:
    subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def _confined(policy: Policy, backend: str) -> Callable[[], None]:
    def once() -> None:
        outcome = run(COMMAND, policy, timeout=60.0, backends=(backend,))
        if outcome.status != "exited":
            raise SystemExit(f"{backend}: {outcome.message}")

    return once


if __name__ == "__main__":
    main()
