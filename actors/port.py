"""What the decisions of an owner may do: the seam between its core and its shell.

A core never touches a socket, a clock, a thread or a file. It is handed messages and does
everything else through a :class:`Port`; the real one is :class:`interlock.actors.owner.Owner`, the
simulation has another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from .fibers import Promise
from .mailbox import Peer
from .messages import Message
from .roles import Role

__all__ = ["Peer", "PeerLostError", "Port", "ReplyTimeoutError", "Timer"]


class PeerLostError(Exception):
    """The owner that was asked has ended, or there is no way to it."""

    def __init__(self, role: Role) -> None:
        super().__init__(f"the {role} is gone")
        self.role = role


class ReplyTimeoutError(Exception):
    """No reply came in time. The request may still be carried out."""

    def __init__(self, role: Role, timeout: float) -> None:
        super().__init__(f"the {role} did not reply within {timeout:g} s")
        self.role = role


class Timer:
    """A moment at which something is called once, unless cancelled before."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None

    def __lt__(self, other: Timer) -> bool:
        return self.when < other.when


class Port(Protocol):
    """Everything a core may do. All methods are called in, and call back in, the owner's thread."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def wall_ms(self) -> int:
        """The wall clock in milliseconds (``time`` in events)."""

    def send(self, peer: bytes, message: Message) -> bool:
        """Send to a connected peer by identity; False where it is gone."""

    def post(self, peer: bytes, message: Message) -> None:
        """Send to a connected peer along with whatever else goes there now: for replies, where
        nobody needs to know whether the peer is gone.
        """

    def tell(self, role: Role, message: Message) -> bool:
        """Send to an owner without expecting a reply; False where there is no way to it."""

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        """Send ``build(rid)`` to an owner. The promise holds the reply with that ``rid``.

        It fails with :class:`PeerLostError`, :class:`ReplyTimeoutError`, or the
        :class:`~interlock.actors.errors.InterlockError` that a :class:`Refused` stands for.
        """

    def ask_peer(
        self, peer: bytes, build: Callable[[int], Message], timeout: float
    ) -> Promise[Any]:
        """The same for a connected peer (the host's gates)."""

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call ``call`` at monotonic time ``when``."""

    def work(self, job: Callable[[], Any], *, brief: bool = False) -> Promise[Any]:
        """Run blocking ``job`` on a thread of the owner's pool; the promise holds what it
        returns.

        A ``brief`` one computes, and waits for little more than one sync of the disk. It is done at
        once in the owner's own thread, where the promise holds when this returns, unless the last
        one had to wait for long.
        """

    def peer_incarnation(self, role: Role) -> str:
        """The life of the owner ``role`` that is known now, empty if none. While its loss is told
        it is still the lost one.
        """

    def when_gone(self, role: Role, call: Callable[[], None]) -> None:
        """Call ``call`` once the process of the owner ``role`` has ended, at once if there is
        none.
        """
