"""Loading and repairing a long v0 log, beside the harness's own reader of the same file.

``python -m benchmarks.load [--events N] [--rounds N] [--json]``. The harness's own store writes the
logs, its last step left open, so that there is something to repair. A round loads each log once
with either reader, each in a process of its own that measures from the call on, without its start.

The two do not do quite the same. The harness keeps every event in memory and appends what repairs
the log to its file; ours reads the log as the current format, so it migrates it in memory (v0 to
v3, with the checks on the target), keeps the state and derives the repair, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from interlock.backends.disk import OsDisk
from interlock.backends.source import LogFile

from .npm import NotThereError, installed

SHAPES = ("streamed", "short", "unpacked", "calls")

_OURS = """
import json, resource, sys, time
from pathlib import Path
from interlock.backends.reading import read_log
from interlock.backends.repair import closers

unit = 1 if sys.platform == "darwin" else 1024

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

before, begun = peak(), time.perf_counter()
reading = read_log(Path(sys.argv[1]))
added = reading.fold.admit(closers(reading.fold), reading.fold.last_time)
ms = (time.perf_counter() - begun) * 1000
told = {"events": reading.fold.next_seq, "ms": ms, "rss": peak(), "grown": peak() - before}
print(json.dumps(told))
"""


def measure(events: int, rounds: int, directory: Path) -> list[dict[str, Any]]:
    """Return a row for each shape of log. Raises :class:`NotThereError`."""
    home = installed()
    node = home / "node_modules" / ".bin" / "node"
    for shape in SHAPES:
        _told([node, home / "write.mjs", directory / shape, str(events), shape])
    ours: dict[str, list[dict[str, Any]]] = {shape: [] for shape in SHAPES}
    theirs: dict[str, list[dict[str, Any]]] = {shape: [] for shape in SHAPES}
    for number in range(rounds):
        for shape in SHAPES:
            # Loading repairs the file: a fresh copy each time, which both find in the page cache.
            copy = directory / f"copy-{number}-{shape}"
            shutil.copytree(directory / shape, copy)
            ours[shape].append(_told([sys.executable, "-c", _OURS, _log(copy)]))
            theirs[shape].append(_told([node, home / "load.mjs", copy]))
            shutil.rmtree(copy)
    return [_row(shape, unpacked(_log(directory / shape)), ours, theirs) for shape in SHAPES]


def _row(
    shape: str,
    size: int,
    ours: dict[str, list[dict[str, Any]]],
    theirs: dict[str, list[dict[str, Any]]],
) -> dict[str, Any]:
    mine = statistics.median(told["ms"] for told in ours[shape])
    other = statistics.median(told["ms"] for told in theirs[shape])
    pairs = zip(ours[shape], theirs[shape], strict=True)
    return {
        "shape": shape,
        "events": theirs[shape][0]["events"],
        "current_events": ours[shape][0]["events"],
        "unpacked_mb": round(size / 1e6, 1),
        "interlock_ms": round(mine),
        "harness_ms": round(other),
        "faster": round(statistics.median(b["ms"] / a["ms"] for a, b in pairs), 2),
        "interlock_grown_mb": round(max(told["grown"] for told in ours[shape]) / 1e6, 1),
        "interlock_rss_mb": round(max(told["rss"] for told in ours[shape]) / 1e6),
        "harness_rss_mb": round(max(told["rss"] for told in theirs[shape]) / 1e6),
    }


def _log(root: Path) -> Path:
    [path] = root.glob("*/*/session.jsonl.zstd")
    return path


def unpacked(path: Path) -> int:
    """Return how many bytes of lines a log holds."""
    with LogFile(path, OsDisk()) as file:
        return len(file.header_line()) + sum(len(lines.text) for lines in file.lines())


def _told(command: list[Any]) -> dict[str, Any]:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="interlock-load-") as directory:
            rows = measure(chosen.events, chosen.rounds, Path(directory))
    except NotThereError as error:
        print(f"skipped: the harness cannot be measured here: {error}")
        return 0
    if chosen.json:
        print(json.dumps({"rows": rows}, indent=2))
        return 0
    heads = list(rows[0])
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads))
    for row in rows:
        print("| " + " | ".join(str(row[head]) for head in heads) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
