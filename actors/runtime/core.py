"""The logic under :class:`Runtime` and :class:`AsyncRuntime`: starting, sessions, ending."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zmq
from interlock.backends.codes import Code
from interlock.backends.jsonl import JsonlBackend, Listing

from ..errors import RuntimeFailureError
from ..keys import Doorkeeper
from ..messages import (
    CreateSession,
    Message,
    OpenSession,
    RegisterTools,
    RepairSession,
    SessionOpened,
    SessionSettled,
    SettleSession,
    Stats,
    StatsRequest,
    Stopped,
    WriteFailed,
)
from ..port import PeerLostError, ReplyTimeoutError
from ..roles import OWNERS, Role
from ..runtime_dir import AnswererKey, RuntimeDirectory, RuntimeInfo
from .bodies import HostBodies
from .config import RuntimeConfig
from .flow import Flow, in_thread, run_sync
from .host import HostActor
from .session import SessionCore
from .start import Keys, Starter
from .subscription import Streams, SubscriptionCore

#: Seconds that an orderly end may take in all before processes are killed.
CLOSE_TIMEOUT = 30.0
#: The same when the user pressed Ctrl-C.
INTERRUPT_TIMEOUT = 1.2
#: The same where it had not even started.
START_TIMEOUT = 0.2
#: Seconds within which opening a large log must answer.
OPEN_TIMEOUT = 600.0


class RuntimeCore:
    """One running runtime in this process."""

    def __init__(
        self, config: RuntimeConfig, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.config = config
        self._pid = os.getpid()
        self._closed = False
        #: Owners that had to be killed at the end, and sessions that could not be flushed (L16).
        self.unsettled: list[Role] = []
        self.unwritten: dict[str, str] = {}
        self._keys = Keys.generate()
        # S6: what must be hidden from commands has to be there before the first of them.
        config.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = RuntimeDirectory.create()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._door = Doorkeeper(self._context)
        self._starter = Starter(config, self._directory, self._keys)
        self._sessions: dict[str, SessionCore] = {}
        made: list[HostActor] = []
        self._reference = HostActor.start(
            self._starter,
            self._keys,
            self._context,
            self._door,
            self._registration(),
            config.answerer is not None,
            made.append,
            threads=config.transport == "inproc",
        )
        [self._host] = made
        self._bodies = HostBodies(config, self._host.tell)
        if loop is not None:
            self._bodies.use_loop(loop)
        self.streams = Streams(self._host)
        self._host.told = self._told
        self._host.owner_lost = self._owner_lost

    def _registration(self) -> RegisterTools:
        config = self.config
        return RegisterTools(
            0,
            list(config.wire_tools),
            bool(config.gates),
            bool(config.guards),
            bool(config.hooks),
            list(config.worker_env),
            [path or os.getcwd() for path in sys.path],
        )

    # Starting.

    def started(self) -> Flow[None]:
        """Wait until every owner is ready and knows the tools."""
        atexit.register(self.close_now)
        try:
            yield self._host.ready
        except BaseException:
            # Nothing is recorded yet, so nobody needs time to settle anything.
            yield from self.closed(grace=0.0, timeout=START_TIMEOUT)
            raise
        self._publish()

    def _publish(self) -> None:
        broker = self._starter.config(Role.BROKER).endpoints[-1]
        info = RuntimeInfo(
            os.getpid(),
            str(self.config.root),
            time.time_ns() // 1_000_000,
            broker,
            self._keys.owners[Role.BROKER].public.decode(),
        )
        answerer = self._keys.answerer
        self._directory.publish(
            info, AnswererKey(answerer.public.decode(), answerer.secret.decode())
        )

    @property
    def directory(self) -> Path:
        return self._directory.path

    def check(self) -> None:
        """Raise ``RUNTIME_CLOSED`` or why the runtime has failed."""
        if os.getpid() != self._pid:
            raise RuntimeFailureError(
                Code.RUNTIME_CLOSED,
                "this runtime was started before a fork and belongs to the parent process; start "
                "one in this process",
            )
        if self._closed:
            raise RuntimeFailureError(Code.RUNTIME_CLOSED, "the runtime is closed")
        if self._host.failure is not None:
            raise self._host.failure

    # What comes in without being asked for (the host's thread).

    def _told(self, role: Role, message: Message) -> None:
        if isinstance(message, WriteFailed):
            session = self._sessions.get(message.session)
            if session is not None:
                session.write_failed(message)
        if not self.streams.take(message):
            self._bodies.take(message)

    def _owner_lost(self, role: Role) -> None:
        if role is not Role.WRITER:
            return
        for session in list(self._sessions.values()):
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
            yield self._host.alive(Role.WRITER)
            reply: SessionOpened = yield self._host.request(Role.WRITER, build, timeout)
        except (PeerLostError, ReplyTimeoutError) as error:
            raise RuntimeFailureError(Code.ACTOR_LOST, str(error), role="writer") from None
        return reply

    def _keep(self, opened: SessionOpened) -> SessionCore:
        session = SessionCore(self._host, opened, self.config.approval)
        self._sessions[session.id] = session
        session.on_end = lambda: self._sessions.pop(session.id, None)
        return session

    def listing(self) -> Iterator[Listing]:
        """L17: every session under the root, by header; bad ones are named, not raised."""
        return JsonlBackend(self.config.root).list()

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
                reply: Stats = yield self._host.request(role, StatsRequest, 10.0)
            except (PeerLostError, ReplyTimeoutError) as error:
                counters[role] = {"error": str(error)}
            else:
                counters[role] = reply.counters
        counters["restarts"] = [{"actor": r, "why": why} for r, why in self._host.restarts]
        return counters

    def processes(self) -> dict[str, int]:
        """The process ids of the owners (0 for threads)."""
        return self._host.pids()

    # Ending.

    def closed(self, *, grace: float, timeout: float) -> Flow[dict[str, int]]:
        """L16: settle and flush everything and end; up to which ``seq`` each session is durable."""
        if self._closed or os.getpid() != self._pid:
            return {}
        self._closed = True
        atexit.unregister(self.close_now)
        deadline = time.monotonic() + timeout
        durable: dict[str, int] = {}
        try:
            stopped: dict[Role, Stopped | None] = yield self._host.shut_down(grace, timeout)
        except RuntimeFailureError:
            self.unsettled = list(OWNERS)  # the host's actor has failed; what it started is killed
        else:
            writer = stopped.get(Role.WRITER)
            durable = dict(writer.durable) if writer is not None else {}
            self._report(stopped)
        finally:
            yield in_thread(lambda: self._end(deadline))
        return durable

    def close_now(self) -> None:
        """What remains to do when the program ends without closing the runtime."""
        with contextlib.suppress(Exception):
            run_sync(self.closed(grace=0.0, timeout=INTERRUPT_TIMEOUT))

    def _report(self, stopped: dict[Role, Stopped | None]) -> None:
        self.unsettled = [role for role, word in stopped.items() if word is None]
        writer = stopped.get(Role.WRITER)
        self.unwritten = dict(writer.failed) if writer is not None else {}

    def _end(self, deadline: float) -> None:
        """Close what this process holds; nothing here waits without a bound."""
        for session in list(self._sessions.values()):
            session.end(None)
        self._bodies.close()
        self._host.finish(max(0.1, deadline - time.monotonic()))
        with contextlib.suppress(Exception):
            self._reference.stop(block=False)
            self._host.ended.result(timeout=2.0)
        self._door.close()
        self._context.destroy(linger=0)
        self._directory.close()
