"""``python -m tests.fuzz``: damaged logs, each from a number that makes it again."""

from __future__ import annotations

import argparse
import sys
import time

from .check import case, fault_of


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0, help="the first number")
    parser.add_argument(
        "--show", action="store_true", help="print the log of --seed, and its fault"
    )
    told = parser.parse_args()
    if told.show:
        name, data, _, _ = case(told.seed)
        sys.stdout.write(f"{name}\n{data!r}\n{fault_of(told.seed)}\n")
        return 0
    started, slowest, worst, faults = time.monotonic(), 0.0, told.seed, 0
    for seed in range(told.seed, told.seed + told.runs):
        begun = time.monotonic()
        fault = fault_of(seed)
        took = time.monotonic() - begun
        if took > slowest:
            slowest, worst = took, seed
        if fault is not None:
            faults += 1
            if faults <= 10:
                print(f"seed {seed}: {fault}", flush=True)
    seconds = time.monotonic() - started
    words = f"{seconds:.1f} s, the slowest {slowest:.3f} s (seed {worst})"
    print(f"{told.runs} logs in {words}: {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
