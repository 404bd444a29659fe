"""One session's log, open for writing: events in memory, batches on their way, bytes on disk.

Two threads share a :class:`SessionLog`. The writer's own thread appends, seals and acknowledges;
an I/O thread, one at a time for a session, publishes, mends and writes. What one of them changes
the other does not touch, except for the flags :attr:`SessionLog.published` and
:attr:`SessionLog.failed`, which only ever turn on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from . import frames, jsontext
from .codes import Code
from .errors import InterlockError, LogError, SessionError
from .event import Draft, Event, encode_line
from .fold import LogFold
from .header import Header
from .passes import Dropped

#: Lines of no more bytes than this are encoded and written in little time.
SMALL = 32 * 1024


class LogStore(Protocol):
    """Where one log's bytes go. All methods run in I/O threads, one at a time for a log."""

    @property
    def directory(self) -> Path:
        """Where what belongs to the session lies; need not exist."""

    @property
    def path(self) -> Path:
        """The log file, or a path that names the log and where no file is."""

    @property
    def compressed(self) -> bool:
        """Whether batches come as frames, else as lines."""

    @property
    def published(self) -> bool:
        """Whether the log exists for everybody."""

    @property
    def owed(self) -> bool:
        """Whether events are to be read from the writer's memory: no file at ``path`` has them."""

    @property
    def dropped(self) -> Dropped | None:
        """What the log's end held that was no event when it was opened."""

    @property
    def failed(self) -> InterlockError | None:
        """Why nothing more can be written, or None."""

    @property
    def opened_seq(self) -> int:
        """The last seq when the log was opened, -1 if it was new."""

    def write(self, data: bytes, spills: Sequence[tuple[int, bytes]]) -> None:
        """Make a batch durable, as :meth:`SessionLog.write` says; the first one publishes."""

    def mend(self) -> None:
        """Bring a torn end in order (L9)."""

    def close(self) -> None:
        """Free the log for the next writer."""


class Part:
    """Events that were sealed together: one frame on disk. Its bytes never change once made."""

    __slots__ = ("_encoded", "_lines", "first_seq", "is_small", "last_seq", "spills")

    def __init__(
        self, first_seq: int, last_seq: int, lines: bytes, spills: tuple[tuple[int, bytes], ...]
    ) -> None:
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.spills = spills
        self._lines = lines
        self.is_small = not spills and len(lines) <= SMALL
        self._encoded: bytes | None = None

    def encoded(self, *, compressed: bool) -> bytes:
        """Return the bytes for the file. Called in the I/O thread; every retry gets the same."""
        if self._encoded is None:
            self._encoded = frames.encode(self._lines) if compressed else self._lines
        return self._encoded


class Batch(msgspec.Struct, frozen=True):
    """What one write makes durable: ``first_seq`` to ``last_seq``, a frame for each part."""

    parts: tuple[Part, ...]

    @property
    def first_seq(self) -> int:
        """The seq of the first event."""
        return self.parts[0].first_seq

    @property
    def last_seq(self) -> int:
        """The seq of the last event."""
        return self.parts[-1].last_seq

    @property
    def is_small(self) -> bool:
        """Whether writing it takes about as long as a sync: a few lines and no spilled result."""
        return all(part.is_small for part in self.parts)


class SessionLog:
    """A log that this process may write to. Made by ``JsonlBackend.create`` and ``open``."""

    __slots__ = (
        "_closed",
        "_returned",
        "_spills",
        "_store",
        "_unacknowledged",
        "_unsealed",
        "durable_seq",
        "fold",
        "header",
    )

    def __init__(
        self,
        header: Header,
        store: LogStore,
        fold: LogFold,
        durable_seq: int,
        lines: Sequence[Event],
    ) -> None:
        self.header = header
        self.fold = fold
        #: The highest event known to survive power loss, -1 if none. The writer's thread sets it.
        self.durable_seq = durable_seq
        self._store = store
        self._unacknowledged = list(lines)
        self._unsealed: list[Event] = []
        self._spills: list[tuple[int, bytes]] = []
        self._returned: tuple[Part, ...] = ()
        self._closed = False

    @property
    def directory(self) -> Path:
        """The session's directory."""
        return self._store.directory

    @property
    def path(self) -> Path:
        """The log file (not there before it is published)."""
        return self._store.path

    @property
    def published(self) -> bool:
        """Whether the log exists for everybody: its file, or a journal that will make it."""
        return self._store.published

    @property
    def store(self) -> LogStore:
        """The log's bytes. I/O thread."""
        return self._store

    @property
    def recovered(self) -> Dropped | None:
        """What the file's end held that was no event when the log was opened, or None."""
        return self._store.dropped

    @property
    def failed(self) -> InterlockError | None:
        """Why nothing more can be written, or None."""
        return self._store.failed

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    # The writer's thread: memory only.

    def append(self, drafts: Sequence[Draft], time: int) -> list[Event]:
        """Take in events, all or none, and return them with their seqs. Nothing is durable yet.

        ``time`` is the wall clock in ms. Writer's thread; no I/O. Raises ``LogError``
        (``EVENT_INVALID``) if a draft breaks the format or the grammar, ``SessionError``
        (``SESSION_CLOSED``) or the error that closed the log.
        """
        self._refuse_if_over()
        first = self.fold.next_seq
        named = [
            _name_spill(draft, first + i) if draft.spill is not None else draft
            for i, draft in enumerate(drafts)
        ]
        events = self.fold.admit(named, time)
        for draft, event in zip(drafts, events, strict=True):
            if draft.spill is not None:
                self._spills.append((event.seq, draft.spill))
        self._unsealed += events
        self._unacknowledged.extend(events)
        return events

    def seal(self) -> Batch | None:
        """Take everything that waits, failed batches first, for one write; None if nothing waits.

        Writer's thread. One batch may be under way at a time.
        """
        parts = self._returned
        if self._unsealed:
            events = self._unsealed
            lines = b"".join([encode_line(event) for event in events])
            part = Part(events[0].seq, events[-1].seq, lines, tuple(self._spills))
            parts = (*parts, part)
            self._unsealed, self._spills = [], []
        self._returned = ()
        return Batch(parts) if parts else None

    def unseal(self, batch: Batch) -> None:
        """Put a batch whose write failed back in front, its bytes unchanged (L5)."""
        self._returned = (*batch.parts, *self._returned)

    def acknowledge(self, seq: int) -> None:
        """Note that everything up to ``seq`` is durable. Writer's thread, after a good write."""
        self.durable_seq = max(self.durable_seq, seq)
        waiting = self._unacknowledged
        # What is durable in the journal only is still read from here.
        if waiting and not self._store.owed:
            del waiting[: max(0, seq + 1 - waiting[0].seq)]

    def pending_events(self, from_seq: int = 0) -> list[Event]:
        """Return the events from ``from_seq`` on that are not known to be in the file."""
        return [event for event in self._unacknowledged if event.seq >= from_seq]

    # The I/O thread.

    def write(self, batch: Batch) -> int:
        """Make a batch durable and return the last durable seq.

        The commit point is the sync that follows the write of the last frame (for a new log, the
        sync of the directory that follows the link). I/O thread. Raises ``LogError``
        (``LOG_WRITE_FAILED``): with ``details["closed"]`` false the file is as it was and the batch
        may be written again; true, the log is over and ``details["trusted_length"]`` bytes of it
        are good. Raises ``SessionError``: ``SESSION_SOURCE_CHANGED`` (closed) if something else
        wrote to the file, ``SESSION_EXISTS`` (closed) if another process made the session first.
        """
        self._store.write(*self.encoded(batch))
        return batch.last_seq

    def encoded(self, batch: Batch | None) -> tuple[bytes, list[tuple[int, bytes]]]:
        """Return a batch's frames for the file, and its spills. I/O thread; None is no event."""
        parts = batch.parts if batch is not None else ()
        compressed = self._store.compressed
        data = b"".join([part.encoded(compressed=compressed) for part in parts])
        return data, [spill for part in parts for spill in part.spills]

    def mend(self) -> int:
        """Bring the file's end in order now instead of before the first write (L9).

        Truncates what was torn and writes the recovered events back, durably. I/O thread; does
        nothing where nothing is torn. Returns the last durable seq of the file as it was opened.
        Raises as :meth:`write`.
        """
        self._store.mend()
        return self._store.opened_seq

    def publish_empty(self) -> None:
        """Publish the log with its header only, for a flush before the first event (L7).

        I/O thread. Does nothing if the log is there. Raises as :meth:`write`.
        """
        self._store.write(b"", [])

    def close(self) -> None:
        """Release the lock and the file. What was not written is lost: flush first (L16)."""
        if not self._closed:
            self._closed = True
            self._store.close()

    def _refuse_if_over(self) -> None:
        if self._closed:
            raise SessionError(
                Code.SESSION_CLOSED,
                f"session {self.header.id!r} is closed; open it again",
                session=self.header.id,
            )
        if self._store.failed is not None:
            raise self._store.failed


#: A log and what of it is due; None publishes a log without events (L7).
Item = tuple[SessionLog, Batch | None]


def commit_each(items: Sequence[Item]) -> list[int | InterlockError]:
    """Write each batch by itself; return the durable seqs, or why not, in order. I/O thread."""
    outcomes: list[int | InterlockError] = []
    for log, batch in items:
        try:
            if batch is not None:
                outcomes.append(log.write(batch))
            else:
                log.publish_empty()
                outcomes.append(log.durable_seq)
        except InterlockError as error:
            outcomes.append(error)
    return outcomes


def _name_spill(draft: Draft, seq: int) -> Draft:
    """Return the draft with the name of its spill file in ``data.meta.spill.file`` (P7)."""
    try:
        data = jsontext.loads(draft.data)
        data["meta"]["spill"]["file"] = f"spill/{seq}"
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(
            Code.EVENT_INVALID,
            f"{draft.type} at seq {seq} was refused: a draft with spill bytes needs an object "
            "data.meta.spill to name their file in",
            type=draft.type,
            seq=seq,
        ) from error
    return msgspec.structs.replace(draft, data=jsontext.dumps(data))
