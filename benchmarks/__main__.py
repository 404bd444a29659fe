"""Run every benchmark and write its JSON and its table into a folder."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from interlock.actors.bench.calls import bench_calls
from interlock.actors.bench.flush import bench_flush
from interlock.actors.bench.report import as_json, as_markdown
from interlock.actors.bench.scratch import scratch

BENCHMARKS = {"flush": bench_flush, "calls": bench_calls}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/benchmarks"), help="the folder")
    parser.add_argument("--seconds", type=float, default=25.0, help="measuring time of each")
    parser.add_argument("--root", type=Path, help="a directory on the disk to measure")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, bench in BENCHMARKS.items():
        with scratch(chosen.root) as directory:
            measured = bench(directory, seconds=chosen.seconds)
        (chosen.out / f"{name}.json").write_text(json.dumps(as_json(measured)) + "\n")
        (chosen.out / f"{name}.md").write_text(as_markdown(measured))
        sys.stdout.write(f"{name}\n\n{as_markdown(measured)}\n")


if __name__ == "__main__":
    main()
