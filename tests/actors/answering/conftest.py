"""Fixtures: runtimes as real processes, and answerers of every kind."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Runtime

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "spine")]

from spine_support import TOOLS  # noqa: E402 - found by the line above


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Runtime]]:
    """Start runtimes that are closed when the test ends."""
    started: list[Runtime] = []

    def make(**options: Any) -> Runtime:
        runtime = Runtime(options.pop("root", root), **({"tools": TOOLS, "workers": 1} | options))
        started.append(runtime)
        return runtime

    yield make
    for runtime in started:
        runtime.close(grace=0.0)
