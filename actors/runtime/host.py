"""The host's actor: the embedding process's connections to the owners, and their supervision.

One thread of the embedding process owns all sockets. Other threads hand it requests and get
futures. It starts the owners, sees each of them end by a descriptor, tells the others, and starts
a new life of it, a limited number of times: a runtime that cannot keep an owner alive fails closed
and says so.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import msgspec
import pykka
import zmq
from interlock.backends.codes import Code
from pykka._envelope import Envelope

from ..errors import InterlockError, RuntimeFailureError
from ..fibers import Promise
from ..keys import Doorkeeper
from ..liveness import Watch
from ..mailbox import Batch, Mailbox
from ..messages import (
    BecomeAnswerer,
    Message,
    PeerChanged,
    PeerGone,
    RegisterTools,
    Shutdown,
    Stopped,
)
from ..port import PeerLostError, ReplyTimeoutError
from ..requests import Requests, Timers
from ..roles import OWNERS, Role
from .start import Keys, OwnerProcess, OwnerThread, Starter

_log = logging.getLogger(__name__)

#: Lives of one owner that may end within :data:`LIVES_WINDOW` s before the runtime gives up.
LIVES = 5
LIVES_WINDOW = 60.0
#: Seconds that an owner may take until it is ready.
READY_TIMEOUT = 30.0
#: Seconds to wait for most replies. What may take longer says so.
REPLY_TIMEOUT = 60.0


class _Do:
    """Something to do in the host's thread."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


class HostActor(pykka.ThreadingActor):
    """See the module's docstring. ``told`` gets every message that is no reply, in this thread."""

    use_daemon_thread = True

    def __init__(
        self,
        starter: Starter,
        keys: Keys,
        context: zmq.Context[zmq.Socket[bytes]],
        door: Doorkeeper,
        registration: RegisterTools,
        answers: bool,
        made: Callable[[HostActor], None],
        *,
        threads: bool,
    ) -> None:
        super().__init__()
        made(self)
        self._starter, self._keys, self._context, self._door = starter, keys, context, door
        self._registration, self._answers, self._threads = registration, answers, threads
        self._timers = Timers()
        self._requests = Requests(self._mailbox, self._timers)
        self._lives: dict[Role, OwnerProcess | OwnerThread] = {}
        self._incarnations: dict[Role, str] = {}
        self._ends: dict[Role, deque[float]] = {role: deque() for role in OWNERS}
        self._watches: dict[int, tuple[Watch | None, Callable[[], None]]] = {}
        self._waiting_for: dict[Role, list[Promise[None]]] = {role: [] for role in OWNERS}
        self._closing = False
        self._over = False
        self._outstanding: set[Future[Any]] = set()
        self.failure: RuntimeFailureError | None = None
        #: What was restarted and why, newest last; shown by ``stats``.
        self.restarts: list[tuple[str, str]] = []
        self.ready: Future[None] = Future()
        self.ended: Future[None] = Future()
        self.told: Callable[[Role, Message], None] = lambda _role, _message: None
        self.owner_lost: Callable[[Role], None] = lambda _role: None

    @staticmethod
    def _create_actor_inbox() -> Mailbox:
        return Mailbox()

    @property
    def _mailbox(self) -> Mailbox:
        inbox = self.actor_inbox
        assert isinstance(inbox, Mailbox)  # noqa: S101 - made by _create_actor_inbox above
        return inbox

    # From any thread.

    def request(
        self, role: Role, build: Callable[[int], Message], timeout: float = REPLY_TIMEOUT
    ) -> Future[Any]:
        """Ask the owner ``role``; the future holds its reply, or the error that stands for it."""
        future: Future[Any] = self._promised()

        def ask() -> None:
            if self.failure is not None:
                _fail(future, self.failure)
                return
            promise = self._requests.ask(role, build, timeout)
            promise.then(lambda: _pass_on(promise, future))

        self._do(ask)
        return future

    def tell(self, role: Role, message: Message) -> None:
        """Send without expecting a reply."""
        self._do(lambda: self._tell(role, message))

    def alive(self, role: Role) -> Future[None]:
        """A future that is done once the owner ``role`` lives (again)."""
        future: Future[None] = self._promised()

        def wait() -> None:
            if self.failure is not None:
                _fail(future, self.failure)
            elif role in self._incarnations:
                _give(future, None)
            else:
                promise: Promise[None] = Promise()
                self._waiting_for[role].append(promise)
                promise.then(lambda: _pass_on(promise, future))

        self._do(wait)
        return future

    def incarnation(self, role: Role) -> str:
        return self._incarnations.get(role, "")

    def pids(self) -> dict[str, int]:
        return {str(role): life.pid for role, life in self._lives.items()}

    def shut_down(self, grace: float, timeout: float) -> Future[dict[Role, Stopped | None]]:
        """Have every owner settle and end, within ``timeout`` s; ``None`` where one had to be
        killed.
        """
        future: Future[dict[Role, Stopped | None]] = self._promised()
        self._do(lambda: self._shut_down(grace, time.monotonic() + timeout, future))
        return future

    def _promised(self) -> Future[Any]:
        """A future that is done in any case, also when this actor ends before it could do it."""
        future: Future[Any] = Future()
        self._outstanding.add(future)
        future.add_done_callback(self._outstanding.discard)
        if self._over:
            _fail(future, self.failure or closed_error())
        return future

    def _do(self, call: Callable[[], None]) -> None:
        self.actor_inbox.put(Envelope(_Do(call)))

    # The host's thread.

    def on_start(self) -> None:
        try:
            self._begin()
        except BaseException as error:
            # pykka stops an actor whose start fails without calling either hook.
            self.on_failure(type(error), error, None)

    def _begin(self) -> None:
        self._mailbox.use(self._context, self._keys.host, Role.HOST)
        for role in OWNERS:
            self._start(role)
        self._timers.at(time.monotonic() + READY_TIMEOUT, self._start_is_late)

    def on_stop(self) -> None:
        for watch, _ in self._watches.values():
            if watch is not None:
                watch.close()
        for life in self._lives.values():
            life.kill()
        self._requests_end()
        self._mailbox.flush(0.2)
        self._mailbox.close()
        self._over = True
        for future in list(self._outstanding):
            _fail(future, self.failure or closed_error())
        self.ended.set_result(None)

    def on_failure(self, *error: Any) -> None:
        self.failure = RuntimeFailureError(
            Code.ACTOR_LOST, f"the runtime could not go on: {error[1]}; it is closed"
        )
        if not self.ready.done():
            self.ready.set_exception(self.failure)
        self.on_stop()
        self.actor_stopped.set()

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Batch):
            for descriptor in message.fired:
                self._fired(descriptor)
            for role, received in message.answers:
                if not self._requests.settle(role, received):
                    self.told(role, received)
        elif isinstance(message, _Do):
            message.call()
        self._timers.run(time.monotonic())
        self._mailbox.wake_at = self._timers.next()

    def _tell(self, role: Role, message: Message) -> None:
        with suppress(zmq.ZMQError):
            self._mailbox.tell(role, message)

    def _requests_end(self) -> None:
        for role in OWNERS:
            self._requests.lose(role)
            waiting, self._waiting_for[role] = self._waiting_for[role], []
            for promise in waiting:
                promise.fail(PeerLostError(role))

    # Starting and supervising.

    def _start(self, role: Role) -> None:
        if self._threads:
            self._lives[role] = self._starter.start_thread(
                role,
                self._context,
                self._door,
                lambda incarnation: self._do(lambda: self._is_ready(role, incarnation)),
                lambda: self._do(lambda: self._has_ended(role)),
            )
            return
        life = self._starter.start_process(role)
        self._lives[role] = life
        self._watch(life.ready_descriptor, None, lambda: self._said_ready(role, life))
        watch = Watch.process(life.pid)
        if watch is not None:
            self._watch(watch.descriptor, watch, lambda: self._has_ended(role))

    def _watch(self, descriptor: int, watch: Watch | None, call: Callable[[], None]) -> None:
        self._watches[descriptor] = (watch, call)
        self._mailbox.watch(descriptor)

    def _fired(self, descriptor: int) -> None:
        watch, call = self._watches.pop(descriptor)
        self._mailbox.unwatch(descriptor)
        if watch is not None:
            watch.close()
        call()

    def _said_ready(self, role: Role, life: OwnerProcess) -> None:
        incarnation = life.read_ready()
        if incarnation:  # empty: it ended first, which its own watch reports
            self._is_ready(role, incarnation)

    def _is_ready(self, role: Role, incarnation: str) -> None:
        """Its process runs: tell it what it needs of us before anybody else hears of it."""
        address = self._starter.addresses[role]
        self._mailbox.connect(role, address.endpoint, address.public)
        needed: Promise[Any] = Promise()
        if role is Role.BROKER and self._answers:
            # Before the first request, or that one would find nobody to ask.
            needed = self._requests.ask(
                role, lambda rid: BecomeAnswerer(rid, "host"), READY_TIMEOUT
            )
        elif role is Role.DISPATCHER:
            needed = self._requests.ask(role, self._registered, READY_TIMEOUT)
        else:
            needed.resolve(None)
        needed.then(lambda: self._has_joined(role, incarnation, needed))

    def _has_joined(self, role: Role, incarnation: str, needed: Promise[Any]) -> None:
        try:
            needed.result()
        except (PeerLostError, ReplyTimeoutError):
            return  # its end, or the lateness of the start, is told by its own watch
        except InterlockError as error:
            self._fail(f"the {role} refused to start ({error.message})")
            return
        self._incarnations[role] = incarnation
        for other in OWNERS:
            if other is not role and other in self._incarnations:
                self._tell(other, self._announcement(role))
                self._tell(role, self._announcement(other))
        if not self.ready.done() and len(self._incarnations) == len(OWNERS):
            self.ready.set_result(None)
        waiting, self._waiting_for[role] = self._waiting_for[role], []
        for promise in waiting:
            promise.resolve(None)

    def _announcement(self, role: Role) -> PeerChanged:
        address = self._starter.addresses[role]
        pid = self._lives[role].pid
        return PeerChanged(role, address.endpoint, address.public, self._incarnations[role], pid)

    def _registered(self, rid: int) -> Message:
        return msgspec.structs.replace(self._registration, rid=rid)

    def _start_is_late(self) -> None:
        if not self.ready.done() and not self._closing:
            missing = [role for role in OWNERS if role not in self._incarnations]
            self._fail(f"{', '.join(missing)} did not get ready within {READY_TIMEOUT:g} s")

    def _has_ended(self, role: Role) -> None:
        how = self._lives[role].reap()
        incarnation = self._incarnations.pop(role, "")
        self._mailbox.disconnect(role)
        self._requests.lose(role)
        if self._closing:
            return
        _log.warning("the %s has ended (%s)", role, how)
        for other in OWNERS:
            if other is not role and other in self._incarnations:
                self._tell(other, PeerGone(role, incarnation))
        self.owner_lost(role)
        self.restarts.append((role, how))
        if not self.ready.done():
            self._fail(f"the {role} could not be started ({how})")
        elif self._too_often(role):
            self._fail(f"the {role} has ended {LIVES} times in a row ({how})")
        else:
            self._starter.renew(role)
            self._start(role)

    def _too_often(self, role: Role) -> bool:
        ends, now = self._ends[role], time.monotonic()
        ends.append(now)
        while ends and ends[0] < now - LIVES_WINDOW:
            ends.popleft()
        return len(ends) >= LIVES

    def _fail(self, why: str) -> None:
        """Fail closed: nothing is asked or released any more, and everybody is told why."""
        self.failure = RuntimeFailureError(
            Code.ACTOR_LOST, f"{why}; the runtime is closed, its logs are as they were recorded"
        )
        if not self.ready.done():
            self.ready.set_exception(self.failure)
        for role in OWNERS:
            self._requests.lose(role)
            waiting, self._waiting_for[role] = self._waiting_for[role], []
            for promise in waiting:
                promise.fail(self.failure)

    # Ending.

    def _shut_down(
        self, grace: float, deadline: float, future: Future[dict[Role, Stopped | None]]
    ) -> None:
        """The dispatcher first, so that everything is recorded; then the others; then kill the
        rest.
        """
        self._closing = True
        stopped: dict[Role, Stopped | None] = dict.fromkeys(OWNERS)
        others = [Role.WRITER, Role.BROKER, Role.LAUNCHER]
        left = set(OWNERS)

        def ask(role: Role, then: Callable[[], None]) -> None:
            remaining = max(0.05, deadline - time.monotonic())
            promise = self._requests.ask(role, lambda rid: Shutdown(rid, grace), remaining)

            def answered() -> None:
                with suppress(PeerLostError, ReplyTimeoutError, InterlockError):
                    stopped[role] = promise.result()
                left.discard(role)
                then()

            promise.then(answered)

        def all_done() -> None:
            if not left:
                _give(future, stopped)

        def ask_others() -> None:
            for role in others:
                ask(role, all_done)

        ask(Role.DISPATCHER, ask_others)

    def finish(self, timeout: float) -> None:
        """Wait for the owners' processes to end and kill what has not; from any thread."""
        deadline = time.monotonic() + timeout
        for life in self._lives.values():
            if isinstance(life, OwnerProcess):
                _wait_for_end(life, deadline)


def _wait_for_end(life: OwnerProcess, deadline: float) -> None:
    watch = Watch.process(life.pid) if life.running() else None
    if watch is not None:
        poller = zmq.Poller()
        poller.register(watch.descriptor, zmq.POLLIN)
        if not poller.poll(max(0, int((deadline - time.monotonic()) * 1000))):
            life.kill()
        watch.close()
    life.reap()


def _pass_on(promise: Promise[Any], future: Future[Any]) -> None:
    try:
        value = promise.result()
    except BaseException as error:
        _fail(future, error)
    else:
        _give(future, value)


def _give(future: Future[Any], value: Any) -> None:
    with suppress(InvalidStateError):  # the other one came first
        future.set_result(value)


def _fail(future: Future[Any], error: BaseException) -> None:
    with suppress(InvalidStateError):
        future.set_exception(error)


def closed_error() -> RuntimeFailureError:
    """What is said to those who ask after the end."""
    return RuntimeFailureError(Code.RUNTIME_CLOSED, "the runtime is closed")
