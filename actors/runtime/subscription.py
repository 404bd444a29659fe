"""Following a session: its events in order, from any point, live and without gaps.

Items come from the writer; what was before them, and what a slow reader missed, is read from the
log by ``seq``. A reader that does not keep up loses nothing but time.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec
from interlock.backends.errors import InterlockError
from interlock.backends.event import Event, decode_line

from ..messages import (
    CallProgress,
    Message,
    StreamAck,
    StreamEnded,
    StreamItem,
    StreamLagged,
    Subscribe,
    Subscribed,
    Unsubscribe,
    WriteFailed,
)
from ..roles import Role
from .connection import Connection
from .flow import Flow
from .session import SessionCore

#: Items a reader may fall behind by before it is made to re-read the log.
QUEUE = 1024


@dataclass(frozen=True)
class StreamedEvent:
    """An event, and whether it was known to survive power loss when it was handed over (L2)."""

    event: Event
    durable: bool
    durable_seq: int
    incarnation: str


@dataclass(frozen=True)
class Progress:
    """What a running call said, or a command printed (``kind`` is progress, stdout or stderr)."""

    call_id: str
    kind: str
    data: bytes

    @property
    def value(self) -> Any:
        """The JSON of a body's progress; the text of a command's output."""
        if self.kind == "progress":
            return msgspec.json.decode(self.data)
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class WriteTrouble:
    """A background write failed; the events are kept in memory and are not durable yet (L5)."""

    message: str
    durable_seq: int


class SubscriptionCore:
    """One reader. Messages are put in by the host's thread and taken by the reader's."""

    def __init__(
        self, streams: Streams, session: SessionCore, from_seq: int, progress: bool
    ) -> None:
        self._streams, self.session, self.wants_progress = streams, session, progress
        self._next = from_seq
        self._lock = threading.Lock()
        self._messages: deque[Message] = deque()
        self._waiting: Future[None] | None = None
        self._missed = False
        self._ready: deque[StreamedEvent | Progress | WriteTrouble] = deque()
        self.durable_seq = -1
        self.incarnation = ""
        self.closed = False
        #: Why the stream ended, where it was not in order.
        self.error: InterlockError | None = None

    # The host's thread.

    def push(self, message: Message) -> None:
        with self._lock:
            if len(self._messages) >= QUEUE and not isinstance(message, StreamEnded):
                self._missed = self._missed or not isinstance(message, CallProgress)
            else:
                self._messages.append(message)
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set_result(None)

    # The reader's thread.

    def start(self) -> Flow[None]:
        """Join the stream, then read what was before it."""
        reply: Subscribed = yield from self._streams.join(self)
        self.durable_seq, self.incarnation = reply.durable_seq, reply.incarnation
        yield from self._catch_up()

    def next(self) -> Flow[StreamedEvent | Progress | WriteTrouble | None]:
        """The next item; ``None`` at the end of the stream."""
        while not self._ready:
            message = self._pop()
            if message is None:
                if self.closed:
                    return None
                yield self._more()
                continue
            yield from self._take(message)
        return self._ready.popleft()

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._streams.leave(self)
            self.push(StreamEnded(self.session.id, self.durable_seq, None, "unsubscribed"))

    def _pop(self) -> Message | None:
        with self._lock:
            return self._messages.popleft() if self._messages else None

    def _more(self) -> Future[None]:
        future: Future[None] = Future()
        with self._lock:
            if self._messages:
                future.set_result(None)
            else:
                self._waiting = future
        return future

    def _take(self, message: Message) -> Flow[None]:
        match message:
            case StreamItem(_, first_seq, lines, durable_seq, incarnation):
                self.durable_seq, self.incarnation = durable_seq, incarnation
                with self._lock:
                    missed, self._missed = self._missed, False
                if missed or first_seq > self._next:
                    yield from self._catch_up()
                for line in lines:
                    self._hand_over(decode_line(line))
            case StreamLagged(_, _, durable_seq, incarnation):
                self.durable_seq, self.incarnation = durable_seq, incarnation
                yield from self._catch_up()
            case StreamEnded(_, durable_seq, code, text):
                self.durable_seq = durable_seq
                if code is not None:
                    from ..errors import error_for

                    self.error = error_for(code, text)
                self.closed = True
            case CallProgress(_, call_id, kind, data):
                self._ready.append(Progress(call_id, kind, data))
            case WriteFailed(_, _, text, durable_seq):
                self._ready.append(WriteTrouble(text, durable_seq))
            case _:
                return

    def _catch_up(self) -> Flow[None]:
        for event in (yield from self.session.events(self._next)):
            self._hand_over(event)

    def _hand_over(self, event: Event) -> None:
        if event.seq >= self._next:
            self._next = event.seq + 1
            durable = event.seq <= self.durable_seq
            self._ready.append(StreamedEvent(event, durable, self.durable_seq, self.incarnation))


class Streams:
    """The subscriptions of one host: the writer sends each session's items once."""

    def __init__(self, host: Connection) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._readers: dict[str, list[SubscriptionCore]] = {}

    def join(self, reader: SubscriptionCore) -> Flow[Subscribed]:
        session = reader.session.id
        with self._lock:
            self._readers.setdefault(session, []).append(reader)
        try:
            reply: Subscribed = yield from reader.session.ask(
                Role.WRITER, lambda rid: Subscribe(rid, session)
            )
        except BaseException:
            self.leave(reader)
            raise
        return reply

    def leave(self, reader: SubscriptionCore) -> None:
        session = reader.session.id
        with self._lock:
            readers = self._readers.get(session, [])
            if reader in readers:
                readers.remove(reader)
            last = not readers and self._readers.pop(session, None) is not None
        if last:
            self._host.tell(Role.WRITER, Unsubscribe(session))

    def take(self, message: Message) -> bool:
        """Hand a message of a stream to its readers (the host's thread)."""
        match message:
            case StreamItem(session) | StreamLagged(session):
                self._host.tell(Role.WRITER, StreamAck(session, 1))
            case StreamEnded(session) | WriteFailed(session) | CallProgress(session):
                pass
            case _:
                return False
        with self._lock:
            readers = list(self._readers.get(session, ()))
        for reader in readers:
            if reader.wants_progress or not isinstance(message, CallProgress):
                reader.push(message)
        return True

    def lost_writer(self, session: str, durable_seq: int) -> None:
        """F2: tell readers that the writer ended; what was not durable may be rewound."""
        from interlock.backends.codes import Code

        ended = StreamEnded(
            session,
            durable_seq,
            Code.ACTOR_LOST,
            f"the log writer has ended; events after {durable_seq} may not have been recorded",
        )
        with self._lock:
            readers = self._readers.pop(session, [])
        for reader in readers:
            reader.push(ended)
