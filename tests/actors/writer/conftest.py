"""A writer with one open session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from interlock.actors.messages import SessionOpened

sys.path.insert(0, str(Path(__file__).parent))

from writer_world import WriterWorld


@pytest.fixture
def world(tmp_path: Path) -> WriterWorld:
    world = WriterWorld(tmp_path / "root")
    assert isinstance(world.create(), SessionOpened)
    return world
