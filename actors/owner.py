"""The shell that every owner shares: a pykka actor around a core.

:class:`Owner` is the real :class:`~interlock.actors.port.Port`: it drains the mailbox, gives each
message to the core, matches replies with what was asked, runs timers, and hands blocking jobs to a
small pool. It decides nothing. An exception that leaves the core is a bug: the actor stops, its
process ends, and the supervisor says so (fail closed).
"""

from __future__ import annotations

import abc
import logging
import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

import msgspec
import pykka
import zmq
from interlock.backends.codes import Code
from pykka._envelope import Envelope

from .errors import InterlockError, RuntimeFailureError
from .fibers import Promise, attempt
from .keys import Doorkeeper, KeyPair, Keyring
from .liveness import Watch
from .mailbox import Batch, Mailbox, Peer
from .messages import (
    Admit,
    Dismiss,
    Hello,
    Judged,
    Message,
    Noted,
    PeerChanged,
    PeerGone,
    Refused,
    Shutdown,
    Stats,
    StatsRequest,
    Stopped,
    Welcome,
)
from .pace import Pace
from .port import Timer
from .requests import Requests, Timers
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
    #: What the host finds, for a log backend of its own: behind everything that an owner needs.
    sys_path: list[str] = []


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
        """Handle one message. Requests that fail by rule raise InterlockError: the shell
        refuses.
        """

    def batch_done(self) -> None:
        """Everything that was ready has been received: now do what can be done for all of it."""

    def told(self, role: Role, message: Message) -> None:
        """A message of an owner that this one is connected to, and that is no reply."""

    def peer_lost(self, role: Role) -> None:
        """Another owner has ended."""

    def host_lost(self) -> None:
        """The embedding process has ended (F1)."""

    def client_gone(self, key: bytes) -> Promise[None]:
        """An attached client has ended: settle what was its own."""

    def shutdown(self, grace: float) -> Promise[Stopped]:
        """Settle everything; the promise holds what to answer. The actor ends after that."""

    def counters(self) -> dict[str, int]:
        """What ``stats`` shows."""


class Owner(pykka.ThreadingActor):
    """One owner: a thread, a mailbox, a core. See the module's docstring."""

    use_daemon_thread = True
    #: Threads for blocking jobs; started when first needed.
    pool_size = 8
    #: Whom this owner asks.
    asks: frozenset[Role] = frozenset()

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
        self._timers = Timers()
        self._requests = Requests(self.mailbox, self._timers)
        self._pool: ThreadPoolExecutor | None = None
        self._pace = Pace()
        self._watches: dict[int, tuple[Watch, Callable[[], None]]] = {}
        self._stopping = False
        self._host_is_lost = False
        self._finished = False

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
        try:
            self._begin()
        except BaseException:
            # pykka stops an actor whose start fails without calling either hook: end the process.
            self._finish()
            raise

    def _begin(self) -> None:
        config = self.config
        self._door.guard(config.role, self.keyring)
        self.mailbox.open(self._context, config.endpoints, config.keys, self.keyring, config.role)
        for role, address in self.peers.items():
            if role in self.asks:
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
        if self._finished:
            return
        self._finished = True
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
        self._timers.run(self.now())
        # What follows may wait for the disk; what was answered so far need not.
        self.mailbox.dispatch()
        self.core.batch_done()
        self.mailbox.wake_at = self._timers.next()

    def _receive_batch(self, batch: Batch) -> None:
        for descriptor in batch.fired:
            found = self._watches.pop(descriptor, None)
            if found is not None:
                self.mailbox.unwatch(descriptor)
                found[0].close()
                found[1]()
        for role, message in batch.answers:
            if not self._requests.settle(role, message):
                self.core.told(role, message)
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
            case Admit(rid, key):
                self.keyring.admit(key, Role.CLIENT)
                self.send(peer.identity, Noted(rid))
            case Dismiss(rid, key):
                self._dismiss(peer, rid, key)
            case Judged():
                self._requests.settle(peer.role, message)
            case _:
                self.to_core(peer, message)

    def to_core(self, peer: Peer, message: Message) -> None:
        """Give one message to the core; what it refuses is answered."""
        try:
            self.core.receive(peer, message)
        except InterlockError as error:
            self.refuse(peer.identity, message, error)

    def refuse(self, peer: bytes, message: Message, error: InterlockError) -> None:
        """Answer a request with why it was not done."""
        rid = getattr(message, "rid", None)
        if rid is not None:
            self.post(peer, refusal(rid, error))

    def _counters(self) -> dict[str, int]:
        own = {
            "dropped_messages": self.mailbox.dropped,
            "refused_keys": self.keyring.refused,
            "unproven_connections": self.mailbox.unproven,
            "unroutable_replies": self.mailbox.unroutable,
            "open_requests": len(self._requests),
        }
        return own | self.core.counters()

    # Clients.

    def _dismiss(self, peer: Peer, rid: int, key: bytes) -> None:
        """X4: from here on nothing that proves ``key`` is let in or heard."""
        self.keyring.forget(key)
        self.mailbox.forget(key)
        settled = self.core.client_gone(key)

        def done() -> None:
            self.send(peer.identity, Noted(rid))

        settled.then(done)

    # Peers.

    def _peer_changed(self, message: PeerChanged) -> None:
        role = Role(message.role)
        known = self.peers.get(role)
        address = PeerAddress(
            message.endpoint, message.public_key, message.incarnation, message.pid
        )
        moved = known is not None and known.endpoint != address.endpoint
        if moved:
            self._lose(role)
        self.peers[role] = address
        if role in self.asks and (moved or not self.mailbox.connected(role)):
            self.mailbox.connect(role, message.endpoint, message.public_key)

    def _peer_gone(self, role: Role, incarnation: str) -> None:
        known = self.peers.get(role)
        if known is not None and known.incarnation == incarnation:
            self._lose(role)
            self.peers[role] = PeerAddress("", b"")

    def _lose(self, role: Role) -> None:
        """Fail what was asked of ``role``: replies of an ended life never arrive."""
        known = self.peers.get(role)
        if known is None or not known.endpoint:
            return
        self.mailbox.disconnect(role)
        self.mailbox.forget(known.public)
        self._requests.lose(role)
        self.core.peer_lost(role)

    def _host_ended(self) -> None:
        if not self._host_is_lost:
            self._host_is_lost = True
            _log.warning("%s: the embedding process has ended", self.config.role)
            for role, address in list(self.peers.items()):
                # The host tells of peers that end, and it tells nothing any more.
                if address.pid:
                    gone = partial(self._peer_gone, role, address.incarnation)
                    self.watch_process(address.pid, gone)
            self.core.host_lost()

    def peer_incarnation(self, role: Role) -> str:
        address = self.peers.get(role)
        return address.incarnation if address is not None else ""

    def when_gone(self, role: Role, call: Callable[[], None]) -> None:
        """Call ``call`` once the process of the owner ``role`` has ended; at once if none is
        known.
        """
        address = self.peers.get(role)
        if address is None or not address.pid:
            call()
        else:
            self.watch_process(address.pid, call)

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

    def post(self, peer: bytes, message: Message) -> None:
        self.mailbox.post(peer, message)

    def tell(self, role: Role, message: Message) -> bool:
        return self.mailbox.tell(role, message)

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        return self._requests.ask(role, build, timeout)

    def ask_peer(
        self, peer: bytes, build: Callable[[int], Message], timeout: float
    ) -> Promise[Any]:
        return self._requests.ask_peer(Role.HOST, peer, build, timeout)

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        return self._timers.at(when, call)

    def work(self, job: Callable[[], Any], *, brief: bool = False) -> Promise[Any]:
        if brief:
            if not self._pace.is_slow:
                return attempt(lambda: self._pace.run(job))
            return self._pooled(lambda: self._pace.run(job))
        return self._pooled(job)

    def _pooled(self, job: Callable[[], Any]) -> Promise[Any]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.pool_size, f"interlock-{self.config.role}-io")
        promise: Promise[Any] = Promise()
        future = self._pool.submit(job)
        future.add_done_callback(
            lambda done: self.actor_inbox.put(Envelope(Completed(promise, done)))
        )
        return promise

    def _complete(self, completed: Completed) -> None:
        error = completed.future.exception()
        if error is not None:
            completed.promise.fail(error)
        else:
            completed.promise.resolve(completed.future.result())


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
