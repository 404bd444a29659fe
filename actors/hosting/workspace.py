"""Paths as a model writes them, held to the session's working directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ..tools.context import ToolContext
from ..tools.failure import ToolFailure

#: Directories whose files nobody wrote by hand.
SKIPPED = frozenset(
    {
        *(".git", ".hg", ".svn", ".venv", "venv", "node_modules", "__pycache__", "build", "dist"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".tox", "site-packages"),
    }
)
#: Entries looked at below one directory, so that no tree is too large.
SCAN_LIMIT = 20_000


def workspace(ctx: ToolContext) -> Path:
    """Return the session's working directory, resolved.

    Raises :class:`ToolFailure` where the session has none.
    """
    if not ctx.cwd:
        raise ToolFailure("this session has no working directory; give the agent a `cwd`")
    return Path(os.path.realpath(ctx.cwd))


def inside(ctx: ToolContext, path: str) -> Path:
    """Return ``path`` as a file of the working directory, links followed.

    Raises :class:`ToolFailure` for a path that leads out of it: worker bodies are trusted code
    (S10), so what a model may name is held here.
    """
    root = workspace(ctx)
    try:
        found = Path(os.path.realpath(root / path))
    except (OSError, ValueError) as error:
        raise ToolFailure(f"{path!r} is no path: {error}") from None
    if found != root and root not in found.parents:
        raise ToolFailure(f"{path!r} leads out of the working directory", "OUTSIDE_WORKSPACE")
    return found


def files(root: Path, limit: int = SCAN_LIMIT) -> Iterator[Path]:
    """Yield the files below ``root`` in the order of their names, links and generated ones left
    out; at most ``limit`` entries are looked at.
    """
    seen = 0
    for directory, names, leaves in os.walk(root):
        names[:] = sorted(n for n in names if n not in SKIPPED and not n.endswith(".egg-info"))
        for leaf in sorted(leaves):
            seen += 1
            if seen > limit:
                return
            path = Path(directory, leaf)
            if path.is_file() and not path.is_symlink():
                yield path
