"""Loading and repairing a long log, beside the harness's own reader of the same file.

``python -m benchmarks.load [--events N] [--rounds N] [--json]``. The harness's own store writes the
logs (v0), its last step left open, so that there is something to repair; migrated, they are the v3
ones. A round loads each log once with either reader, each in a process of its own that measures
from the call on, without its start.

The two do not do quite the same. Of a v0 log the harness keeps every event in memory and appends
what repairs it to the file; ours reads the log as the current format, so it carries it over in
memory (v0 to v3, with the checks on the target), keeps the state and derives the repair, and writes
nothing. Of a v3 log the harness's published codec and restorer are measured: no store of that
generation is published, and so nothing of theirs repairs it.
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

from interlock.backends import payloads, schema
from interlock.backends.disk import OsDisk
from interlock.backends.generations.publish import migrate
from interlock.backends.source import LogFile

from .npm import NotThereError, installed

SHAPES = ("streamed", "short", "unpacked", "plain", "calls")
#: Without packing, the same events come out of the migration.
CURRENT = ("streamed", "short", "calls")
#: The harness's v3 codec and restorer, which a test has as well.
_CODEC = Path(__file__).parents[1] / "tests" / "peers" / "harness"

_OURS = """
import json, resource, sys, time
from pathlib import Path
from interlock.backends.reading import read_log
from interlock.backends.repair import closers

unit = 1 if sys.platform == "darwin" else 1024

def peak():
    # What resource counts begins with the process that started this one.
    status = Path("/proc/self/status")
    if status.exists():
        [line] = [l for l in status.read_text().splitlines() if l.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

before, begun = peak(), time.perf_counter()
reading = read_log(Path(sys.argv[1]))
added = reading.fold.admit(closers(reading.fold), reading.fold.last_time)
ms = (time.perf_counter() - begun) * 1000
told = {"events": reading.fold.next_seq, "ms": ms, "rss": peak(), "grown": peak() - before}
print(json.dumps(told))
"""


def measure(events: int, rounds: int, directory: Path) -> list[dict[str, Any]]:
    """Return a row for each shape of log and generation. Raises :class:`NotThereError`."""
    home, codec = installed(), installed(_CODEC)
    node = home / "node_modules" / ".bin" / "node"
    logs: dict[tuple[str, str], Path] = {}
    for shape in SHAPES:
        _told([node, home / "write.mjs", directory / shape, str(events), shape])
        logs["v0", shape] = _log(directory / shape)
    for shape in CURRENT:
        root = directory / f"{shape}-v3"
        shutil.copytree(directory / shape, root)
        logs["v3", shape] = migrate(_log(root), "long", OsDisk(), durable=False).path
    ours: dict[tuple[str, str], list[dict[str, Any]]] = {log: [] for log in logs}
    theirs: dict[tuple[str, str], list[dict[str, Any]]] = {log: [] for log in logs}
    for number in range(rounds):
        for log, path in logs.items():
            # Loading repairs the file: a fresh copy each time, which both find in the page cache.
            copy = directory / f"copy-{number}"
            at = copy / path.relative_to(path.parents[2])
            at.parent.mkdir(parents=True)
            shutil.copyfile(path, at)
            ours[log].append(_told([sys.executable, "-c", _OURS, at]))
            if log[0] == "v0":
                theirs[log].append(_told([node, home / "load.mjs", copy]))
            else:
                theirs[log].append(_restored(codec, at))
            shutil.rmtree(copy)
    return [_row(*log, unpacked(path), ours[log], theirs[log]) for log, path in logs.items()]


def _restored(codec: Path, path: Path) -> dict[str, Any]:
    """Have the harness's v3 codec and restorer read a log."""
    known = sorted(payloads.BY_TYPE.keys() | schema.OTHER_TYPES)
    asked = json.dumps({"path": str(path), "known": known}) + "\n"
    node = codec / "node_modules" / ".bin" / "node"
    told = _told([node, codec / "accept.mjs"], asked)
    if told["error"] is not None:
        raise RuntimeError(f"the harness refuses {path}: {told['error']}")
    return told


def _row(
    generation: str,
    shape: str,
    size: int,
    ours: list[dict[str, Any]],
    theirs: list[dict[str, Any]],
) -> dict[str, Any]:
    mine = statistics.median(told["ms"] for told in ours)
    other = statistics.median(told["ms"] for told in theirs)
    pairs = zip(ours, theirs, strict=True)
    return {
        "log": generation,
        "shape": shape,
        "events": theirs[0]["events"],
        "current_events": ours[0]["events"],
        "unpacked_mb": round(size / 1e6, 1),
        "interlock_ms": round(mine),
        "harness_ms": round(other),
        "faster": round(statistics.median(b["ms"] / a["ms"] for a, b in pairs), 2),
        "interlock_grown_mb": round(max(told["grown"] for told in ours) / 1e6, 1),
        "interlock_rss_mb": round(max(told["rss"] for told in ours) / 1e6),
        "times_unpacked": round(max(told["rss"] for told in ours) / size, 1),
        "harness_rss_mb": round(max(told["rss"] for told in theirs) / 1e6),
    }


def _log(root: Path) -> Path:
    [path] = root.glob("*/*/session.jsonl.zstd")
    return path


def unpacked(path: Path) -> int:
    """Return how many bytes of lines a log holds."""
    with LogFile(path, OsDisk()) as file:
        return len(file.header_line()) + sum(len(lines.text) for lines in file.lines())


def _told(command: list[Any], asked: str = "") -> dict[str, Any]:
    done = subprocess.run(
        command, input=asked, capture_output=True, text=True, check=True, timeout=300
    )
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
