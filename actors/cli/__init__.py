"""The command line: ``interlock``. Commands are registered in :mod:`.app`, one noun a module."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; the console script and ``python -m`` call it.

    ``argv`` are the words after the program's name, by default this process's own. What goes wrong
    becomes one line on stderr: 1 for a failure, 2 for wrong usage, 130 for Ctrl-C.
    """
    from .process import run

    return run(argv)
