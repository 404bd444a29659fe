"""Worlds with a dispatcher."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from dispatcher_world import DispatcherWorld


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., DispatcherWorld]:
    """A world with options of its own."""

    def build(**options: Any) -> DispatcherWorld:
        return DispatcherWorld(tmp_path / "root", **options)

    return build


@pytest.fixture
def world(make: Callable[..., DispatcherWorld]) -> DispatcherWorld:
    return make()
