"""What a host and an attached client have in common: sessions, over a connection."""

from __future__ import annotations

import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlock.backends.codes import Code
from interlock.backends.jsonl import JsonlBackend, Listing

from ..errors import RuntimeFailureError
from ..messages import (
    CreateSession,
    Message,
    OpenSession,
    RepairSession,
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

#: Seconds within which opening a large log must answer.
OPEN_TIMEOUT = 600.0


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

    def open(self, session_id: str, wait: float) -> Flow[SessionCore]:
        """Open for writing; an interrupted session is completed first (R2), after results that the
        dispatcher still holds for it (F2)."""
        self.check()
        opened = yield from self._ask_writer(
            lambda rid: OpenSession(rid, session_id, wait), OPEN_TIMEOUT + wait
        )
        session = self._keep(opened)
        if not opened.balanced:
            yield from self._complete(session, opened)
        return session

    def _complete(self, session: SessionCore, opened: SessionOpened) -> Flow[None]:
        settled: SessionSettled = yield from session.ask(
            Role.DISPATCHER,
            lambda rid: SettleSession(rid, session.id, opened.unanswered),
            OPEN_TIMEOUT,
        )
        session.settled = list(settled.recorded)
        reply = yield from session.ask(Role.WRITER, lambda rid: RepairSession(rid, session.id))
        session.note_repair(reply)

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
