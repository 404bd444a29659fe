"""Owners in one thread: a virtual clock, a virtual network, and peers that tests lead by hand.

The cores are the real ones; what is virtual is their :class:`~interlock.actors.port.Port`. Every
message travels as bytes, so that what a role may not say is refused here as it is there. Nothing
moves until :meth:`Network.run`; time passes only in :meth:`Network.advance`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from interlock.actors.errors import error_for
from interlock.actors.fibers import Promise
from interlock.actors.mailbox import Peer
from interlock.actors.messages import Judged, Message, Refused, Shutdown, Stopped
from interlock.actors.owner import Core, refusal
from interlock.actors.port import PeerLostError, ReplyTimeoutError, Timer
from interlock.actors.requests import Timers
from interlock.actors.roles import Role
from interlock.actors.wire import decode, encode
from interlock.backends.errors import InterlockError

#: A network that does not come to rest within this many deliveries is going in circles.
TOO_MANY = 100_000


@dataclass(eq=False)
class Job:
    """Blocking work that an owner handed out; it ends when the test says so, or at once."""

    call: Callable[[], Any]
    promise: Promise[Any]

    def run(self) -> None:
        try:
            value = self.call()
        except (InterlockError, OSError, ValueError) as error:
            self.promise.fail(error)
        else:
            self.promise.resolve(value)

    def fail(self, error: Exception) -> None:
        """End it with ``error`` instead of doing it."""
        self.promise.fail(error)


@dataclass(eq=False)
class Asked:
    """A request of an owner whose reply has not come."""

    whom: object
    promise: Promise[Any]
    deadline: Timer


class VirtualPort:
    """What a core may do, here. One life of one owner."""

    def __init__(self, network: Network, role: Role, incarnation: str) -> None:
        self.network, self.role, self.incarnation = network, role, incarnation
        self.asked: dict[int, Asked] = {}
        self.jobs: deque[Job] = deque()
        #: Keep blocking work back until the test runs or fails it.
        self.hold_work = False
        self.ended = False
        #: The lives of the others that this one has heard of.
        self.known: dict[Role, str] = {}
        self._rid = 0

    @property
    def identity(self) -> bytes:
        """How this life's connections to other owners are named."""
        return f"owner:{self.role}:{self.incarnation}".encode()

    def now(self) -> float:
        return self.network.now

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + int(self.network.now * 1000)

    def peer_incarnation(self, role: Role) -> str:
        return self.known.get(role, "")

    def send(self, peer: bytes, message: Message) -> bool:
        return self.network.send(self, peer, message)

    def post(self, peer: bytes, message: Message) -> None:
        self.network.send(self, peer, message)

    def tell(self, role: Role, message: Message) -> bool:
        return self.network.send(self, self.network.address(role), message)

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        return self._ask(role, role, self.network.address(role), build, timeout)

    def ask_peer(
        self, peer: bytes, build: Callable[[int], Message], timeout: float
    ) -> Promise[Any]:
        return self._ask(peer, Role.HOST, peer, build, timeout)

    def at(self, when: float, call: Callable[[], None]) -> Timer:
        def due() -> None:
            node = self.network.owners.get(self.role)
            if node is not None and node.port is self:  # another life has timers of its own
                self.network.called(self.role, call)

        return self.network.timers.at(when, due)

    def work(self, job: Callable[[], Any], *, brief: bool = False) -> Promise[Any]:
        # What is brief waits here as well: a test may look in between.
        promise: Promise[Any] = Promise()
        self.jobs.append(Job(job, promise))
        if not self.hold_work:
            self.network.later(self.role, self.finish_job)
        return promise

    def when_gone(self, role: Role, call: Callable[[], None]) -> None:
        if role in self.network.owners:
            self.network.farewells.append((role, self.role, call))
        else:
            call()

    # For the network and for tests.

    def end(self) -> None:
        """The owner ends in order."""
        self.ended = True
        if self.network.owners.get(self.role) is not None:
            self.network.later(self.role, lambda: self.network.kill(self.role))

    def finish_job(self) -> None:
        """Do the oldest blocking work that was put off (within :meth:`Network.called`)."""
        if self.jobs:
            self.jobs.popleft().run()

    def settle(self, whom: object, message: Message) -> bool:
        """Give a reply to the request that waits for it."""
        rid = getattr(message, "rid", None)
        asked = self.asked.get(rid) if rid is not None else None
        if asked is None or asked.whom != whom:
            return False
        self._drop(rid)
        if isinstance(message, Refused):
            asked.promise.fail(error_for(message.code, message.message, **message.details))
        else:
            asked.promise.resolve(message)
        return True

    def lose(self, role: Role) -> None:
        """Fail what was asked of an owner that has ended."""
        for rid, asked in list(self.asked.items()):
            if asked.whom is role:
                self._drop(rid)
                asked.promise.fail(PeerLostError(role))

    def _ask(
        self,
        whom: object,
        role: Role,
        identity: bytes,
        build: Callable[[int], Message],
        timeout: float,
    ) -> Promise[Any]:
        self._rid += 1
        rid = self._rid
        promise: Promise[Any] = Promise()

        def late() -> None:
            self._drop(rid)
            promise.fail(ReplyTimeoutError(role, timeout))

        self.asked[rid] = Asked(whom, promise, self.at(self.now() + timeout, late))
        if not self.network.send(self, identity, build(rid)):
            self._drop(rid)
            promise.fail(PeerLostError(role))
        return promise

    def _drop(self, rid: int) -> None:
        asked = self.asked.pop(rid, None)
        if asked is not None:
            asked.deadline.cancel()


@dataclass(eq=False)
class VirtualPeer:
    """A host, client, answerer or worker: what it got is in ``inbox``, what it does is the
    test's.
    """

    network: Network
    name: str
    role: Role
    inbox: list[Message] = field(default_factory=list)
    #: Called with each message instead of only keeping it.
    react: Callable[[Message], None] | None = None

    def __post_init__(self) -> None:
        self.network.peers[self.identity] = self

    @property
    def identity(self) -> bytes:
        return b"\0" + self.name.encode()

    @property
    def key(self) -> bytes:
        return b"key of " + self.name.encode()

    def say(self, role: Role, message: Message) -> None:
        """Send to an owner, over this peer's own connection."""
        self.network.send_from_peer(self, role, message)

    def got(self, kind: type) -> list[Any]:
        """What came of one type, oldest first."""
        return [message for message in self.inbox if isinstance(message, kind)]

    def last(self, kind: type) -> Any:
        found = self.got(kind)
        assert found, f"{self.name} got no {kind.__name__}, only {self.inbox}"
        return found[-1]

    def ask(self, role: Role, message: Message) -> Any:
        """Send a request, run, and return its reply; None if there is none yet."""
        rid = message.rid  # type: ignore[attr-defined]
        before = len(self.inbox)
        self.say(role, message)
        self.network.run()
        replies = [m for m in self.inbox[before:] if getattr(m, "rid", None) == rid]
        return replies[0] if replies else None

    def leave(self) -> None:
        """Its connection is gone: nothing reaches it any more."""
        self.network.peers.pop(self.identity, None)


@dataclass
class OwnerNode:
    """One life of one owner."""

    port: VirtualPort
    core: Core


class Network:
    """Moves messages between owners and peers, one after the other, in the order of sending."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.timers = Timers()
        self.owners: dict[Role, OwnerNode] = {}
        self.peers: dict[bytes, VirtualPeer] = {}
        self.farewells: list[tuple[Role, Role, Callable[[], None]]] = []
        #: Every message that was sent, with who said it to whom.
        self.record: list[tuple[Role, bytes, Message]] = []
        #: Messages for which this is true are kept in ``held`` instead of delivered.
        self.hold: Callable[[Message], bool] = lambda _message: False
        self.held: list[tuple[Role, Callable[[], None], Message]] = []
        self._queue: deque[tuple[Role | None, Callable[[], None]]] = deque()
        self._touched: set[Role] = set()

    # Setting up.

    def start(self, role: Role, build: Callable[[VirtualPort], Core], incarnation: str) -> Any:
        """Start a life of an owner; its core."""
        port = VirtualPort(self, role, incarnation)
        node = OwnerNode(port, build(port))
        self.owners[role] = node
        for other in self.owners.values():
            self.later(other.port.role, lambda other=other: self._meet(other, node))
        return node.core

    def _meet(self, one: OwnerNode, other: OwnerNode) -> None:
        """The news of a life arrives, at both ends."""
        one.port.known[other.port.role] = other.port.incarnation
        other.port.known[one.port.role] = one.port.incarnation

    def kill(self, role: Role) -> None:
        """An owner's process ends: what is on its way there is lost, and everybody hears of it."""
        self.owners.pop(role, None)
        self._queue = deque((to, call) for to, call in self._queue if to is not role)
        self.held = [(to, call, m) for to, call, m in self.held if to is not role]
        for other, node in self.owners.items():
            self.later(other, lambda node=node: self._lost(node, role))
        farewells, self.farewells = self.farewells, []
        for gone, who, call in farewells:
            if gone is role:
                self.later(who, call)
            else:
                self.farewells.append((gone, who, call))

    def _lost(self, node: OwnerNode, role: Role) -> None:
        node.port.lose(role)
        node.core.peer_lost(role)
        node.port.known.pop(role, None)

    def lose_host(self) -> None:
        """The embedding process ends (F1)."""
        for identity, peer in list(self.peers.items()):
            if peer.role is Role.HOST:
                del self.peers[identity]
        for role, node in self.owners.items():
            self.later(role, node.core.host_lost)

    # Moving.

    def run(self) -> None:
        """Deliver until nothing moves any more. Each owner takes what is there as one batch."""
        for _ in range(TOO_MANY):
            if self._queue:
                role, call = self._queue.popleft()
                if role is None or role in self.owners:
                    call()
                if role is not None:
                    self._touched.add(role)
                continue
            if not self._end_batches():
                return
        raise AssertionError("the network does not come to rest")

    def _end_batches(self) -> bool:
        touched, self._touched = self._touched, set()
        for role in touched:
            if role in self.owners:
                self.owners[role].core.batch_done()
        return bool(touched)

    def advance(self, seconds: float) -> None:
        """Let time pass, timer by timer, running everything that each of them starts."""
        self.run()
        until = self.now + seconds
        while True:
            due = self.timers.next()
            if due is None or due > until:
                break
            self.now = max(self.now, due)
            self.timers.run(self.now)
            self.run()
        self.now = until
        self.run()

    def called(self, role: Role, call: Callable[[], None]) -> None:
        """A timer or a thread calls back into an owner, unless that has ended."""
        if role in self.owners:
            call()
            self._touched.add(role)

    def later(self, role: Role | None, call: Callable[[], None]) -> None:
        self._queue.append((role, call))

    def let_go(self, which: Callable[[Message], bool] = lambda _message: True) -> None:
        """Deliver what was held, oldest first, and hold nothing more of it."""
        held, self.held = self.held, []
        for role, call, message in held:
            if which(message):
                self.later(role, call)
            else:
                self.held.append((role, call, message))
        self.hold = lambda _message: False
        self.run()

    # Sending.

    def address(self, role: Role) -> bytes:
        """Where the owner ``role`` is now; nobody is at the empty address."""
        node = self.owners.get(role)
        return node.port.identity if node is not None else b""

    def send(self, sender: VirtualPort, to: bytes, message: Message) -> bool:
        """From an owner; False where nobody has that identity (any more)."""
        sent = decode(encode(message), sender.role)
        self.record.append((sender.role, to, sent))
        peer = self.peers.get(to)
        if peer is not None:
            self._post(None, lambda: self._to_peer(peer, sent), sent)
            return True
        node = next((n for n in self.owners.values() if n.port.identity == to), None)
        if node is None:
            return False
        self._post(node.port.role, lambda: self._to_owner(node, sender, sent), sent)
        return True

    def send_from_peer(self, peer: VirtualPeer, role: Role, message: Message) -> None:
        sent = decode(encode(message), peer.role)
        node = self.owners.get(role)
        if node is None:
            return
        sender = Peer(peer.identity, peer.role, peer.key)
        self._post(role, lambda: self._receive(node, sender, sent), sent)

    def _post(self, role: Role | None, call: Callable[[], None], message: Message) -> None:
        if self.hold(message):
            self.held.append((role, call, message))
        else:
            self.later(role, call)

    def _to_peer(self, peer: VirtualPeer, message: Message) -> None:
        peer.inbox.append(message)
        if peer.react is not None:
            peer.react(message)

    def _to_owner(self, node: OwnerNode, sender: VirtualPort, message: Message) -> None:
        """A reply to what ``node`` asked, news on a link of its own, or another owner's request."""
        if sender.role not in _LINKS.get(node.port.role, ()):
            peer = Peer(sender.identity, sender.role, b"key of " + sender.role.encode())
            self._receive(node, peer, message)
        elif self.address(sender.role) == sender.identity and not node.port.settle(
            sender.role, message
        ):
            node.core.told(sender.role, message)

    def _receive(self, node: OwnerNode, peer: Peer, message: Message) -> None:
        """As the shell does: see :class:`interlock.actors.owner.Owner`."""
        if isinstance(message, Shutdown):
            self._shut_down(node, peer, message)
        elif isinstance(message, Judged):
            node.port.settle(peer.identity, message)
        else:
            try:
                node.core.receive(peer, message)
            except InterlockError as error:
                rid = getattr(message, "rid", None)
                if rid is not None:
                    node.port.send(peer.identity, refusal(rid, error))

    def _shut_down(self, node: OwnerNode, peer: Peer, message: Shutdown) -> None:
        settled = node.core.shutdown(message.grace)

        def answer() -> None:
            stopped = settled.result()
            node.port.send(peer.identity, Stopped(message.rid, stopped.durable, stopped.failed))
            node.port.end()

        settled.then(answer)


#: Whom each owner asks over a link of its own (what comes from there is an answer or news).
_LINKS: dict[Role, tuple[Role, ...]] = {
    Role.DISPATCHER: (Role.WRITER, Role.BROKER, Role.LAUNCHER),
}
