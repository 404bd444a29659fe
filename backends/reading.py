"""Reading a log: every event that is surely there, and a plain word about what is not.

What is dropped, what refuses (L9, L10), in the order in which it is looked at: frames and lines,
header (foreign version first), rows, whose log it is, unknown types, envelopes and surface. So a
damaged file is called damaged also where it holds something unknown, and the other way round only
where nothing is damaged.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import jsontext, schema
from .codes import Code
from .disk import Disk, OsDisk
from .errors import SessionError
from .event import (
    EnvelopeError,
    Event,
    RowError,
    decode_line,
    decode_lines,
    is_marked_ignorable,
)
from .fold import LogFold
from .generations.current import MigratingReader
from .header import VERSION, Header, decode_header, decode_stored_header
from .passes import LinePass, Reader
from .source import Line, LogFile
from .surface import SurfaceError

#: A writer that takes a failed write back changes the file under a reader. What looks like damage
#: in a file that has just changed is looked at again, this often.
_TRIES = (False, False, True)


class Reading:
    """A log that was read to its end. ``fold`` is its state after the last event.

    :attr:`events` reads the file again, one event at a time: memory stays bounded however long
    the log is.
    """

    def __init__(self, reader: Reader, disk: Disk) -> None:
        self.path = reader.path
        self.header = reader.header
        #: The generation that the file is stored in; the events are current whatever it is.
        self.version = reader.version
        self.compression = "zstd" if reader.compressed else "none"
        self.dropped = reader.recovered.dropped if reader.recovered else None
        self.fold = reader.fold
        self._disk = disk

    @property
    def last_seq(self) -> int:
        """The seq of the last event, -1 in a log without any."""
        return self.fold.next_seq - 1

    @property
    def events(self) -> Iterator[Event]:
        """The events that were there when the log was read, from the first on."""
        return read_events(self.path, 0, self.fold.next_seq, disk=self._disk)


def read_log(path: Path, *, disk: Disk | None = None, expect_id: str | None = None) -> Reading:
    """Read and check a log file of any generation up to this one. Changes nothing on disk.

    An older one is migrated in memory (L12). ``expect_id`` is the session that the file should
    belong to. What was dropped at the end is in :attr:`Reading.dropped`; in a log that is being
    written it may only be not there yet.

    Raises ``SessionError``: ``SESSION_CORRUPT`` with file, frame, offset and last good seq, or
    ``SESSION_FORMAT_UNSUPPORTED``. ``OSError`` if the file cannot be read.
    """
    disk = disk or OsDisk()
    for last_try in _TRIES:
        with LogFile(Path(path), disk) as file:
            try:
                reader = open_reader(file, expect_id=expect_id)
                reader.read()
                return Reading(reader, disk)
            except SessionError:
                if last_try or not file.changed():
                    raise
    raise AssertionError("the last try returns or raises")


def read_events(
    path: Path, start_seq: int = 0, end_seq: int | None = None, *, disk: Disk | None = None
) -> Iterator[Event]:
    """Yield the events ``start_seq`` to ``end_seq`` (not included) of a log file, one at a time.

    Damage raises as in :func:`read_log`, when it is reached: events before it have been yielded.
    """
    disk = disk or OsDisk()
    for last_try in _TRIES:
        with LogFile(Path(path), disk) as file:
            try:
                for event in open_reader(file).events():
                    if end_seq is not None and event.seq >= end_seq:
                        return
                    if event.seq >= start_seq:
                        start_seq = event.seq + 1
                        yield event
                return
            except SessionError:
                if last_try or not file.changed():
                    raise


def open_reader(file: LogFile, *, expect_id: str | None = None) -> Reader:
    """Return one pass over a log file as current events, whichever generation it is stored in.

    Raises ``SessionError`` for a header that no generation has.
    """
    if _is_older(file):
        return MigratingReader(file, expect_id=expect_id)
    return LogReader(file, expect_id=expect_id)


def _is_older(file: LogFile) -> bool:
    if file.version is not None:
        return file.version < VERSION
    # The name says nothing: what the header says about a damaged log is said by its reader.
    stored = decode_stored_header(file.header_line(), file_version=None, source=str(file.path))
    return stored.version < VERSION


class LogReader(LinePass[Event]):
    """One pass over a log file of this generation: yields events, keeps the fold, and judges."""

    version = VERSION

    def __init__(self, file: LogFile, *, expect_id: str | None = None) -> None:
        super().__init__(file)
        self.fold = LogFold()
        #: How many events are good, whatever came after them.
        self.good = 0
        self._expect_id = expect_id
        # What refuses the log unless the file turns out to be damaged: an unknown type first.
        self._unknown: SessionError | None = None
        self._fault: tuple[str, Line, int] | None = None
        version = VERSION if file.version is None else file.version
        self.header: Header = decode_header(
            file.header_line(), file_version=version, source=str(file.path)
        )

    @property
    def last_good_seq(self) -> int:
        return self.fold.next_seq - 1

    def events(self) -> Iterator[Event]:
        """Yield every event; raise what refuses the log, physical damage first."""
        fold, is_known, check_row = self.fold, schema.is_known, schema.check_row
        for batch in self.batches():
            for event in batch:
                if not event.ignorable and not is_known(event.type):
                    self._note_unknown(event)
                elif self._unknown is None and self._fault is None:
                    try:
                        check_row(event)
                        fold.replay(event)
                    except (schema.SchemaError, SurfaceError) as error:
                        self._note_fault(event, self.line_of(event), error)
                    else:
                        self.good = fold.next_seq
                        yield event
                        continue
                fold.next_seq = event.seq + 1
        self._judge()

    def read(self) -> None:
        """Read to the end: :meth:`events` without whoever takes them."""
        for _ in self.events():
            pass

    def _rows(self, text: bytes) -> list[Event] | None:
        return decode_lines(text, self.fold.next_seq)

    def _row(self, line: Line) -> Event | None:
        """Return the event of a line, or None if the line is no row or not the next one."""
        expected = self.fold.next_seq
        try:
            event = decode_line(line.text)
        except RowError:
            return None
        except EnvelopeError as error:
            if error.seq != expected:
                return None
            # Judged at the end: an unknown type or a damaged frame further on comes first.
            event = Event(error.type, expected, self.fold.last_time, b"{}", ignorable=True)
            self._note_fault(event, line, error)
            if not schema.is_known(error.type) and not is_marked_ignorable(line.text):
                self._note_unknown(event)
            return event
        return event if event.seq == expected else None

    def _look_behind(self, line: Line) -> bool:
        """Tell whether a line behind damage ends a turn; refuse what no v3 file may hold at all."""
        try:
            row = jsontext.loads_anyhow(line.text)
        except ValueError:
            return False
        if not isinstance(row, dict):
            return False
        kind = row.get("type")
        if not isinstance(kind, str):
            return False
        if kind in schema.RETIRED_TYPES and row.get("ignorable") is not True:
            raise self._unsupported(kind, self.fold.next_seq)
        try:
            schema.check_structure(kind, row.get("data"))
        except schema.SchemaError as error:
            self.corrupt(str(error), line.frame, line.offset)
        return kind == "turn/end"

    def _judge(self) -> None:
        if self._expect_id is not None and self.header.id != self._expect_id:
            self.corrupt(
                f"the log belongs to session {self.header.id!r}, not {self._expect_id!r}", 0, 0
            )
        if self._unknown is not None:
            raise self._unknown
        if self._fault is not None:
            reason, line, last_good = self._fault
            self._file.corrupt(reason, line.frame, line.offset, last_good)
        marked = self.fold.inherited_cut is not None
        if marked != self.header.is_seeded:
            what = "lacks the marker of" if self.header.is_seeded else "has a marker of"
            self.corrupt(f"the log {what} an inherited beginning against its header", 0, 0)

    def _note_fault(self, event: Event, line: Line, error: ValueError) -> None:
        if self._fault is None:
            reason = f"{event.type} at seq {event.seq}: {error}"
            self._fault = (reason, line, event.seq - 1)

    def _note_unknown(self, event: Event) -> None:
        if self._unknown is None:
            self._unknown = self._unsupported(event.type, event.seq)

    def _unsupported(self, kind: str, seq: int) -> SessionError:
        return SessionError(
            Code.SESSION_FORMAT_UNSUPPORTED,
            f"{self.path}: event {seq} has the unknown type {kind!r}: written by a newer version "
            "or a plugin that this one does not know; open it with that",
            file=str(self.path),
            type=kind,
            seq=seq,
        )
