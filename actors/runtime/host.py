"""The host's actor: the embedding process's connections to the owners, and their supervision.

It starts the owners, sees each of them end by a descriptor, tells the others, and starts
a new life of it, a limited number of times: a runtime that cannot keep an owner alive fails closed
and says so.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import zmq
from interlock.backends.codes import Code

from ..answering.route import Route
from ..errors import InterlockError, RuntimeFailureError
from ..fibers import Promise, spawn
from ..keys import Doorkeeper, Keyring
from ..liveness import Watch
from ..mailbox import Batch
from ..messages import (
    Message,
    PeerChanged,
    PeerGone,
    RegisterTools,
    Shutdown,
    Stopped,
)
from ..port import PeerLostError, ReplyTimeoutError, Timer
from ..roles import OWNERS, Role
from .connection import Connection, give
from .desk import FrontDesk, Setting
from .reply import Reply
from .start import Keys, OwnerProcess, OwnerThread, Starter

_log = logging.getLogger(__name__)

#: Lives of one owner that may end within :data:`LIVES_WINDOW` s before the runtime gives up.
LIVES = 5
LIVES_WINDOW = 60.0
#: Seconds that what an ended owner sent may take to arrive.
LAST_WORD = 0.3
#: Seconds that an owner may take until it is ready.
READY_TIMEOUT = 30.0


class HostActor(Connection):
    """See the module's docstring. ``told`` gets every message that is no reply, in this thread."""

    def __init__(
        self,
        starter: Starter,
        keys: Keys,
        context: zmq.Context[zmq.Socket[bytes]],
        door: Doorkeeper,
        registration: RegisterTools,
        answerers: Mapping[str, Route],
        setting: Setting,
        made: Callable[[HostActor], None],
        *,
        threads: bool,
    ) -> None:
        super().__init__()
        made(self)
        self._starter, self._keys, self._context, self._door = starter, keys, context, door
        self._registration, self._answerers, self._threads = registration, answerers, threads
        self._setting = setting
        self._lives: dict[Role, OwnerProcess | OwnerThread] = {}
        self._ends: dict[Role, deque[float]] = {role: deque() for role in OWNERS}
        self._watches: dict[int, tuple[Watch | None, Callable[[], None]]] = {}
        self._closing = False
        self._desk: FrontDesk | None = None
        #: Called in this thread when the broker lives, at the start and again.
        self.broker_moved: Callable[[], None] = lambda: None

    # From any thread.

    def pids(self) -> dict[str, int]:
        return {str(role): life.pid for role, life in self._lives.items()}

    def counters(self) -> Reply[dict[str, int]]:
        """What came to the door of the host itself."""
        future: Reply[dict[str, int]] = self._promised()
        mailbox, desk = self._mailbox, self._desk
        self._do(
            lambda: give(
                future,
                {
                    "dropped_messages": mailbox.dropped
                    + (desk.unexpected if desk is not None else 0),
                    "refused_keys": self._keyring.refused,
                    "unproven_connections": mailbox.unproven,
                    "clients": len(desk) if desk is not None else 0,
                },
            )
        )
        return future

    def shut_down(self, grace: float, timeout: float) -> Reply[dict[Role, Stopped | None]]:
        """Have every owner settle and end, within ``timeout`` s; ``None`` where one had to be
        killed.
        """
        future: Reply[dict[Role, Stopped | None]] = self._promised()
        self._do(lambda: self._shut_down(grace, time.monotonic() + timeout, future))
        return future

    # The host's thread.

    def on_start(self) -> None:
        try:
            self._begin()
        except BaseException as error:
            # pykka stops an actor whose start fails without calling either hook.
            self.on_failure(type(error), error, None)

    def _begin(self) -> None:
        self._keyring = Keyring({self._keys.client.public: Role.CLIENT})
        desk = self._starter.desk_endpoint
        if desk is None:
            self._mailbox.use(self._context, self._keys.host, Role.HOST)
        else:
            self._door.guard(Role.HOST, self._keyring)
            self._mailbox.open(self._context, [desk], self._keys.host, self._keyring, Role.HOST)
            self._desk = FrontDesk(self, self._starter.clients, self._setting)
        for role in OWNERS:
            self._start(role)
        self._timers.at(time.monotonic() + READY_TIMEOUT, self._start_is_late)

    def on_stop(self) -> None:
        for watch, _ in self._watches.values():
            if watch is not None:
                watch.close()
        for life in self._lives.values():
            life.kill()
        self._end()

    def on_failure(self, *error: Any) -> None:
        self.failure = RuntimeFailureError(
            Code.ACTOR_LOST, f"the runtime could not go on: {error[1]}; it is closed"
        )
        if not self.ready.done():
            self.ready.set_exception(self.failure)
        self.on_stop()
        self.actor_stopped.set()

    def _receive(self, batch: Batch) -> None:
        # What an owner said before its end counts, also where both are found at once.
        super()._receive(batch)
        for descriptor in batch.fired:
            self._fired(descriptor)
        if self._desk is not None:
            for peer, message in batch.received:
                self._desk.receive(peer, message)
            if batch.left:
                self._desk.somebody_left()

    # What the front desk needs.

    def send(self, identity: bytes, message: Message) -> bool:
        return self._mailbox.send(identity, message)

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        return self._requests.ask(role, build, timeout)

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        return self._timers.at(when, call)

    def now(self) -> float:
        return time.monotonic()

    def living(self) -> list[PeerChanged]:
        """Every owner that lives, and where."""
        return [self._announcement(role) for role in OWNERS if role in self._incarnations]

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
        if role is Role.BROKER:
            # Before the first request, or that one would find nobody to ask.
            needed = spawn(self._answerers_join()).result
        elif role is Role.DISPATCHER:
            needed = self._requests.ask(role, self._registered, READY_TIMEOUT)
        else:
            needed.resolve(None)
        needed.then(lambda: self._has_joined(role, incarnation, needed))

    async def _answerers_join(self) -> None:
        for name, route in self._answerers.items():
            joins = partial(route.joins, name=name)
            await self._requests.ask(Role.BROKER, joins, READY_TIMEOUT)

    def _has_joined(self, role: Role, incarnation: str, needed: Promise[Any]) -> None:
        try:
            needed.result()
        except (PeerLostError, ReplyTimeoutError):
            return  # its end, or the lateness of the start, is told by its own watch
        except InterlockError as error:
            self._give_up(f"the {role} refused to start ({error.message})")
            return
        self._incarnations[role] = incarnation
        for other in OWNERS:
            if other is not role and other in self._incarnations:
                self._tell(other, self._announcement(role))
                self._tell(role, self._announcement(other))
        if self._desk is not None:
            self._desk.owner_changed(self._announcement(role))
        self._owner_is_back(role, incarnation)
        if role is Role.BROKER:
            self.broker_moved()

    def _announcement(self, role: Role) -> PeerChanged:
        address = self._starter.addresses[role]
        pid = self._lives[role].pid
        return PeerChanged(role, address.endpoint, address.public, self._incarnations[role], pid)

    def _registered(self, rid: int) -> Message:
        return msgspec.structs.replace(self._registration, rid=rid)

    def _start_is_late(self) -> None:
        if not self.ready.done() and not self._closing:
            missing = [role for role in OWNERS if role not in self._incarnations]
            self._give_up(f"{', '.join(missing)} did not get ready within {READY_TIMEOUT:g} s")

    def _has_ended(self, role: Role) -> None:
        how = self._lives[role].reap()
        if self._closing:
            # L16: its last word, up to where everything is durable, may still be on its way.
            self._timers.at(time.monotonic() + LAST_WORD, lambda: self._owner_is_gone(role))
            return
        incarnation = self._incarnations.get(role, "")
        self._owner_is_gone(role)
        _log.warning("the %s has ended (%s)", role, how)
        for other in OWNERS:
            if other is not role and other in self._incarnations:
                self._tell(other, PeerGone(role, incarnation))
        if self._desk is not None:
            self._desk.owner_gone(PeerGone(role, incarnation))
        self.owner_lost(role)
        self.restarts.append((role, how))
        if not self.ready.done():
            self._give_up(f"the {role} could not be started ({how})")
        elif self._too_often(role):
            self._give_up(f"the {role} has ended {LIVES} times in a row ({how})")
        else:
            self._starter.renew(role)
            self._start(role)

    def _too_often(self, role: Role) -> bool:
        ends, now = self._ends[role], time.monotonic()
        ends.append(now)
        while ends and ends[0] < now - LIVES_WINDOW:
            ends.popleft()
        return len(ends) >= LIVES

    def _give_up(self, why: str) -> None:
        """Fail closed: nothing is asked or released any more, and everybody is told why."""
        self._fail(
            RuntimeFailureError(
                Code.ACTOR_LOST,
                f"{why}; the runtime is closed, its logs are as they were recorded",
            )
        )

    # Ending.

    def _shut_down(
        self, grace: float, deadline: float, future: Reply[dict[Role, Stopped | None]]
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
                give(future, stopped)

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
