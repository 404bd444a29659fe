"""The backend of the flooded writer: the shipped one on a disk that takes notes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from interlock.backends.jsonl import JsonlBackend

from tests.flood.recording import RecordingDisk


def make(root: Path, options: dict[str, Any]) -> JsonlBackend:
    """Called by the writer's process; what it should do comes in the environment."""
    told = json.loads(os.environ["INTERLOCK_FLOOD"])
    notes, graves = Path(told["notes"]), Path(told["graves"])
    disk = RecordingDisk(notes, graves, told["without"], told["deadly"], told["grace"])
    return JsonlBackend(
        root, durability=options["durability"], segment_size=told["segment_size"], disk=disk
    )
