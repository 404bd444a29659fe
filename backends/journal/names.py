"""Where journals lie: ``<root>/.interlock/journal/<writer>/``, one directory a writer.

In it ``lock``, held by the writer as long as it lives, and ``<epoch>.journal``, one file an epoch.
Those who replay a dead writer's journal add ``done``, which sessions are mended, and ``tail``, a
copy of its last record.
"""

from __future__ import annotations

import re
from pathlib import Path

#: Interlock's own directory under a root.
OWN_DIRECTORY = ".interlock"

LOCK = "lock"
DONE = "done"
TAIL = "tail"

#: The line in ``done`` that says that nothing in this journal is needed any more.
ALL = "*"

_EPOCH = re.compile(r"([0-9]{8})\.journal")
_WRITER = re.compile(r"[0-9a-f]{16}")


def journals_directory(root: Path) -> Path:
    """Return the directory that holds a directory for each writer."""
    return root / OWN_DIRECTORY / "journal"


def epoch_name(epoch: int) -> str:
    """Return the file name of an epoch."""
    return f"{epoch:08}.journal"


def parse_epoch(name: str) -> int | None:
    """Return the epoch that a file name stands for, or None for any other name."""
    match = _EPOCH.fullmatch(name)
    return int(match[1]) if match else None


def is_writer(name: str) -> bool:
    """Tell whether a directory's name is a writer's."""
    return _WRITER.fullmatch(name) is not None
