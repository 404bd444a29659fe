"""The shell that every owner shares: a pykka actor around a core.

:class:`Owner` is the real :class:`~interlock.actors.port.Port`: it drains the mailbox, gives each
message to the core, matches replies with what was asked, runs timers, and hands blocking jobs to a
small pool. It decides nothing. An exception that leaves the core is a bug: the actor stops, its
process ends, and the supervisor says so (fail closed).
"""

from __future__ import annotations

import abc
import heapq
import logging
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import msgspec
import pykka
import zmq
from pykka._envelope import Envelope

from interlock.backends.codes import Code

from .errors import InterlockError, RuntimeFailureError, error_for
from .fibers import Promise
from .keys import Doorkeeper, Keyring, KeyPair
from .liveness import Watch
from .mailbox import Batch, Mailbox, Peer
from .messages import (
    Hello,
    Message,
    PeerChanged,
    PeerGone,
    Refused,
    Shutdown,
    Stats,
    StatsRequest,
    Stopped,
    Welcome,
)
from .port import PeerLostError, ReplyTimeoutError, Timer
from .roles import Role

_log = logging.getLogger(__name__)


class PeerAddress(msgspec.Struct, frozen=True):
    """Where an owner listens, under which key, and which life of it."""

    endpoint: str
    public: bytes
    incarnation: str = ""
    pid: int = 0


class OwnerConfig(msgspec.Struct, frozen=True):
    """What an owner is started with, over a pipe that is closed at once."""

    role: Role
    endpoints: list[str]
    keys: KeyPair
    admitted: dict[bytes, Role]
    peers: dict[Role, PeerAddress]
    host_pid: int
    root: str
    runtime_dir: str
    options: dict[str, str | int | float | bool] = {}


class Completed:
    """A job of the pool has ended; put into the mailbox by the thread that ran it."""

    __slots__ = ("future", "promise")

    def __init__(self, promise: Promise[Any], future: Future[Any]) -> None:
        self.promise = promise
        self.future = future


class Terminate:
    """SIGTERM: settle everything and end (L16); put into the mailbox by the main thread."""


class Core(Protocol):
    """The decisions of one owner."""

    def receive(self, peer: Peer, message: Message) -> None:
        """Handle one message. Requests that fail by rule raise InterlockError: the shell refuses."""

    def batch_done(self) -> None:
        """Everything that was ready has been received: now do what can be done for all of it."""

    def told(self, role: Role, message: Message) -> None:
        """A message of an owner that this one is connected to, and that is no reply."""

    def peer_lost(self, role: Role) -> None:
        """An owner that this one is connected to has ended."""

    def host_lost(self) -> None:
        """The embedding process has ended (F1)."""

    def shutdown(self, grace: float) -> Promise[Stopped]:
        """Settle everything; the promise holds what to answer. The actor ends after that."""

    def counters(self) -> dict[str, int]:
        """What ``stats`` shows."""


class _Asked:
    __slots__ = ("deadline", "promise", "role", "timeout")

    def __init__(self, role: Role, promise: Promise[Any], deadline: Timer, timeout: float) -> None:
        self.role, self.promise, self.deadline, self.timeout = role, promise, deadline, timeout


class Owner(pykka.ThreadingActor):
    """One owner: a thread, a mailbox, a core. See the module's docstring."""

    use_daemon_thread = True
    #: Threads for blocking jobs; started when first needed.
    pool_size = 8

    def __init__(
        self,
        config: OwnerConfig,
        context: zmq.Context[zmq.Socket[bytes]],
        door: Doorkeeper,
        on_ready: Callable[[str], None],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__()
        self.config = config
        self.incarnation = secrets.token_hex(8)
        self.peers = dict(config.peers)
        self.keyring = Keyring(config.admitted)
        self._context, self._door = context, door
        self._on_ready, self._on_end = on_ready, on_end
        self._timers: list[Timer] = []
        self._asked: dict[int, _Asked] = {}
        self._next_rid = 0
        self._pool: ThreadPoolExecutor | None = None
        self._watches: dict[int, tuple[Watch, Callable[[], None]]] = {}
        self._stopping = False
        self._host_is_lost = False
        self._compact_at = 1024

    @staticmethod
    def _create_actor_inbox() -> Mailbox:
        return Mailbox()

    @property
    def mailbox(self) -> Mailbox:
        inbox = self.actor_inbox
        assert isinstance(inbox, Mailbox)  # noqa: S101 - made by _create_actor_inbox above
        return inbox

    # Life cycle.

    @abc.abstractmethod
    def make_core(self) -> Core:
        """Build this owner's core (its thread, sockets open)."""

    def on_start(self) -> None:
        config = self.config
        self._door.guard(config.role, self.keyring)
        self.mailbox.open(self._context, config.endpoints, config.keys, self.keyring, config.role)
        for role, address in self.peers.items():
            self.mailbox.connect(role, address.endpoint, address.public)
        self.core = self.make_core()
        if config.host_pid != os.getpid():
            self._watch_host(config.host_pid)
        self._on_ready(self.incarnation)

    def _watch_host(self, pid: int) -> None:
        self.watch_process(pid, self._host_ended)
        if os.getppid() != pid:  # it ended before it could be watched
            self._host_ended()

    def on_stop(self) -> None:
        self._finish()

    def on_failure(self, *_error: object) -> None:
        self._finish()

    def _finish(self) -> None:
        for watch, _ in self._watches.values():
            watch.close()
        self._watches.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self.mailbox.flush(0.5)
        self.mailbox.close()
        self._on_end()

    # The receive loop.

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Batch):
            self._receive_batch(message)
        elif isinstance(message, Completed):
            self._complete(message)
        elif isinstance(message, Terminate):
            self._terminate()
        self._run_timers()
        self.core.batch_done()
        self.mailbox.wake_at = self._next_wake()

    def _receive_batch(self, batch: Batch) -> None:
        for descriptor in batch.fired:
            found = self._watches.pop(descriptor, None)
            if found is not None:
                self.mailbox.unwatch(descriptor)
                found[0].close()
                found[1]()
        for role, message in batch.answers:
            self._answer(role, message)
        for peer, message in batch.received:
            self._receive(peer, message)

    def _receive(self, peer: Peer, message: Message) -> None:
        match message:
            case Hello(rid):
                reply = Welcome(rid, self.config.role, self.incarnation, os.getpid())
                self.send(peer.identity, reply)
            case StatsRequest(rid):
                self.send(peer.identity, Stats(rid, self._counters()))
            case PeerChanged():
                self._peer_changed(message)
            case PeerGone(role, incarnation):
                self._peer_gone(Role(role), incarnation)
            case Shutdown(rid, grace):
                self._shut_down(peer, rid, grace)
            case _ if self._answer_from_peer(message):
                pass
            case _:
                self._to_core(peer, message)

    def _to_core(self, peer: Peer, message: Message) -> None:
        try:
            self.core.receive(peer, message)
        except InterlockError as error:
            self.refuse(peer.identity, message, error)

    def refuse(self, peer: bytes, message: Message, error: InterlockError) -> None:
        """Answer a request with why it was not done."""
        rid = getattr(message, "rid", None)
        if rid is not None:
            self.send(peer, refusal(rid, error))

    def _counters(self) -> dict[str, int]:
        own = {
            "dropped_messages": self.mailbox.dropped,
            "refused_keys": self.keyring.refused,
            "unroutable_replies": self.mailbox.unroutable,
            "open_requests": len(self._asked),
        }
        return own | self.core.counters()

    # Peers.

    def _peer_changed(self, message: PeerChanged) -> None:
        role = Role(message.role)
        known = self.peers.get(role)
        if known is not None and known.incarnation == message.incarnation:
            return
        self._lose(role)
        self.peers[role] = PeerAddress(
            message.endpoint, message.public_key, message.incarnation, message.pid
        )
        self.mailbox.connect(role, message.endpoint, message.public_key)

    def _peer_gone(self, role: Role, incarnation: str) -> None:
        known = self.peers.get(role)
        if known is not None and known.incarnation in ("", incarnation):
            self._lose(role)

    def _lose(self, role: Role) -> None:
        """Fail what was asked of ``role``: replies of an ended life never arrive."""
        if not self.mailbox.connected(role):
            return
        self.mailbox.disconnect(role)
        for rid, asked in list(self._asked.items()):
            if asked.role is role:
                del self._asked[rid]
                asked.deadline.cancel()
                asked.promise.fail(PeerLostError(role))
        self.core.peer_lost(role)

    def _host_ended(self) -> None:
        if not self._host_is_lost:
            self._host_is_lost = True
            _log.warning("%s: the embedding process has ended", self.config.role)
            self.core.host_lost()

    def watch_process(self, pid: int, ended: Callable[[], None]) -> None:
        """Call ``ended`` once process ``pid`` is no more (also if it is gone already)."""
        watch = Watch.process(pid)
        if watch is None:
            ended()
            return
        self.mailbox.watch(watch.descriptor)
        self._watches[watch.descriptor] = (watch, ended)

    # Ending.

    def _shut_down(self, peer: Peer, rid: int, grace: float) -> None:
        settled = self.core.shutdown(grace)

        def answer() -> None:
            stopped = settled.result()
            self.send(peer.identity, Stopped(rid, stopped.durable, stopped.failed))
            self.end()

        settled.then(answer)

    def _terminate(self) -> None:
        self.core.shutdown(0.0).then(self.end)

    def end(self) -> None:
        """Stop the actor once what is queued before has been handled."""
        if not self._stopping:
            self._stopping = True
            self.stop()

    # The port.

    def now(self) -> float:
        return time.monotonic()

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def send(self, peer: bytes, message: Message) -> bool:
        return self.mailbox.send(peer, message)

    def tell(self, role: Role, message: Message) -> bool:
        return self.mailbox.tell(role, message)

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        rid, promise = self._remember(role, timeout)
        if not self.mailbox.tell(role, build(rid)):
            self._forget(rid)
            promise.fail(PeerLostError(role))
        return promise

    def ask_peer(self, peer: bytes, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        rid, promise = self._remember(Role.HOST, timeout)
        if not self.mailbox.send(peer, build(rid)):
            self._forget(rid)
            promise.fail(PeerLostError(Role.HOST))
        return promise

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(when, call)
        if len(self._timers) >= self._compact_at:
            # Most deadlines are cancelled long before they are due: drop those now and then.
            self._timers = [t for t in self._timers if t.call is not None]
            heapq.heapify(self._timers)
            self._compact_at = max(1024, 2 * len(self._timers))
        heapq.heappush(self._timers, timer)
        return timer

    def work(self, job: Callable[[], Any]) -> Promise[Any]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.pool_size, f"interlock-{self.config.role}-io")
        promise: Promise[Any] = Promise()
        future = self._pool.submit(job)
        future.add_done_callback(
            lambda done: self.actor_inbox.put(Envelope(Completed(promise, done)))
        )
        return promise

    # Requests that this owner has made.

    def _remember(self, role: Role, timeout: float) -> tuple[int, Promise[Any]]:
        self._next_rid += 1
        rid = self._next_rid
        promise: Promise[Any] = Promise()
        deadline = self.at(self.now() + timeout, lambda: self._expire(rid))
        self._asked[rid] = _Asked(role, promise, deadline, timeout)
        return rid, promise

    def _forget(self, rid: int) -> None:
        asked = self._asked.pop(rid, None)
        if asked is not None:
            asked.deadline.cancel()

    def _expire(self, rid: int) -> None:
        asked = self._asked.pop(rid, None)
        if asked is not None:
            asked.promise.fail(ReplyTimeoutError(asked.role, asked.timeout))

    def _answer(self, role: Role, message: Message) -> None:
        rid = getattr(message, "rid", None)
        asked = self._asked.get(rid) if rid is not None else None
        if asked is None or asked.role is not role:
            self.core.told(role, message)
            return
        self._settle(rid or 0, message)

    def _answer_from_peer(self, message: Message) -> bool:
        """A reply of the host to something this owner asked over the host's own connection."""
        if type(message).__name__ != "Judged" and not isinstance(message, Refused):
            return False
        rid: int = message.rid  # type: ignore[attr-defined]
        if rid in self._asked and self._asked[rid].role is Role.HOST:
            self._settle(rid, message)
        return True

    def _settle(self, rid: int, message: Message) -> None:
        asked = self._asked[rid]
        self._forget(rid)
        if isinstance(message, Refused):
            asked.promise.fail(error_for(message.code, message.message, **message.details))
        else:
            asked.promise.resolve(message)

    def _complete(self, completed: Completed) -> None:
        error = completed.future.exception()
        if error is not None:
            completed.promise.fail(error)
        else:
            completed.promise.resolve(completed.future.result())

    # Timers.

    def _run_timers(self) -> None:
        now = self.now()
        while self._timers and self._timers[0].when <= now:
            call = heapq.heappop(self._timers).call
            if call is not None:
                call()

    def _next_wake(self) -> float | None:
        while self._timers and self._timers[0].call is None:
            heapq.heappop(self._timers)
        return self._timers[0].when if self._timers else None


def refusal(rid: int, error: InterlockError) -> Refused:
    """The message that stands for ``error``."""
    details: dict[str, str | int | bool | None] = {
        key: value if isinstance(value, str | int | bool) or value is None else str(value)
        for key, value in error.details.items()
    }
    return Refused(rid, error.code, error.message, details)


def lost(role: Role) -> RuntimeFailureError:
    """The error of a request whose owner is gone."""
    return RuntimeFailureError(
        Code.ACTOR_LOST, f"the {role} of this runtime has ended; the runtime replaces it", role=role
    )
