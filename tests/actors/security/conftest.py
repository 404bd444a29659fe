"""Fixtures: runtimes and those who try to get at them, as real processes and sockets."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from interlock.actors import Runtime

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "spine")]

from security_support import Stranger  # noqa: E402 - found by the line above
from spine_support import TOOLS  # noqa: E402


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
def stranger() -> Iterator[Callable[..., Stranger]]:
    """Connect to an owner with any keys; closed when the test ends."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    made: list[Stranger] = []

    def connect(*arguments: Any, **options: Any) -> Stranger:
        made.append(Stranger(context, *arguments, **options))
        return made[-1]

    yield connect
    for one in made:
        one.close()
    context.destroy(linger=0)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory outside of /tmp, which bubblewrap replaces."""
    base = Path(tempfile.mkdtemp(prefix="interlock-test-", dir="/var/tmp"))
    yield base
    shutil.rmtree(base, ignore_errors=True)
