"""The places where the product syncs, found in its text, and which one is calling right now."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

BACKENDS = Path(__file__).parents[2] / "backends"

_SYNCS = frozenset({"fsync", "fdatasync", "sync_directory"})
#: What stands between the product and a disk, and is no place of its own.
_BELOW = frozenset({"disk.py"})


@cache
def places() -> dict[tuple[str, int], str]:
    """Return the name of every place that syncs, by file and line."""
    found: dict[tuple[str, int], str] = {}
    for path in sorted(BACKENDS.rglob("*.py")):
        if path.name in _BELOW or path.name == "overlay.py":
            continue
        module = ".".join(path.relative_to(BACKENDS).with_suffix("").parts)
        calls = list(_calls(ast.parse(path.read_text()), ""))
        for function, operation, _, _ in calls:
            alike = [c for c in calls if c[:2] == (function, operation)]
            for number, (_, _, first, last) in enumerate(alike, 1):
                name = f"{module}:{function} {operation}"
                if len(alike) > 1:
                    name += f" {number}"
                for line in range(first, last + 1):
                    found[str(path.resolve()), line] = name
    return found


def current_place() -> str:
    """Return the place that the product is syncing at; called from below it."""
    frame = sys._getframe(1)
    while frame is not None:
        path = str(Path(frame.f_code.co_filename).resolve())
        if path.startswith(str(BACKENDS.resolve())):
            return places()[path, frame.f_lineno]
        frame = frame.f_back  # type: ignore[assignment]
    raise AssertionError("nothing of the product is on the stack")


def _calls(node: ast.AST, scope: str) -> Iterator[tuple[str, str, int, int]]:
    for child in ast.iter_child_nodes(node):
        inner = scope
        if isinstance(child, ast.FunctionDef | ast.ClassDef):
            inner = f"{scope}.{child.name}" if scope else child.name
        elif (
            isinstance(child, ast.Call)
            and isinstance(child.func, ast.Attribute)
            and child.func.attr in _SYNCS
        ):
            yield scope, child.func.attr, child.lineno, child.end_lineno or child.lineno
        yield from _calls(child, inner)
