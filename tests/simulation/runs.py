"""Many runs: seeds in, violations out; in several processes where that is asked for."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from .check import check
from .world import World

#: Seeds that one process takes at a time.
SHARE = 50


class Found(NamedTuple):
    """A seed and what is wrong with its run."""

    seed: int
    violations: list[str]


def one(seed: int) -> list[str]:
    """Lead one run; what is wrong with it. What the product raises is wrong as well."""
    world = None
    try:
        world = World(seed)
        world.run()
        return check(world)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        text = f"F: {type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        return [*(world.violations if world is not None else []), text]


def account(seed: int) -> tuple[list[str], list[str]]:
    """Lead one run with a readable account; the account and what is wrong."""
    world = World(seed, trace=True)
    try:
        world.run()
        check(world)
    except Exception as error:
        world.wrong(f"F: {type(error).__name__}: {error}")
        world.network.note(traceback.format_exc())
    return world.network.trace or [], world.violations


def fingerprint(seed: int) -> str:
    """A digest of everything that happened in a run, names drawn at random left out."""
    lines, _ = account(seed)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def share(begin: int, end: int) -> list[Found]:
    """Lead the runs of some seeds."""
    found = [Found(seed, one(seed)) for seed in range(begin, end)]
    return [each for each in found if each.violations]


def many(seed: int, runs: int, jobs: int) -> Iterator[list[Found]]:
    """Lead ``runs`` runs from ``seed`` on; yields what a share of them has found."""
    starts = range(seed, seed + runs, SHARE)
    ends = [min(start + SHARE, seed + runs) for start in starts]
    if jobs == 1:
        yield from map(share, starts, ends)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(share, starts, ends)
