"""What ``doctor`` says of the sandboxes: each attempt, what became of it, what that means."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.sandbox import BackendReport
    from interlock.sandbox.examine import Examination
    from rich.console import Console

#: In the directory of this user's runtimes, which no confined command sees.
CACHE = "sandbox-attempts.json"


def examined(*, anew: bool) -> tuple[list[BackendReport], list[Examination]]:
    """Try every backend; the reports say what follows from what was refused."""
    from interlock.sandbox import probe
    from interlock.sandbox.examine import examine

    from ..runtime_dir import base_directory

    try:
        cache = base_directory() / CACHE
    except OSError:
        cache = None
    found = {each.backend: each for each in examine(cache, anew=anew)}
    return [_following(report, found.get(report.backend)) for report in probe()], [*found.values()]


def _following(report: BackendReport, found: Examination | None) -> BackendReport:
    if found is None:
        return report
    if found.problem is not None:
        return replace(report, usable=False, enforcement="none", gaps=(), reason=found.problem)
    return replace(report, enforcement=found.enforcement, gaps=found.gaps)


def as_documents(found: list[Examination]) -> list[dict[str, Any]]:
    """For ``--json``."""
    return [
        {
            "backend": each.backend,
            "enforcement": each.enforcement,
            "cached": each.cached,
            "attempts": [
                {
                    "name": row.attempt,
                    "tries": row.tries,
                    "refused": row.refused,
                    "gap": None if row.refused else row.gap,
                    "means": None if row.refused else row.means,
                }
                for row in each.rows
            ],
        }
        for each in found
    ]


def tell(out: Console, found: list[Examination]) -> None:
    """Print the table: one line for each attempt, one column for each backend."""
    from rich.table import Table

    if not found:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("A COMMAND TRIES TO", overflow="fold")
    for each in found:
        table.add_column(each.backend.upper(), no_wrap=True)
    table.add_column("WHERE IT CAN", overflow="fold")
    rows = {row.attempt: row for each in found for row in each.rows}
    for name, row in rows.items():
        results = [_result(each, name) for each in found]
        can = "can" in results
        table.add_row(row.tries, *results, row.means if can else "", style="yellow" if can else "")
    out.print()
    out.print(table)
    if any(each.cached for each in found):
        out.print("  tried earlier since this machine was started; --anew tries again", style="dim")


def _result(found: Examination, name: str) -> str:
    row = next((row for row in found.rows if row.attempt == name), None)
    return "-" if row is None else "refused" if row.refused else "can"
