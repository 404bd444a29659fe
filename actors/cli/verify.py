"""``sessions verify``: what each log is, and where a damaged one is damaged."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interlock.backends.errors import SessionError
from interlock.backends.verify import NotALog, Progress
from interlock.backends.verify import verify as verify_logs

from .locate import locate
from .output import CommandFailed, console, emit, one_line

_STYLES = {"ok": "green", "repairable": "yellow", "locked": "yellow"}


def verify(path: str | None, root: Path, *, as_json: bool) -> int:
    """Report on a root, a session's directory or a log file; also on a session by its id.

    Returns 0 where every session is ok or repairable, 1 otherwise. Raises :class:`CommandFailed`
    (2) for what is no log and no root.
    """
    try:
        with _progress() as progress:
            target = _target(path, root)
            report = verify_logs(target, processes=os.cpu_count() or 1, progress=progress)
    except NotALog as error:
        raise CommandFailed(str(error), 2) from None
    if as_json:
        emit(report.to_json())
    else:
        out = console()
        for entry in report.sessions:
            out.print(_line(entry), style=_STYLES.get(entry["status"], "bold red"), soft_wrap=True)
        if len(report.sessions) > 1:
            out.print(_summary(report.sessions), style="dim", soft_wrap=True)
    return 0 if report.sound else 1


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """Show on a terminal's stderr how far the reading is; elsewhere show nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.BarColumn(),
        bars.DownloadColumn(),
        bars.TransferSpeedColumn(),
        bars.TimeRemainingColumn(),
    )
    # On stderr, so that what is reported can go into a pipe.
    with bars.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=None)
        yield lambda seen, total: bar.update(task, completed=seen, total=total)


def _target(path: str | None, root: Path) -> Path:
    if path is None:
        return root
    given = Path(path)
    if given.exists() or given.is_symlink():
        return given
    try:
        return locate(path, root).path
    except SessionError:
        return given


def _line(entry: dict[str, Any]) -> str:
    name = one_line(entry["id"] or Path(entry["path"]).parent.name)
    if entry["status"] == "ok":
        return f"ok          {name}  {entry['stored_events']} events"
    words = [f"{entry['status']:<11} {name} "]
    if entry["code"]:
        words.append(entry["code"])
    words.append(one_line(entry["message"] or ""))
    closing = [
        " ".join(str(part) for part in (e["type"], e["call_id"], e["code"]) if part)
        for e in entry["repair"]
    ]
    if closing:
        words.append(f"[{', '.join(one_line(word) for word in closing)}]")
    return " ".join(words)


def _summary(sessions: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for entry in sessions:
        counts[entry["status"]] = counts.get(entry["status"], 0) + 1
    return f"{len(sessions)} sessions: " + ", ".join(
        f"{n} {status}" for status, n in counts.items()
    )
