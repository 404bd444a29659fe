"""The host's front desk: where clients attach, and where they are missed (X4).

A client knows one address and one key. The desk gives each its own key pair for the owners, which
learn it by message, so that what one client opened no other touches. It tells every client where
the owners are, now and whenever one was replaced. When a client's connection ends, the owners let
go of what was its own: its waiting calls are cancelled, what runs is recorded, its sessions are
flushed and closed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from interlock.backends.errors import InterlockError

from ..fibers import Promise, first, spawn
from ..keys import KeyPair
from ..messages import (
    Admit,
    Attach,
    Attached,
    Dismiss,
    Message,
    PeerChanged,
    PeerGone,
    StillThere,
)
from ..port import Peer, PeerLostError, ReplyTimeoutError, Timer
from ..roles import OWNERS, Role
from ..tools.spec import ToolSpec

#: Seconds within which an owner must know a new client.
ADMIT_TIMEOUT = 10.0
#: What a client had released when it went runs on to its own deadline (s).
DISMISS_TIMEOUT = 7 * 24 * 3600.0
#: When (s) after some connection ended it is looked whose it was: the socket may learn it late.
LOOKS = (0.0, 0.1, 1.0, 5.0)


class Staff(Protocol):
    """What the desk needs of the host's actor; all of it in the host's thread."""

    def send(self, identity: bytes, message: Message) -> bool:
        """Send to a connection at the desk; False where it is gone."""

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        """Ask an owner."""

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        """Call later."""

    def now(self) -> float:
        """Monotonic time in seconds."""

    def living(self) -> list[PeerChanged]:
        """Every owner that lives, and where."""


class Setting(NamedTuple):
    """What a client is told of the runtime that it attaches to."""

    root: str
    approval: str
    tools: list[ToolSpec]


class FrontDesk:
    """Owns who is attached. All methods run in the host's thread.

    :param keys: filled with the keys of attached clients: new lives of owners start with them.
    """

    def __init__(self, staff: Staff, keys: set[bytes], setting: Setting) -> None:
        self._staff, self._keys, self._setting = staff, keys, setting
        self._clients: dict[bytes, KeyPair] = {}
        self.unexpected = 0

    def __len__(self) -> int:
        return len(self._clients)

    def receive(self, peer: Peer, message: Message) -> None:
        """A message of a connection that proved the clients' key."""
        if isinstance(message, Attach):
            spawn(self._attach(peer.identity, message.rid))
        else:
            self.unexpected += 1  # X3

    async def _attach(self, identity: bytes, rid: int) -> None:
        keys = self._clients.setdefault(identity, KeyPair.generate())
        self._keys.add(keys.public)
        await self._tell_owners(lambda rid: Admit(rid, keys.public), ADMIT_TIMEOUT, OWNERS)
        word = Attached(
            rid,
            keys.public,
            keys.secret,
            self._staff.living(),
            *self._setting,
        )
        if not self._staff.send(identity, word):
            await self._let_go(identity)

    async def _tell_owners(
        self, build: Callable[[int], Message], timeout: float, roles: tuple[Role, ...]
    ) -> None:
        """Tell ``roles``; an owner that has ended needs no word: its next life starts with it."""
        for asked in [self._staff.ask(role, build, timeout) for role in roles]:
            await first(asked)
            try:
                asked.result()
            except (InterlockError, PeerLostError, ReplyTimeoutError):
                continue

    # What changes.

    def owner_changed(self, word: PeerChanged) -> None:
        """An owner lives (again): whoever attached while it started must be known to it."""
        for key in list(self._keys):
            self._admit(Role(word.role), key)
        self._tell_clients(word)

    def _admit(self, role: Role, key: bytes) -> None:
        self._staff.ask(role, lambda rid: Admit(rid, key), ADMIT_TIMEOUT)

    def owner_gone(self, word: PeerGone) -> None:
        self._tell_clients(word)

    def _tell_clients(self, word: Message) -> None:
        for identity in list(self._clients):
            self._staff.send(identity, word)

    # Clients that go.

    def somebody_left(self) -> None:
        """Some connection has ended. Sending shows whose: a stopped client still has its own."""
        for delay in LOOKS:
            self._staff.at(self._staff.now() + delay, self._look)

    def _look(self) -> None:
        for identity in list(self._clients):
            if not self._staff.send(identity, StillThere()):
                spawn(self._let_go(identity))

    async def _let_go(self, identity: bytes) -> None:
        keys = self._clients.pop(identity, None)
        if keys is None:
            return
        self._keys.discard(keys.public)
        # First the calls, so that everything is recorded; then the sessions.
        for role in (Role.DISPATCHER, Role.WRITER, Role.BROKER, Role.LAUNCHER):
            await self._tell_owners(lambda rid: Dismiss(rid, keys.public), DISMISS_TIMEOUT, (role,))
