"""An older log as the current event stream: migrated in memory, nothing published (L12)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from .. import schema
from ..codes import Code
from ..errors import SessionError
from ..event import Event
from ..fold import LogFold
from ..header import VERSION, Header, StoredHeader
from ..passes import Recovered
from ..source import LogFile
from ..surface import SurfaceError
from .lean_rows import Chunks, Lean
from .refusal import Refusal
from .relationships import Relationships
from .rows import LAST_WITH_CHUNKS, Item, Row
from .shortcut import Shortcut
from .stored import StoredPass, StoredReader
from .v0_to_v1 import V0ToV1
from .v1_to_v2 import V1ToV2
from .v2_to_v3 import V2ToV3


class Chain:
    """The edges from one log's generation to the current one, and the checks on the target."""

    def __init__(self, source: StoredHeader) -> None:
        self._first = V0ToV1(source) if source.version == 0 else None
        header = source if self._first is None else self._first.header
        self._second = V1ToV2(header) if header.version == 1 else None
        header = header if self._second is None else self._second.header
        self._third = V2ToV3(header)
        self.header = self._third.header.header
        self.fold = LogFold()
        self._checks = Checks(self.fold)

    def events(self, items: Iterator[Item]) -> Iterator[Event]:
        """Yield the current events of a log's items. Raises :class:`Refusal`."""
        third, check = self._third, self._checks.check
        for item in items:
            for row in self._moved(item):
                for event in third.take(row):
                    check(event)
                    yield event
        yield from self._finish()

    def read(self, batches: Iterator[Sequence[Item | Lean | Chunks]]) -> None:
        """Take a log's items in as :meth:`events` does, giving none out. Raises :class:`Refusal`.

        Not for a log that inherited its beginning, nor for one that has its streams in its answers.
        """
        if self._second is None:
            raise LookupError(f"there is no short way for v{self._third.header.version}")
        relationships = self._checks.relationships
        ways = Shortcut(self._first, self._second, self._third, relationships, self.fold).ways
        for batch in batches:
            for item in batch:
                way = ways.get(type(item))
                if way is None or not way(item):
                    self._take_long(item)
        for _ in self._finish():
            pass

    def _take_long(self, item: Item | Lean | Chunks) -> None:
        if isinstance(item, Chunks):
            for chunk in item.chunks:
                self._take_all(chunk.row())
        else:
            self._take_all(item.row() if isinstance(item, Lean) else item)

    def _take_all(self, item: Item) -> None:
        for row in self._moved(item):
            for event in self._third.take(row):
                self._checks.check(event)

    def _moved(self, item: Item) -> Iterable[Row]:
        """Return what v2 has of the next item."""
        if self._first is not None:
            self._first.take(item)
        if self._second is not None:
            return self._second.take(item)
        return (item,) if isinstance(item, Row) else ()

    def _finish(self) -> Iterator[Event]:
        second, third, check = self._second, self._third, self._checks.check
        for row in second.finish() if second is not None else ():
            for event in third.take(row):
                check(event)
                yield event
        third.finish()
        self._checks.finish()


class Checks:
    """What every current log must keep, asked of a migrated one event by event."""

    def __init__(self, fold: LogFold) -> None:
        self._fold = fold
        self.relationships = Relationships(fold)

    def check(self, event: Event) -> None:
        """Check the next event and take it in. Raises :class:`Refusal`."""
        try:
            schema.check_row(event)
            self.relationships.check(event)
            self._fold.replay(event)
        except (schema.SchemaError, SurfaceError) as error:
            raise Refusal(f"{event.type}: {error}") from error

    def finish(self) -> None:
        """Check what only the log's end decides. Raises :class:`Refusal`."""
        self.relationships.finish()


class MigratingReader:
    """One pass over an older log: a :class:`~..passes.Reader` of the current events.

    ``good`` counts the file's own events. What cannot be carried over refuses the log as
    ``SESSION_FORMAT_UNSUPPORTED``, with the reason: unless the file is damaged, or breaks rules of
    its own generation.
    """

    def __init__(self, file: LogFile, *, expect_id: str | None = None) -> None:
        self.path = file.path
        self.compressed = file.compressed
        self._file = file
        self._expect_id = expect_id
        self._rows = StoredPass(file, expect_id=expect_id)
        self.version = self._rows.version
        self.header: Header = current_header(self._rows.header)
        self.fold = LogFold()

    @property
    def recovered(self) -> Recovered | None:
        """What the file's end lacks, in its own generation's terms."""
        return self._rows.recovered

    @property
    def good(self) -> int:
        """How many of the file's own events were read."""
        return self._rows.next_seq

    def events(self) -> Iterator[Event]:
        """Yield the current events; raise what refuses the log, physical damage first."""
        items = self._rows.items()
        try:
            chain = Chain(self._rows.header)
            self.fold = chain.fold
            yield from chain.events(items)
        except Refusal as refusal:
            self._refuse(refusal, items)

    def read(self) -> None:
        """Read to the end as :meth:`events` does, the short way where there is one."""
        header = self._rows.header
        if self.version > LAST_WITH_CHUNKS or header.inherited is not None:
            for _ in self.events():
                pass
            return
        batches = self._rows.lean_batches()
        try:
            chain = Chain(header)
            self.fold = chain.fold
            chain.read(batches)
        except Refusal as refusal:
            self._refuse(refusal, batches)

    def _refuse(self, refusal: Refusal, rest: Iterator[object]) -> NoReturn:
        # Damage further on comes first; then what the log's own generation refuses.
        for _ in rest:
            pass
        for _ in StoredReader(self._file, expect_id=self._expect_id).events():
            pass
        raise self._unsupported(refusal) from refusal

    def _unsupported(self, refusal: Refusal) -> SessionError:
        where = "" if refusal.seq is None else f" (event {refusal.seq})"
        return SessionError(
            Code.SESSION_FORMAT_UNSUPPORTED,
            f"{self.path}: a sound log of format v{self.version} that cannot be carried over to "
            f"v{VERSION}: {refusal.reason}{where}. The file is left as it is; open it with the "
            "program that wrote it",
            file=str(self.path),
            version=self.version,
            seq=refusal.seq,
            reason=refusal.reason,
        )


def current_header(stored: StoredHeader) -> Header:
    """Return a stored header as the current generation has it."""
    return V2ToV3(stored).header.header
