"""Requests that a process has made and whose replies are awaited, with their deadlines; and timers.

Used by everything that owns a mailbox: the four owners and the host. All of it runs in the
mailbox's thread.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from typing import Any

from .errors import error_for
from .fibers import Promise
from .mailbox import Mailbox
from .messages import Message, Refused
from .port import PeerLostError, ReplyTimeoutError, Timer
from .roles import Role


class Timers:
    """Moments at which something is called, in a heap: the cost does not grow with their number."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._compact_at = 1024

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        timer = Timer(when, call)
        if len(self._heap) >= self._compact_at:
            # Most deadlines are cancelled long before they are due: drop those now and then.
            self._heap = [t for t in self._heap if t.call is not None]
            heapq.heapify(self._heap)
            self._compact_at = max(1024, 2 * len(self._heap))
        heapq.heappush(self._heap, timer)
        return timer

    def run(self, now: float) -> None:
        """Call everything that is due."""
        while self._heap and self._heap[0].when <= now:
            call = heapq.heappop(self._heap).call
            if call is not None:
                call()

    def next(self) -> float | None:
        """When the next one is due."""
        while self._heap and self._heap[0].call is None:
            heapq.heappop(self._heap)
        return self._heap[0].when if self._heap else None


class _Asked:
    __slots__ = ("deadline", "promise", "role", "timeout")

    def __init__(self, role: Role, promise: Promise[Any], deadline: Timer, timeout: float) -> None:
        self.role, self.promise, self.deadline, self.timeout = role, promise, deadline, timeout


class Requests:
    """Replies that are awaited, by request id."""

    def __init__(self, mailbox: Mailbox, timers: Timers) -> None:
        self._mailbox, self._timers = mailbox, timers
        self._asked: dict[int, _Asked] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._asked)

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        """See :meth:`interlock.actors.port.Port.ask`."""
        rid, promise = self._remember(role, timeout)
        if not self._mailbox.tell(role, build(rid)):
            self._drop(rid)
            promise.fail(PeerLostError(role))
        return promise

    def ask_peer(
        self, role: Role, peer: bytes, build: Callable[[int], Message], timeout: float
    ) -> Promise[Any]:
        """The same for a peer that is connected to our own socket."""
        rid, promise = self._remember(role, timeout)
        if not self._mailbox.send(peer, build(rid)):
            self._drop(rid)
            promise.fail(PeerLostError(role))
        return promise

    def settle(self, role: Role, message: Message) -> bool:
        """Give a reply to whoever waits for it; False where nobody does (any more)."""
        rid = getattr(message, "rid", None)
        asked = self._asked.get(rid) if rid is not None else None
        if rid is None or asked is None or asked.role is not role:
            return False
        self._drop(rid)
        if isinstance(message, Refused):
            asked.promise.fail(error_for(message.code, message.message, **message.details))
        else:
            asked.promise.resolve(message)
        return True

    def lose(self, role: Role) -> None:
        """Fail everything that was asked of ``role``: replies of an ended life never arrive."""
        for rid, asked in list(self._asked.items()):
            if asked.role is role:
                self._drop(rid)
                asked.promise.fail(PeerLostError(role))

    def _remember(self, role: Role, timeout: float) -> tuple[int, Promise[Any]]:
        self._next += 1
        rid = self._next
        promise: Promise[Any] = Promise()
        deadline = self._timers.at(time.monotonic() + timeout, lambda: self._expire(rid))
        self._asked[rid] = _Asked(role, promise, deadline, timeout)
        return rid, promise

    def _drop(self, rid: int) -> None:
        asked = self._asked.pop(rid, None)
        if asked is not None:
            asked.deadline.cancel()

    def _expire(self, rid: int) -> None:
        asked = self._asked.pop(rid, None)
        if asked is not None:
            asked.promise.fail(ReplyTimeoutError(asked.role, asked.timeout))
