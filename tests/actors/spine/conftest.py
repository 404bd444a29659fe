"""Fixtures of the tests with real processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Runtime

sys.path.insert(0, str(Path(__file__).parent))

from spine_support import TOOLS


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


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Start a Python program of its own in a new process."""

    def run(source: str, **options: Any) -> subprocess.Popen[str]:
        path = tmp_path / f"program{len(list(tmp_path.glob('program*')))}.py"
        path.write_text(source)
        return subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    return run
