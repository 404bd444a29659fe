"""Reading a v0, v1 or v2 log as its own generation means it, without carrying it over to v3.

:class:`StoredPass` is the physical side, which migration starts from as well. :func:`read_stored`
is the whole reading of the harness that wrote the log: its old shapes in the form that it returns
them, and the events with which it would close an open turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import UNSET

from .. import jsontext, schema
from ..codes import Code
from ..disk import Disk, OsDisk
from ..errors import SessionError
from ..event import EnvelopeError, Event, RowError, is_marked_ignorable
from ..fold import LogFold
from ..header import StoredHeader, decode_stored_header
from ..passes import Dropped, LinePass
from ..repair import closers
from ..source import Line, LogFile
from ..surface import SurfaceError
from .inventory import STORED_TYPES
from .lean_rows import Chunks, Lean, decode_lean
from .refusal import Refusal
from .rows import LAST_WITH_CHUNKS, Item, Row, Run, decode_item, decode_items, to_json
from .stored_shape import check_shape
from .stored_surface import surface_operation
from .v0_to_v1 import Normalizer

_FIRST_WITH_MARKER = LAST_WITH_CHUNKS + 1


class StoredPass(LinePass[Item | Lean | Chunks]):
    """One pass over the rows of an older log, checked as far as single rows go."""

    def __init__(self, file: LogFile, *, expect_id: str | None = None) -> None:
        super().__init__(file)
        self.header: StoredHeader = decode_stored_header(
            file.header_line(), file_version=file.version, source=str(file.path)
        )
        self.version = self.header.version
        #: How many events were read so far, runs counted by their members.
        self.next_seq = 0
        #: Whether some row held ranges in its sources, which the first harness did not know.
        self.ranged_at: tuple[int, Line] | None = None
        self._known = STORED_TYPES[self.version]
        self._plain = self._known - {"session/end-seed"}
        self._expect_id = expect_id
        self._unknown: Row | None = None
        self._fault: tuple[str, Line, int] | None = None
        self._marked = False
        self._lean = False

    @property
    def last_good_seq(self) -> int:
        return self.next_seq - 1

    def items(self) -> Iterator[Item]:
        """Yield items up to the first row that refuses the log; raise at the end if one did.

        Physical damage anywhere comes first, then the session's identity, unknown types, and rows
        with wrong members.
        """
        for batch in cast("Iterator[Sequence[Item]]", self.batches()):
            if self._fault is None and self._unknown is None:
                for item in batch:
                    yield item
                    # Whoever takes the items in may have noted a fault.
                    if self._fault is not None:
                        break
        self._judge()

    def lean_batches(self) -> Iterator[Sequence[Item | Lean | Chunks]]:
        """Yield items as :meth:`items` does, some at a time and undecided where they can be."""
        self._lean = True
        for batch in self.batches():
            if self._fault is None and self._unknown is None:
                yield batch
        self._judge()

    def fault(self, reason: str, line: Line, seq: int) -> None:
        """Note that a row is damaged; :meth:`items` raises the first of them at its end."""
        if self._fault is None:
            self._fault = (reason, line, seq)

    def _rows(self, text: bytes) -> Sequence[Item | Lean | Chunks] | None:
        items: Sequence[Item | Lean | Chunks] | None = None
        if self._lean:
            items = decode_lean(text, self.version, self.next_seq)
        if items is None:
            items = decode_items(text, self.version, self.next_seq, self._plain)
        if items is not None:
            last = items[-1]
            if isinstance(last, Chunks):
                self.next_seq = last.chunks[-1].seq + 1
            else:
                self.next_seq = last.seq + (last.count if isinstance(last, Run) else 1)
        return items

    def _row(self, line: Line) -> Item | None:
        expected = self.next_seq
        try:
            item, ranged = decode_item(line.text, self.version)
        except RowError:
            return None
        except EnvelopeError as error:
            if error.seq != expected:
                return None
            self.fault(f"{error.type} at seq {error.seq}: {error}", line, error.seq)
            self.next_seq = expected + 1
            row = Row(error.type, expected, 0, {})
            if error.type not in self._known and not is_marked_ignorable(line.text):
                self._unknown = self._unknown or row
            return row
        if item.seq != expected:
            return None
        if isinstance(item, Run):
            self.next_seq = expected + item.count
            return item
        self.next_seq = expected + 1
        if ranged and self.ranged_at is None:
            self.ranged_at = (expected, line)
        if item.type not in self._known and item.ignorable is UNSET and self._unknown is None:
            self._unknown = item
        if item.type == "session/end-seed" and item.data.get("inherited") is True:
            self._marked = True
        return item

    def _look_behind(self, line: Line) -> bool:
        try:
            row = jsontext.loads_anyhow(line.text)
        except ValueError:
            return False
        return isinstance(row, dict) and row.get("type") == "turn/end"

    def _judge(self) -> None:
        found, expected = self.header.header.id, self._expect_id
        if expected is not None and found != expected:
            self.corrupt(f"the log belongs to session {found!r}, not {expected!r}", 0, 0)
        inherited = self.header.inherited
        if inherited is not None and inherited > self.next_seq:
            self.corrupt(f"seedLength is {inherited}, and there are fewer events", 0, 0)
        if self.version >= _FIRST_WITH_MARKER and self._marked != self.header.header.is_seeded:
            self.corrupt("the header and the marker of an inherited beginning disagree", 0, 0)
        if self._unknown is not None:
            raise self._unsupported(self._unknown)
        if self._fault is not None:
            reason, line, seq = self._fault
            self._file.corrupt(reason, line.frame, line.offset, seq - 1)

    def _unsupported(self, row: Row) -> SessionError:
        return SessionError(
            Code.SESSION_FORMAT_UNSUPPORTED,
            f"{self.path}: event {row.seq} has the unknown type {row.type!r}: written by a newer "
            "version or a plugin that this one does not know; open it with that",
            file=str(self.path),
            version=self.version,
            type=row.type,
            seq=row.seq,
        )


class Stored(msgspec.Struct, frozen=True):
    """A log in its own generation's terms.

    ``events`` are JSON objects; the last ``closers`` of them are not in the file but what the
    harness would append to close an open turn.
    """

    header: StoredHeader
    events: list[dict[str, Any]]
    closers: int
    dropped: Dropped | None


def read_stored(path: Path, *, disk: Disk | None = None, expect_id: str | None = None) -> Stored:
    """Read a log of v0, v1 or v2 whole, as the harness of that time did. Changes nothing on disk.

    All events are in memory at once: for looking at one log, not for migrating it. Raises
    ``SessionError``: ``SESSION_CORRUPT``, or ``SESSION_FORMAT_UNSUPPORTED`` for an event type that
    this generation does not have.
    """
    with LogFile(Path(path), disk or OsDisk()) as file:
        reading = StoredReader(file, expect_id=expect_id)
        events = [to_json(row) for row in reading.events()]
        added = reading.closers()
        dropped = reading.rows.recovered.dropped if reading.rows.recovered is not None else None
        return Stored(reading.rows.header, events + added, len(added), dropped)


class StoredReader:
    """The events of one older log, with the checks of that time's own reader."""

    def __init__(self, file: LogFile, *, expect_id: str | None = None) -> None:
        self.rows = StoredPass(file, expect_id=expect_id)
        self.fold = LogFold()
        header = self.rows.header
        old = header.version == 0
        self._normalizer = Normalizer(header, keep_prefix=True) if old else None

    def events(self) -> Iterator[Row]:
        """Yield every stored event, old shapes made current, packed ones expanded."""
        for item in self.rows.items():
            if isinstance(item, Run):
                yield from item.expand()
                self.fold.next_seq = item.seq + item.count
                self.fold.last_time = item.time
                continue
            try:
                if self._normalizer is not None:
                    self._normalizer.normalize(item)
                    self._refuse_ranges(item)
                self._take_in(item)
            except (schema.SchemaError, SurfaceError, Refusal) as error:
                reason = f"{item.type} at seq {item.seq}: {error}"
                self.rows.fault(reason, self.rows.line_of(item), item.seq)
                continue
            yield item

    def closers(self) -> list[dict[str, Any]]:
        """Return what the harness appends to close an open turn, after :meth:`events`."""
        added: list[dict[str, Any]] = []
        for draft in closers(self.fold):
            if draft.type == "compaction/end":
                # Ours: the harness of that time left an interrupted compaction open.
                continue
            seq = self.fold.next_seq + len(added)
            row = Row(draft.type, seq, self.fold.last_time, jsontext.loads(draft.data))
            if draft.surface_op is not None:
                row.surfaceOp = "append"
            if draft.sources is not None:
                row.sourceEventSeqs = list(draft.sources)
            added.append(to_json(row))
        return added

    def _refuse_ranges(self, row: Row) -> None:
        ranged = self.rows.ranged_at
        if ranged is not None and ranged[0] == row.seq:
            raise schema.SchemaError("sourceEventSeqs hold ranges, which v0 does not have")

    def _take_in(self, row: Row) -> None:
        surface = row.type in schema.SURFACE_TYPES and row.type != "system/message"
        if surface:
            schema.check_body(row.type, row.data)
        elif row.ignorable is UNSET and not (
            row.surfaceOp is UNSET and row.sourceEventSeqs is UNSET
        ):
            raise schema.SchemaError(f"{row.type} may have neither surfaceOp nor sourceEventSeqs")
        if row.type == "request/header" and not isinstance(row.data.get("header"), dict):
            raise schema.SchemaError("request/header has no header object")
        if self.rows.version == 0:
            check_shape(row.type, row.data)
        operation = surface_operation(row) if surface else None
        if surface and operation is None:
            raise schema.SchemaError(f"{row.type} has no surfaceOp")
        sources = None if row.sourceEventSeqs is UNSET else tuple(row.sourceEventSeqs)
        ignorable = row.ignorable is True
        event = Event(row.type, row.seq, row.time, None, ignorable, operation, sources, row.data)
        if event.ignorable and row.type not in STORED_TYPES[self.rows.version]:
            self.fold.next_seq = row.seq + 1
            self.fold.last_time = row.time
            return
        self.fold.replay(event)
