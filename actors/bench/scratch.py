"""A fresh directory for the logs of a benchmark, on the disk to be measured, gone afterwards."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from interlock.backends.paths import default_root


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """A new empty directory in ``parent``, removed in the end with everything in it.

    :param parent: default: where the default root stands, so that the disk measured is the one that
        sessions are kept on. Directories above that are missing are made, and removed if empty.
    :raises OSError: the directory cannot be made.
    """
    parent = default_root().parent if parent is None else parent.absolute()
    made = [above for above in (parent, *parent.parents) if not above.exists()]
    parent.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="interlock-bench-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)
        with suppress(OSError):  # somebody else keeps files there by now
            for above in made:
                above.rmdir()
