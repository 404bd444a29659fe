"""A log as the command line reads it: without a lock, and as far as it is good."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from interlock.backends.errors import SessionError
from interlock.backends.event import Event
from interlock.backends.header import Header
from interlock.backends.reading import open_reader, read_events
from interlock.backends.source import LogFile

from .locate import Found


class Log:
    """One log: its reading, or its header and the error that refuses the rest.

    Reads the file once to its end. Raises ``SessionError`` where not even the header is good.
    """

    def __init__(self, found: Found) -> None:
        self.found = found
        self.refused: SessionError | None = None
        with LogFile(found.path, found.disk) as file:
            self.bytes = file.size
            reader = open_reader(file, expect_id=found.session_id)
            self.header: Header = reader.header
            #: The generation it is stored in; the events are current whatever it is.
            self.version = reader.version
            #: How many current events are good, whatever comes after them.
            self.good = 0
            try:
                for event in reader.events():
                    self.good = event.seq + 1
            except SessionError as error:
                self.refused = error
            self.fold = reader.fold
            self.dropped = reader.recovered.dropped if reader.recovered else None

    @property
    def name(self) -> str:
        """What to type for this session."""
        return self.header.id

    def events(self, start: int = 0) -> Iterator[Event]:
        """Yield the good events from ``start`` on: those before the damage where there is some."""
        # Not one further: behind the last good event there may be the damage.
        events = read_events(self.found.path, start, disk=self.found.disk)
        return islice(events, max(0, self.good - start))
