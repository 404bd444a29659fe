"""The decisions of the session writer: windows, flushes, acknowledgements.

The life of an event: *appended* (it has its ``seq``, in memory, L1), *sealed* into the batch of the
next write, *durable* once that write's sync has returned. The write happens on a thread of the
pool, one at a time per session; everything else happens in the writer's own thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from interlock.backends.backend import LogBackend
from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, LogError, SessionError
from interlock.backends.event import Draft, Event, draft, encode_line
from interlock.backends.header import Header
from interlock.backends.log import SessionLog
from interlock.backends.repair import closers

from ..fibers import Promise, resolved
from ..messages import (
    Append,
    Appended,
    CloseSession,
    CreateSession,
    Flush,
    Message,
    OpenSession,
    PendingEvents,
    ReadPending,
    RepairSession,
    SessionClosed,
    SessionOpened,
    SessionState,
    Stopped,
    StreamAck,
    StreamEnded,
    StreamItem,
    Subscribe,
    Subscribed,
    UnansweredCall,
    Unsubscribe,
)
from ..port import Peer, Port
from ..roles import Role
from .commits import Commits
from .doubtful import doubtful_calls
from .refusals import closing_down, not_opened
from .rights import check_rights
from .session import OpenSession as Open


class WriterCore:
    """Owns all open sessions of one runtime. All methods run in the writer's thread."""

    def __init__(
        self, port: Port, backend: LogBackend, incarnation: str, end: Callable[[], None]
    ) -> None:
        self._port, self._backend, self._incarnation, self._end = port, backend, incarnation, end
        self._sessions: dict[str, Open] = {}
        self._opening: set[str] = set()
        #: Keys of clients that have gone; none is ever used again.
        self._dismissed: set[bytes] = set()
        self._commits = Commits(port, backend, self)
        self._appended_events = 0
        self._stopping = False

    # Core protocol.

    def receive(self, peer: Peer, message: Message) -> None:
        match message:
            case Append():
                self._append(peer, message)
            case Flush(rid, session):
                opened = self._session(session)
                self._reply_durable(peer, rid, opened, -1, opened.last_seq)
            case CreateSession():
                self._create(peer, message)
            case OpenSession():
                self._open(peer, message)
            case RepairSession(rid, session):
                self._repair(peer, rid, self._session(session))
            case SessionState(rid, session):
                self._port.post(peer.identity, self._opened(rid, self._session(session)))
            case ReadPending(rid, session, from_seq):
                self._read_pending(peer, rid, self._session(session), from_seq)
            case Subscribe(rid, session):
                self._subscribe(peer, rid, self._session(session))
            case Unsubscribe(session):
                if session in self._sessions:
                    self._sessions[session].streams.remove(peer.identity)
            case StreamAck(session, count):
                self._stream_ack(peer, session, count)
            case CloseSession(rid, session):
                opened = self._session(session)
                if peer.role is not Role.HOST:
                    self._check_opener(peer, opened)
                self._close(peer, rid, opened)
            case _:
                raise LogError(
                    Code.EVENT_INVALID, f"the writer has no use for {type(message).__name__}"
                )

    def told(self, role: Role, message: Message) -> None:
        """The writer asks nobody, so nothing can come this way."""

    def batch_done(self) -> None:
        """Start one write for every session that is due: all that was drained shares it."""
        self._commits.start()

    def peer_lost(self, role: Role) -> None:
        """The writer depends on nobody."""

    def host_lost(self) -> None:
        """F1: stay until the dispatcher has recorded what still runs, then settle and end."""
        self._port.when_gone(Role.DISPATCHER, lambda: self.shutdown(0.0).then(self._end))

    def client_gone(self, key: bytes) -> Promise[None]:
        """Flush and close the sessions that only this client could go on with."""
        self._dismissed.add(key)
        settled: Promise[None] = Promise()
        left = {s for s, opened in self._sessions.items() if opened.opener == key}

        def closed(session: str, opened: Open, closing: Promise[int]) -> None:
            try:
                closing.result()
            except InterlockError as error:
                self.let_go(opened, error)
            left.discard(session)
            if not left:
                settled.resolve(None)

        if not left:
            settled.resolve(None)
        for session in list(left):
            opened = self._sessions[session]
            closing = self._closing(opened)
            closing.then(lambda s=session, o=opened, c=closing: closed(s, o, c))  # type: ignore[misc]
        return settled

    def shutdown(self, grace: float) -> Promise[Stopped]:
        """L16: flush and close every session; what could not be flushed is named."""
        self._stopping = True
        settled: Promise[Stopped] = Promise()
        durable: dict[str, int] = {}
        failed: dict[str, str] = {}
        left = set(self._sessions)

        def gone(session: str) -> None:
            left.discard(session)
            if not left:
                end()

        def end() -> None:
            # The journal goes last: then nothing is pending in it.
            ended = self._port.work(self._backend.close)
            ended.then(lambda: settled.resolve(Stopped(0, durable, failed)))

        def closed(session: str, opened: Open, promise: Promise[int]) -> None:
            try:
                durable[session] = promise.result()
            except InterlockError as error:
                durable[session] = opened.log.durable_seq
                failed[session] = str(error)
                self.let_go(opened, error).then(lambda: gone(session))
            else:
                gone(session)

        if not left:
            end()
        for session, opened in list(self._sessions.items()):
            promise = self._closing(opened)
            promise.then(lambda s=session, o=opened, p=promise: closed(s, o, p))  # type: ignore[misc]
        return settled

    def counters(self) -> dict[str, int]:
        return {
            "open_sessions": len(self._sessions),
            "appended_events": self._appended_events,
            "journal": int(self._backend.group_commit),
            "writes": self._commits.writes,
            "failed_writes": self._commits.failed_writes,
            "unwritten_events": sum(
                s.last_seq - s.log.durable_seq for s in self._sessions.values()
            ),
        }

    # Opening and closing.

    def _session(self, session: str) -> Open:
        opened = self._sessions.get(session)
        if opened is None:
            raise SessionError(
                Code.SESSION_CLOSED,
                f"session {session!r} is not open in this runtime; open it with runtime.open()",
                session=session,
            )
        return opened

    def _create(self, peer: Peer, message: CreateSession) -> None:
        header = Header(
            id=message.session,
            created_at=self._port.wall_ms(),
            cwd=message.cwd,
            parent_session=message.parent,
            agent_preset=message.agent_preset,
        )
        self._admit(peer, message.rid, message.session, lambda: self._backend.create(header))

    def _open(self, peer: Peer, message: OpenSession) -> None:
        job = lambda: self._backend.open(message.session, wait=message.wait)  # noqa: E731
        self._admit(peer, message.rid, message.session, job)

    def _admit(self, peer: Peer, rid: int, session: str, job: Callable[[], SessionLog]) -> None:
        """Open on a thread of the pool: it reads the log and may wait for the lock."""
        if self._stopping:
            raise closing_down(session)
        if session in self._sessions or session in self._opening:
            raise SessionError(
                Code.SESSION_LOCKED,
                f"session {session!r} is already open in this runtime (process {os.getpid()})",
                session=session,
                pid=os.getpid(),
            )
        self._opening.add(session)
        promise: Promise[SessionLog] = self._port.work(job)

        def done() -> None:
            self._opening.discard(session)
            try:
                log = promise.result()
            except (InterlockError, OSError, ValueError) as error:
                self._refuse(peer, rid, not_opened(session, error))
                return
            if self._stopping:  # nobody would close it any more
                self._port.work(log.close)
                self._refuse(peer, rid, closing_down(session))
                return
            if peer.key in self._dismissed:  # it went while its session was being opened
                self._port.work(log.close)
                return
            opened = Open(log, peer.key, peer.identity, log.header.created_at)
            self._sessions[session] = opened
            self._port.post(peer.identity, self._opened(rid, opened))

        promise.then(done)

    def _opened(self, rid: int, opened: Open) -> SessionOpened:
        log, fold = opened.log, opened.log.fold
        recovered = log.recovered
        unanswered = [
            UnansweredCall(
                c.message_seq, c.call_id, c.name, c.call_seq, fold.turn or 0, fold.step or 0
            )
            for c in fold.calls
            if c.result_seq is None
        ]
        return SessionOpened(
            rid=rid,
            session=log.header.id,
            created_at=log.header.created_at,
            cwd=log.header.cwd,
            directory=str(log.directory),
            path=str(log.path),
            next_seq=fold.next_seq,
            durable_seq=log.durable_seq,
            incarnation=self._incarnation,
            turn=fold.turn,
            step=fold.step,
            last_turn=fold.last_turn,
            balanced=fold.balanced,
            unanswered=unanswered,
            approval_policy=fold.approval_policy,
            sandbox_mode=fold.sandbox_mode,
            system_seq=fold.head,
            surface_empty=fold.first_surface_type is None,
            dropped_bytes=recovered.bytes if recovered else 0,
            dropped_records=recovered.records if recovered else 0,
            dropped_offset=recovered.offset if recovered else -1,
            doubtful=doubtful_calls(fold),
        )

    def _close(self, peer: Peer, rid: int, opened: Open) -> None:
        self._check_opener(peer, opened)
        promise = self._closing(opened)

        def done() -> None:
            try:
                durable = promise.result()
            except InterlockError as error:
                self._refuse(peer, rid, error)
            else:
                self._port.post(peer.identity, SessionClosed(rid, opened.log.header.id, durable))

        promise.then(done)

    def _closing(self, opened: Open) -> Promise[int]:
        """Flush, then let go. A failed flush leaves the session open for another try."""
        if opened.closing is not None:
            return opened.closing
        closing: Promise[int] = Promise()
        opened.closing = closing
        flushed = self._commits.flush(opened) if opened.last_seq >= 0 else resolved(-1)

        def done(flushed: Promise[int]) -> None:
            try:
                durable = flushed.result()
            except InterlockError as error:
                opened.closing = None
                closing.fail(error)
                return
            if durable < opened.last_seq:  # L16: appended meanwhile
                again = self._commits.flush(opened)
                again.then(lambda: done(again))
                return
            self.let_go(opened, None).then(lambda: closing.resolve(durable))

        flushed.then(lambda: done(flushed))
        return closing

    def let_go(self, opened: Open, error: InterlockError | None) -> Promise[None]:
        """Take the session out; the promise holds once its lock is free for the next writer."""
        session = opened.log.header.id
        if self._sessions.pop(session, None) is None:
            return opened.released
        self._commits.forget(opened)
        code, text = (error.code, error.message) if error else (None, "closed")
        ended = StreamEnded(session, opened.log.durable_seq, code, text)
        for identity in opened.streams.subscribers:
            self._port.send(identity, ended)
        if not opened.writing:
            self.release(opened)
        return opened.released

    def release(self, opened: Open) -> None:
        """Close the log on a thread of the pool: it may have to sync."""
        session = opened.log.header.id
        self._opening.add(session)

        def closed() -> None:
            self._opening.discard(session)
            opened.released.resolve(None)

        self._port.work(opened.log.close).then(closed)

    def is_open(self, opened: Open) -> bool:
        """Whether the session has not been let go."""
        return self._sessions.get(opened.log.header.id) is opened

    # Appending.

    def _append(self, peer: Peer, message: Append) -> None:
        opened = self._session(message.session)
        self._check_opener(peer, opened, message.behalf)
        check_rights(peer.role, message.drafts, message.session)
        if message.after > opened.last_seq:
            raise LogError(
                Code.EVENT_INVALID,
                f"session {message.session!r} has not got to event {message.after} yet "
                f"(its last is {opened.last_seq})",
                session=message.session,
            )
        events = self._admit_events(opened, message.drafts, message.flush)
        first, last = (events[0].seq, events[-1].seq) if events else (-1, opened.last_seq)
        if message.flush:
            self._reply_durable(peer, message.rid, opened, first, last)
        else:
            self._reply(peer, message.rid, opened, first, last)

    def _check_opener(self, peer: Peer, opened: Open, behalf: bytes = b"") -> None:
        """X4: a session belongs to who opened it; the dispatcher says for whom it asks."""
        if peer.role is Role.DISPATCHER and not behalf:
            return
        if (behalf if peer.role is Role.DISPATCHER else peer.key) != opened.opener:
            session = opened.log.header.id
            raise LogError(
                Code.EVENT_INVALID,
                f"session {session!r} was opened by somebody else, who alone appends to it, "
                "repairs it and closes it; close it there and open it here",
                session=session,
            )

    def _admit_events(self, opened: Open, drafts: list[Draft], flushed: bool) -> list[Event]:
        """Append in memory, all or nothing; the first append says who writes from here on.

        What is ``flushed`` at once needs no window.
        """
        if not drafts:
            return []
        first_of_ours = not opened.writer_noted
        noted = [self._writer_note(), *drafts] if first_of_ours else drafts
        events = opened.log.append(noted, self._port.wall_ms())
        opened.writer_noted = True
        self._appended(opened, events, flushed=flushed)
        return events[1:] if first_of_ours else events

    def _appended(self, opened: Open, events: list[Event], *, flushed: bool) -> None:
        self._appended_events += len(events)
        if not flushed:
            self._commits.open_window(opened)
        self.stream(opened, events)

    def _writer_note(self) -> Draft:
        note = {
            "writer": "interlock",
            "version": _version(),
            "durability": self._backend.durability,
            "incarnation": self._incarnation,
        }
        if self._backend.fell_back is not None:
            note["withoutJournal"] = self._backend.fell_back
        return draft("interlock/writer", note, ignorable=True)

    def _repair(self, peer: Peer, rid: int, opened: Open) -> None:
        """R2: append the closers and make them durable."""
        self._check_opener(peer, opened)
        fold, dropped = opened.log.fold, opened.log.recovered
        drafts = closers(
            fold, dropped_acknowledged=dropped is not None and dropped.may_be_acknowledged
        )
        events = opened.log.append(drafts, fold.last_time) if drafts else []
        self._appended(opened, events, flushed=True)
        first, last = (events[0].seq, events[-1].seq) if events else (-1, opened.last_seq)
        self._reply_durable(peer, rid, opened, first, last)

    # Acknowledging.

    def _reply(self, peer: Peer, rid: int, opened: Open, first: int, last: int) -> None:
        fold = opened.log.fold
        self._port.post(
            peer.identity,
            Appended(
                rid,
                opened.log.header.id,
                first,
                last,
                opened.log.durable_seq,
                self._incarnation,
                fold.approval_policy,
                fold.sandbox_mode,
            ),
        )

    def _reply_durable(self, peer: Peer, rid: int, opened: Open, first: int, last: int) -> None:
        """Answer once everything up to ``last`` is durable, or say that it could not be made so."""
        promise = self._commits.flush(opened, last)

        def done() -> None:
            try:
                promise.result()
            except InterlockError as error:
                # They are appended all the same, and the next flush tries again (L5).
                appended = {"first_seq": first, "last_seq": last}
                told = LogError(error.code, error.message, **(error.details | appended))
                self._refuse(peer, rid, told)
            else:
                self._reply(peer, rid, opened, first, last)

        promise.then(done)

    # Reading and streaming.

    def _read_pending(self, peer: Peer, rid: int, opened: Open, from_seq: int) -> None:
        lines = [encode_line(event) for event in opened.log.pending_events(from_seq)]
        self._port.post(
            peer.identity,
            PendingEvents(
                rid,
                opened.log.header.id,
                str(opened.log.path),
                opened.log.durable_seq,
                self._incarnation,
                lines,
            ),
        )

    def _subscribe(self, peer: Peer, rid: int, opened: Open) -> None:
        opened.streams.add(peer.identity)
        self._port.post(
            peer.identity,
            Subscribed(
                rid,
                opened.log.header.id,
                str(opened.log.path),
                opened.last_seq + 1,
                opened.log.durable_seq,
                self._incarnation,
            ),
        )

    def stream(self, opened: Open, events: list[Event]) -> None:
        """Tell subscribers what was appended and what has become durable."""
        if not opened.streams.subscribers:
            return
        first = events[0].seq if events else opened.last_seq + 1
        item = StreamItem(
            opened.log.header.id,
            first,
            [encode_line(event) for event in events],
            opened.log.durable_seq,
            self._incarnation,
        )
        for identity, message in opened.streams.publish(item):
            if not self._port.send(identity, message):
                opened.streams.remove(identity)

    def _stream_ack(self, peer: Peer, session: str, count: int) -> None:
        opened = self._sessions.get(session)
        if opened is None:
            return
        lagged = opened.streams.acknowledge(
            peer.identity,
            count,
            opened.last_seq + 1,
            opened.log.durable_seq,
            self._incarnation,
            session,
        )
        if lagged is not None:
            self._port.send(peer.identity, lagged)

    def _refuse(self, peer: Peer, rid: int, error: InterlockError) -> None:
        from ..owner import refusal

        self._port.post(peer.identity, refusal(rid, error))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("interlock")
    except PackageNotFoundError:
        return "unknown"
