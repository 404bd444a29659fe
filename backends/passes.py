"""One pass over a log file's lines, whatever generation they are of: rows in order, then the end.

What each line says is the reader's; what a bad line, a gap or a torn end means for the log is the
same in every generation (L9, L10) and stands here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec

from .event import Event
from .fold import LogFold
from .frames import FrameError
from .header import Header
from .source import Line, Lines, LogFile

Row = TypeVar("Row")

#: Lines behind a bad one in a torn frame that are looked at. A cut leaves none that is bad; what
#: holds more was made to keep its reader busy: a few megabytes can unpack to endless line ends.
GARBAGE_LINES = 100_000


class Dropped(msgspec.Struct, frozen=True):
    """The end of a log that is not part of it.

    ``bytes`` from ``offset`` on are not the log's; ``records`` of the lines in there were given up
    and ``recovered`` ones were saved from it. ``may_be_acknowledged`` is false where only a write
    that never finished can have left them (an incomplete last frame or line): nobody was told that
    those events are durable.
    """

    bytes: int
    records: int
    offset: int
    recovered: int
    may_be_acknowledged: bool


class Recovered(msgspec.Struct, frozen=True):
    """How to mend a log's end: cut it at ``offset``, then write ``lines`` again."""

    dropped: Dropped
    offset: int
    lines: bytes


class Reader(Protocol):
    """One pass over a log file as the current event stream, whatever generation it is stored in.

    ``version`` is the file's generation and ``header`` the current one. After :meth:`events` is
    exhausted ``fold`` is the log's state.
    """

    path: Path
    compressed: bool
    version: int
    header: Header
    fold: LogFold

    @property
    def recovered(self) -> Recovered | None:
        """What the file's end lacks, or None."""

    @property
    def good(self) -> int:
        """How many of the file's own events are good."""

    def events(self) -> Iterator[Event]:
        """Yield every current event; raise what refuses the log."""

    def read(self) -> None:
        """Read to the end as :meth:`events` does, for who wants none of the events."""


class LinePass(ABC, Generic[Row]):
    """Yields a file's rows, and judges what is no row."""

    def __init__(self, file: LogFile) -> None:
        self.path = file.path
        self.compressed = file.compressed
        #: Set after :meth:`batches` where the file does not end with its last event.
        self.recovered: Recovered | None = None
        #: Where the log's whole frames or lines end, in bytes: what a writer may trust.
        self.end = 0
        self._file = file
        self._batch: tuple[Iterator[Line], Sequence[Row]] | None = None

    @property
    @abstractmethod
    def last_good_seq(self) -> int:
        """The seq of the last event that was good, -1 if none."""

    @abstractmethod
    def _rows(self, text: bytes) -> Sequence[Row] | None:
        """Return what whole lines say, all of them rows and due; None if one by one tells more."""

    @abstractmethod
    def _row(self, line: Line) -> Row | None:
        """Return what a line says, or None if it is no row or not the next one."""

    @abstractmethod
    def _look_behind(self, line: Line) -> bool:
        """Tell whether a line at or behind damage ends a turn."""

    def batches(self) -> Iterator[Sequence[Row]]:
        """Yield every row, some at a time; raise ``SESSION_CORRUPT`` for damage no cut explains.

        The next ones are looked at when those before have been taken in.
        """
        recovered: list[bytes] = []
        parts = self._guarded_parts()
        for part in parts:
            rows = self._rows(part.text)
            if rows is not None:
                if not part.verified:
                    recovered += [line.text for line in part.split()]
                self._batch = part.split(), rows
                yield rows
                continue
            lines = part.split()
            for line in lines:
                row = self._row(line)
                if row is None:
                    self._drop_tail(line, lines, parts, recovered)
                    return
                if not line.verified:
                    recovered.append(line.text)
                self._batch = iter((line,)), (row,)
                yield (row,)
        self._end_of_lines(recovered)

    def line_of(self, row: Row) -> Line:
        """Return the line that a row of the last batch stood in. Only once for each batch."""
        if self._batch is not None:
            for line, other in zip(*self._batch, strict=True):
                if other is row:
                    return line
        raise LookupError("that row is of no batch under way")

    def corrupt(self, reason: str, frame: int, offset: int) -> NoReturn:
        """Refuse the log as damaged."""
        self._file.corrupt(reason, frame, offset, self.last_good_seq)

    def _guarded_parts(self) -> Iterator[Lines]:
        try:
            for lines in self._file.lines():
                yield from lines.parts()
        except FrameError as error:
            self.corrupt(error.reason, error.frame, error.offset)

    def _end_of_lines(self, recovered: list[bytes]) -> None:
        torn = self._file.torn
        self.end = self._file.size
        if torn is None:
            return
        if b"\0" in torn.partial and not self.compressed:
            self.corrupt("the file ends in NUL bytes", torn.frame, torn.offset)
        # L9: nobody was told that a write which did not finish is durable.
        self._set_recovered(torn.offset, recovered, 1 if torn.partial else 0, acknowledged=False)

    def _drop_tail(
        self, bad: Line, beside: Iterator[Line], behind: Iterator[Lines], recovered: list[bytes]
    ) -> None:
        """Judge a line that is no event where one was due: a tail to drop, or damage (L9, L10)."""
        if self.compressed and bad.verified:
            self.corrupt("a line inside a complete frame is no event row", bad.frame, bad.offset)
        if b"\0" in bad.text:
            self.corrupt("the log holds NUL bytes", bad.frame, bad.offset)
        records, ends_turn = 1, self._look_behind(bad)
        for line in chain(beside, chain.from_iterable(lines.split() for lines in behind)):
            records += 1
            if self.compressed and records > GARBAGE_LINES:
                self.corrupt("no cut leaves so many lines behind a bad one", bad.frame, bad.offset)
            ends_turn = self._look_behind(line) or ends_turn
        if ends_turn:
            self.corrupt("a bad line stands before a turn/end", bad.frame, bad.offset)
        torn = self._file.torn
        if torn is not None and torn.partial:
            records += 1
            if b"\0" in torn.partial and not self.compressed:
                self.corrupt("the file ends in NUL bytes", torn.frame, torn.offset)
        offset = torn.offset if self.compressed and torn is not None else bad.offset
        # A raw log's dropped tail holds whole lines, and those may have been acknowledged (R1).
        self._set_recovered(offset, recovered, records, acknowledged=not self.compressed)

    def _set_recovered(
        self, offset: int, lines: list[bytes], records: int, *, acknowledged: bool
    ) -> None:
        dropped = Dropped(self._file.size - offset, records, offset, len(lines), acknowledged)
        self.end = offset
        self.recovered = Recovered(dropped, offset, b"".join(lines))
