"""What a host and an attached client have in common: sessions, over a connection."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

from interlock.backends.codes import Code
from interlock.backends.jsonl import JsonlBackend, Listing

from ..errors import InterlockError, RuntimeFailureError
from ..messages import (
    CallsResolved,
    CancelCalls,
    CreateSession,
    DoubtfulCall,
    Message,
    OpenSession,
    RepairSession,
    ResolveCalls,
    SessionOpened,
    SessionSettled,
    SettleSession,
    Stats,
    StatsRequest,
    WriteFailed,
)
from ..port import PeerLostError, ReplyTimeoutError
from ..roles import OWNERS, Role
from ..tools.spec import ToolSpec
from .connection import Connection, closed_error
from .flow import Flow
from .session import SessionCore
from .subscription import Streams, SubscriptionCore
from .turn import tell_outcomes

#: Seconds within which opening a large log must answer.
OPEN_TIMEOUT = 600.0
#: R4: what to do about calls whose outcome is unknown when a session is opened.
OnUnknown = Literal["report", "retry", "reconcile"]
ON_UNKNOWN: tuple[str, ...] = get_args(OnUnknown)


class ConnectedCore(ABC):
    """Sessions over ``connection``; the two who have one differ in how it begins and ends."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._sessions: dict[str, SessionCore] = {}
        self._closed = False
        self.streams = Streams(connection)

    @property
    @abstractmethod
    def root(self) -> Path:
        """Where session logs live."""

    @property
    @abstractmethod
    def tools(self) -> list[ToolSpec]:
        """What calls may name."""

    @property
    @abstractmethod
    def default_policy(self) -> str:
        """The approval policy where a log does not say (A1)."""

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients attach."""

    @property
    @abstractmethod
    def directory(self) -> Path:
        """The runtime's own directory; only its host has it."""

    @property
    @abstractmethod
    def client_key(self) -> str:
        """What a client must know to attach."""

    @abstractmethod
    def started(self) -> Flow[None]:
        """Wait until everything that is needed is there."""

    @abstractmethod
    def closed(self, *, grace: float, timeout: float) -> Flow[dict[str, int]]:
        """End; up to which ``seq`` each session that was open here is durable."""

    def check(self) -> None:
        """Raise ``RUNTIME_CLOSED`` or why the runtime has failed."""
        self._connection.check_process()
        if self._closed:
            raise closed_error()
        if self._connection.failure is not None:
            raise self._connection.failure

    # What comes in without being asked for (the connection's thread).

    def _told(self, role: Role, message: Message) -> bool:
        """Give sessions and subscribers what is theirs."""
        if isinstance(message, WriteFailed):
            session = self._sessions.get(message.session)
            if session is not None:
                session.write_failed(message)
        return self.streams.take(message)

    def _owner_lost(self, role: Role) -> None:
        if role is not Role.WRITER:
            return
        failure = self._connection.failure
        for session in list(self._sessions.values()):
            if failure is not None:
                session.end(failure)
            else:
                session.lost_writer()
            self.streams.lost_writer(session.id, session.durable_seq)
        self._sessions.clear()

    # Sessions.

    def create(
        self,
        session_id: str | None,
        cwd: str | os.PathLike[str] | None,
        parent: str | None,
        agent_preset: str | None,
    ) -> Flow[SessionCore]:
        """L7: a new session; nothing is on disk before its first event."""
        self.check()
        identity = session_id if session_id is not None else uuid.uuid4().hex
        directory = os.path.abspath(os.fspath(cwd)) if cwd is not None else None
        opened = yield from self._ask_writer(
            lambda rid: CreateSession(rid, identity, directory, parent, agent_preset)
        )
        return self._keep(opened)

    def open(self, session_id: str, wait: float, on_unknown: str) -> Flow[SessionCore]:
        """Open for writing; an interrupted session is completed first (R2), after results that the
        dispatcher still holds for it (F2) and what ``on_unknown`` says of the others (R4)."""
        self.check()
        if on_unknown not in ON_UNKNOWN:
            raise ValueError(
                f"on_unknown is one of {', '.join(map(repr, ON_UNKNOWN))}, not {on_unknown!r}"
            )
        opened = yield from self._ask_writer(
            lambda rid: OpenSession(rid, session_id, wait), OPEN_TIMEOUT + wait
        )
        session = self._keep(opened)
        try:
            if not opened.balanced:
                yield from self._settle(session, opened)
            news = yield from self._resolve(session, opened, on_unknown)
            if not opened.balanced:
                yield from self._repair(session)
            if news:
                yield from tell_outcomes(session, news)
        except BaseException:
            # It is open in the writer, and nobody would have it to close it.
            with suppress(InterlockError):
                yield from session.close()
            raise
        return session

    def _settle(self, session: SessionCore, opened: SessionOpened) -> Flow[None]:
        settled: SessionSettled = yield from session.ask(
            Role.DISPATCHER,
            lambda rid: SettleSession(rid, session.id, opened.unanswered),
            OPEN_TIMEOUT,
        )
        session.settled = list(settled.recorded)

    def _repair(self, session: SessionCore) -> Flow[None]:
        reply = yield from session.ask(Role.WRITER, lambda rid: RepairSession(rid, session.id))
        session.note_repair(reply)

    def _resolve(
        self, session: SessionCore, opened: SessionOpened, how: str
    ) -> Flow[list[tuple[int, str]]]:
        """Do what ``how`` says about doubtful calls; return what the model is to be told of those
        whose results it has seen."""
        settled = set(session.settled)
        calls = [c for c in opened.doubtful if c.recorded or c.call_id not in settled]
        news = [(c.call_seq, c.outcome) for c in calls if c.outcome is not None]
        if how == "report" or not calls:
            return news
        asked = session.ask(
            Role.DISPATCHER,
            lambda rid: ResolveCalls(
                rid, session.id, session.created_at, session.cwd or "", how, calls
            ),
            OPEN_TIMEOUT + self._time_for(calls),
        )
        try:
            reply: CallsResolved = yield from asked
        except BaseException:
            stop = CancelCalls(session.id, calls[0].message_seq, "the session is not opened")
            self._connection.tell(Role.DISPATCHER, stop)
            raise
        session.resolved = {call.call_id: call.outcome for call in reply.calls}
        return news + [(c.call_seq, c.text) for c in reply.calls if c.text is not None]

    def _time_for(self, calls: Sequence[DoubtfulCall]) -> float:
        """How long (s) all of them may take, one after another."""
        timeouts = {spec.name: spec.timeout for spec in self.tools}
        return sum(timeouts.get(call.name, 0.0) for call in calls)

    def _ask_writer(self, build: Any, timeout: float = OPEN_TIMEOUT) -> Flow[SessionOpened]:
        try:
            yield self._connection.alive(Role.WRITER)
            reply: SessionOpened = yield self._connection.request(Role.WRITER, build, timeout)
        except (PeerLostError, ReplyTimeoutError) as error:
            raise RuntimeFailureError(Code.ACTOR_LOST, str(error), role="writer") from None
        return reply

    def _keep(self, opened: SessionOpened) -> SessionCore:
        session = SessionCore(self._connection, opened, self.default_policy)
        self._sessions[session.id] = session
        session.on_end = lambda: self._sessions.pop(session.id, None)
        return session

    def listing(self) -> Iterator[Listing]:
        """L17: every session under the root, by header; bad ones are named, not raised."""
        return JsonlBackend(self.root).list()

    def subscribe(
        self, session: SessionCore, from_seq: int, progress: bool
    ) -> Flow[SubscriptionCore]:
        reader = SubscriptionCore(self.streams, session, from_seq, progress)
        yield from reader.start()
        return reader

    def stats(self) -> Flow[dict[str, Any]]:
        """Counters of every owner, and what was restarted and why."""
        self.check()
        counters: dict[str, Any] = {}
        for role in OWNERS:
            try:
                reply: Stats = yield self._connection.request(role, StatsRequest, 10.0)
            except (PeerLostError, ReplyTimeoutError) as error:
                counters[role] = {"error": str(error)}
            else:
                counters[role] = reply.counters
        counters["restarts"] = [{"actor": r, "why": why} for r, why in self._connection.restarts]
        return counters

    def processes(self) -> dict[str, int]:
        """The process ids of the owners (0 for threads)."""
        return self._connection.pids()
