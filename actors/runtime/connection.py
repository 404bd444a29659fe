"""What one process says to a runtime's owners and hears from them.

One thread owns all sockets of a process. Other threads hand it requests and get futures. The host
adds the supervision of the owners (``host.py``), an attached client follows what the host tells it
of them (``attached.py``); sessions, turns and steps are written against this part alone.
"""

from __future__ import annotations

import abc
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pykka
import zmq
from interlock.backends.codes import Code
from pykka._envelope import Envelope

from ..errors import RuntimeFailureError
from ..fibers import Promise
from ..mailbox import Batch, Mailbox
from ..messages import Message
from ..port import PeerLostError
from ..requests import Requests, Timers
from ..roles import OWNERS, Role
from .reply import Reply

#: Seconds to wait for most replies. What may take longer says so.
REPLY_TIMEOUT = 60.0


#: How many forks lie between the process that was started as such and this one.
_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - the process's own state
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class _Do:
    """Something to do in the connection's thread."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


class Connection(pykka.ThreadingActor):
    """See the module's docstring. ``told`` gets every message that is no reply, in this thread."""

    use_daemon_thread = True

    def __init__(self) -> None:
        super().__init__()
        self._forks = _forks
        self._timers = Timers()
        self._requests = Requests(self._mailbox, self._timers)
        self._incarnations: dict[Role, str] = {}
        self._waiting_for: dict[Role, list[Promise[None]]] = {role: [] for role in OWNERS}
        self._over = False
        self._outstanding: set[Reply[Any]] = set()
        self.failure: RuntimeFailureError | None = None
        #: What was restarted and why, newest last; shown by ``stats``.
        self.restarts: list[tuple[str, str]] = []
        self.ready: Reply[None] = Reply()
        self.ended: Reply[None] = Reply()
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
    ) -> Reply[Any]:
        """Ask the owner ``role``; it holds its reply, or the error that stands for it."""
        future: Reply[Any] = self._promised()

        def ask() -> None:
            if self.failure is not None:
                fail(future, self.failure)
                return
            promise = self._requests.ask(role, build, timeout)
            promise.then(lambda: pass_on(promise, future))

        self._do(ask)
        return future

    def tell(self, role: Role, message: Message) -> None:
        """Send without expecting a reply."""
        self.check_process()
        self._do(lambda: self._tell(role, message))

    def alive(self, role: Role) -> Reply[None]:
        """A reply that is done once the owner ``role`` lives (again)."""
        future: Reply[None] = self._promised()

        def wait() -> None:
            if self.failure is not None:
                fail(future, self.failure)
            elif role in self._incarnations:
                give(future, None)
            else:
                promise: Promise[None] = Promise()
                self._waiting_for[role].append(promise)
                promise.then(lambda: pass_on(promise, future))

        self._do(wait)
        return future

    def incarnation(self, role: Role) -> str:
        return self._incarnations.get(role, "")

    @abc.abstractmethod
    def pids(self) -> dict[str, int]:
        """The process ids of the owners (0 for threads), by role."""

    @property
    def forked(self) -> bool:
        """Whether this is a process that was forked off: the threads stayed behind."""
        return _forks != self._forks

    def check_process(self) -> None:
        """Raise ``RUNTIME_CLOSED`` in a process that was forked off."""
        if self.forked:
            raise forked_error()

    def _promised(self) -> Reply[Any]:
        """A reply that is done in any case, also when this actor ends before it could do it."""
        self.check_process()
        future: Reply[Any] = Reply()
        self._outstanding.add(future)
        future.add_done_callback(self._outstanding.discard)
        if self._over:
            fail(future, self.failure or closed_error())
        return future

    def _do(self, call: Callable[[], None]) -> None:
        self.actor_inbox.put(Envelope(_Do(call)))

    # The connection's thread.

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Batch):
            self._receive(message)
        elif isinstance(message, _Do):
            message.call()
        self._timers.run(time.monotonic())
        self._mailbox.wake_at = self._timers.next()

    def _receive(self, batch: Batch) -> None:
        for role, received in batch.answers:
            if not self._requests.settle(role, received):
                self.told(role, received)

    def _tell(self, role: Role, message: Message) -> None:
        with suppress(zmq.ZMQError):
            self._mailbox.tell(role, message)

    def _owner_is_back(self, role: Role, incarnation: str) -> None:
        self._incarnations[role] = incarnation
        if not self.ready.done() and len(self._incarnations) == len(OWNERS):
            self.ready.set_result(None)
        waiting, self._waiting_for[role] = self._waiting_for[role], []
        for promise in waiting:
            promise.resolve(None)

    def _owner_is_gone(self, role: Role) -> None:
        self._incarnations.pop(role, None)
        self._mailbox.disconnect(role)
        self._requests.lose(role)

    def _fail(self, failure: RuntimeFailureError) -> None:
        """Fail closed: nothing is asked any more, and everybody who waits is told why."""
        self.failure = failure
        if not self.ready.done():
            self.ready.set_exception(failure)
        for role in OWNERS:
            self._requests.lose(role)
            waiting, self._waiting_for[role] = self._waiting_for[role], []
            for promise in waiting:
                promise.fail(failure)

    def _end(self) -> None:
        """Close the sockets and leave nobody waiting."""
        for role in OWNERS:
            self._requests.lose(role)
            waiting, self._waiting_for[role] = self._waiting_for[role], []
            for promise in waiting:
                promise.fail(PeerLostError(role))
        self._mailbox.flush(0.2)
        self._mailbox.close()
        self._over = True
        for future in list(self._outstanding):
            fail(future, self.failure or closed_error())
        self.ended.set_result(None)

    def on_stop(self) -> None:
        self._end()


def pass_on(promise: Promise[Any], future: Reply[Any]) -> None:
    """Give ``future`` what ``promise`` holds."""
    try:
        value = promise.result()
    except BaseException as error:
        fail(future, error)
    else:
        give(future, value)


def give(future: Reply[Any], value: Any) -> None:
    future.set_result(value)


def fail(future: Reply[Any], error: BaseException) -> None:
    future.set_exception(error)


def closed_error() -> RuntimeFailureError:
    """What is said to those who ask after the end."""
    return RuntimeFailureError(Code.RUNTIME_CLOSED, "the runtime is closed")


def forked_error() -> RuntimeFailureError:
    """What is said in a process that was forked off."""
    return RuntimeFailureError(
        Code.RUNTIME_CLOSED,
        "this runtime was started before a fork and belongs to the parent process; start one in "
        "this process",
    )
