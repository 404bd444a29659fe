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
    return JsonlBackend(
        root,
        durability=options["durability"],
        segment_size=told["segment_size"],
        disk=RecordingDisk(
            Path(told["notes"]),
            told["without"],
            Path(told["noted"]) if told["deadly"] else None,
            told["after"],
        ),
    )
