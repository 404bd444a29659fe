"""Showing a :class:`~.board.Board`: a live table on a terminal, lines everywhere else."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from .board import Board, Row, State

#: Refreshes of the table per second.
RATE = 8.0

_STYLES: dict[State, str] = {
    "waiting": "dim",
    "working": "cyan",
    "asking": "bold yellow",
    "killed": "bold red",
    "done": "green",
    "failed": "bold red",
    "skipped": "dim",
}
_MARKS: dict[State, str] = {
    "waiting": "·",
    "working": "▸",
    "asking": "?",
    "killed": "✗",
    "done": "✓",
    "failed": "!",
    "skipped": "-",
}


class Screen:
    """Shows progress while it is open. ``quiet`` shows nothing (``--json``).

    The table is drawn by a thread of rich's own; :meth:`line` is called from any one thread.
    """

    def __init__(self, board: Board, title: str, *, quiet: bool = False) -> None:
        self.console = Console(highlight=False, markup=False, emoji=False)
        self._board, self._title, self._quiet = board, title, quiet
        self._started = time.monotonic()
        self._live: Live | None = None
        if not quiet and self.console.is_terminal:
            self._live = Live(
                get_renderable=self._table, console=self.console, refresh_per_second=RATE
            )

    @property
    def live(self) -> bool:
        """Whether there is a table."""
        return self._live is not None

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        if self._live is not None:
            self._live.start(refresh=True)
        else:
            self.line(self._title)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Take the table away while somebody is asked something."""
        if self._live is not None:
            self._live.stop()
        try:
            yield
        finally:
            if self._live is not None:
                self._live.start(refresh=True)

    def line(self, text: str | None) -> None:
        """Print a line where there is no table; ``None`` prints nothing."""
        if text is not None and self._live is None and not self._quiet:
            self.console.print(Text(text), soft_wrap=True)

    def say(self, text: str = "", style: str = "", *, wrap: bool = True) -> None:
        """Print a sentence for a person, also where there was a table.

        :param wrap: break it between words; not what is to be copied.
        """
        if not self._quiet:
            self.console.print(Text(text, style=style), soft_wrap=not wrap)

    def _table(self) -> Group:
        rows = list(self._board.rows.values())
        table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, padding=(0, 1, 0, 0))
        table.add_column("agent", no_wrap=True, max_width=14, overflow="ellipsis")
        table.add_column("now", no_wrap=True, ratio=1, overflow="ellipsis")
        table.add_column("calls", justify="right", no_wrap=True)
        table.add_column("last result", no_wrap=True, max_width=26, overflow="ellipsis")
        table.add_column("", no_wrap=True, width=1)
        shown = _most_interesting(rows, max(4, self.console.height - 6))
        for row in shown:
            table.add_row(*_cells(row))
        done = sum(row.state in ("done", "skipped") for row in rows)
        calls = sum(row.calls for row in rows)
        seconds = time.monotonic() - self._started
        footer = f"{done} of {len(rows)} agents done, {calls} calls, {seconds:.1f} s"
        if len(shown) < len(rows):
            footer += f" ({len(rows) - len(shown)} rows not shown)"
        return Group(Text(self._title, style="bold"), table, Text(footer, style="dim"))


def _most_interesting(rows: list[Row], room: int) -> list[Row]:
    """The rows to show where not all fit: those at work first, in their own order."""
    if len(rows) <= room:
        return rows
    rank = {"failed": 0, "asking": 1, "killed": 2, "working": 3, "waiting": 4}
    chosen = sorted(rows, key=lambda row: rank.get(row.state, 5))[:room]
    return [row for row in rows if any(row is one for one in chosen)]


def _cells(row: Row) -> tuple[Text, ...]:
    style = _STYLES[row.state]
    failed = bool(row.last) and not row.last.endswith(" OK")
    return (
        Text(row.name, style=style),
        Text(row.doing, style="" if row.state == "working" else style),
        Text(str(row.calls)),
        Text(row.last, style="yellow" if failed else "green"),
        Text(_MARKS[row.state], style=style),
    )
