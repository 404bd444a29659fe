"""The mailbox: an actor's pykka inbox that *is* its ZeroMQ socket.

Life of a mailbox:

1. pykka makes it with the actor, in the starter's thread. It holds no socket yet; local messages
   (``ActorRef.tell``, ``stop``, completions of other threads) can already be put.
2. The actor's thread calls :meth:`Mailbox.open` and from then on owns every socket in it: one
   ROUTER that others connect to, and a DEALER per peer that it asks (:meth:`connect`).
3. ``get()`` waits for whatever comes first: a remote message, a local one, a watched descriptor or
   the next timer. It takes *everything* that is ready in one go and hands the remote part over as
   one :class:`Batch`, so that the writer commits all of it with one sync.
4. ``close()``, in the actor's thread, closes the sockets without lingering.

No thread stands between the socket and the actor, and no socket is ever touched by two threads.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any, NamedTuple

import zmq
from pykka._envelope import Envelope

from .keys import KeyPair, Keyring, guard_client, guard_server
from .messages import Message
from .roles import Role
from .wire import LIMITS, BadMessageError, bundle, decode_all, encode

_inproc_ids = count()

#: The most remote messages taken in one go, so that timers and local messages get their turn.
BATCH = 4096
#: Bytes of one bundle at most, beyond its last message.
BUNDLE = 256 * 1024


class Peer(NamedTuple):
    """One connection of somebody to this actor: replies go to ``identity``, rights follow
    ``role``.
    """

    identity: bytes
    role: Role
    key: bytes


class Batch(NamedTuple):
    """What one ``get`` found: messages of connected peers, answers on links, descriptors that
    fired, connections to us that ended (how many), and why the watched link ended.
    """

    received: list[tuple[Peer, Message]]
    answers: list[tuple[Role, Message]]
    fired: list[int]
    left: list[int]
    lost: list[str]


class Mailbox:
    """A pykka inbox over ZeroMQ; see the module's docstring for its life."""

    def __init__(self) -> None:
        self._local: deque[Envelope[Any]] = deque()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._signalled = False
        self._lock = threading.Lock()
        self._poller = zmq.Poller()
        self._poller.register(self._wake_read, zmq.POLLIN)
        self._router: zmq.Socket[bytes] | None = None
        self._door: zmq.Socket[bytes] | None = None
        self._link_end: zmq.Socket[bytes] | None = None
        self._links: dict[Role, zmq.Socket[bytes]] = {}
        self._peers: dict[bytes, Peer] = {}
        self._keyring = Keyring()
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._keys: KeyPair | None = None
        self._role = Role.HOST
        self._watched: set[int] = set()
        self._closed = False
        #: Monotonic time (s) at which ``get`` returns an empty batch at the latest.
        self.wake_at: float | None = None
        self.dropped = 0
        self.unroutable = 0
        self._accepted = self._proven = 0
        #: Encoded messages that leave together, by link or by identity, and how long they are.
        self._posted: dict[Role | bytes, list[bytes]] = {}
        self._posted_bytes = 0

    # The three methods of pykka's ActorInbox.

    def put(self, envelope: Envelope[Any], /) -> None:
        """Add a local message; any thread may."""
        with self._lock:
            self._local.append(envelope)
            if self._signalled or self._closed:
                return
            self._signalled = True
            os.write(self._wake_write, b"\0")

    def get(self) -> Envelope[Any]:
        """Wait for the next local message or batch (the actor's thread)."""
        self.dispatch()
        while True:
            local = self._next_local()
            if local is not None:
                return local
            batch = self._collect()
            if batch is not None:
                return Envelope(batch)

    def empty(self) -> bool:
        return not self._local

    # The actor's thread only.

    def open(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoints: Iterable[str],
        keys: KeyPair,
        keyring: Keyring,
        role: Role,
    ) -> None:
        """Bind a ROUTER at ``endpoints`` for the owner ``role``, which is its ZAP domain too.

        ``inproc`` endpoints are trusted without a key: they end in this process (X1).
        """
        self._context, self._keys, self._keyring, self._role = context, keys, keyring, role
        router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
        router.linger = 0
        router.router_mandatory = True
        # A control message is never dropped silently: queues have no mark, streams have credit.
        router.sndhwm = 0
        router.rcvhwm = 0
        router.maxmsgsize = max(LIMITS.values())
        guard_server(router, keys, role)
        self._watch_door(context, router)
        for endpoint in endpoints:
            router.bind(endpoint)
        self._router = router
        self._poller.register(router, zmq.POLLIN)

    def _watch_door(
        self, context: zmq.Context[zmq.Socket[bytes]], router: zmq.Socket[bytes]
    ) -> None:
        """Count who comes to the door and who gets in: strangers leave no other trace (X3)."""
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        self._door = _monitor(context, router, events)
        self._poller.register(self._door, zmq.POLLIN)

    @property
    def unproven(self) -> int:
        """Connections that never proved a known key: random bytes, other protocols, unknown keys
        (and those that are about to prove one).
        """
        return self._accepted - self._proven

    def forget(self, key: bytes) -> None:
        """Who held ``key`` has ended: whatever its connections were called, they are met anew."""
        self._peers = {i: peer for i, peer in self._peers.items() if peer.key != key}

    def use(self, context: zmq.Context[zmq.Socket[bytes]], keys: KeyPair, role: Role) -> None:
        """Have no ROUTER: this mailbox only asks others (the host, a client, a worker)."""
        self._context, self._keys, self._role = context, keys, role

    def use_keys(self, public: bytes, secret: bytes) -> None:
        """Connect with this key pair from now on."""
        self._keys = KeyPair(public, secret)

    def connect(self, role: Role, endpoint: str, public: bytes, *, watched: bool = False) -> None:
        """Connect to the owner ``role``; an earlier connection to that role is closed.

        The end of a ``watched`` link (there can be one) is reported in ``Batch.lost``.
        """
        if self._context is None or self._keys is None:
            raise RuntimeError("the mailbox is not open")
        self.disconnect(role)
        dealer: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        dealer.linger = 0
        dealer.sndhwm = 0
        dealer.rcvhwm = 0
        dealer.reconnect_ivl = 10
        dealer.maxmsgsize = max(LIMITS.values())
        if endpoint.startswith("inproc:"):
            # inproc has no keys (X1): the connection's identity says who this is.
            dealer.routing_id = f"{self._role}#{next(_inproc_ids)}".encode()
        else:
            guard_client(dealer, self._keys, public)
        if watched:
            self._link_end = _monitor(self._context, dealer, sum(_ENDS))
            self._poller.register(self._link_end, zmq.POLLIN)
        dealer.connect(endpoint)
        self._links[role] = dealer
        self._poller.register(dealer, zmq.POLLIN)

    def disconnect(self, role: Role) -> None:
        """Drop the connection to ``role`` and whatever was still on its way there."""
        dealer = self._links.pop(role, None)
        self._posted.pop(role, None)
        if dealer is not None:
            self._poller.unregister(dealer)
            dealer.close(linger=0)

    def connected(self, role: Role) -> bool:
        return role in self._links

    def send(self, identity: bytes, message: Message) -> bool:
        """Send to a connected peer now; False where it is gone (counted, never silent)."""
        if identity in self._posted:
            self.dispatch()
        return self._route(identity, encode(message))

    def post(self, identity: bytes, message: Message) -> None:
        """Send to a connected peer once what is at hand has been handled, with what else goes there
        by then; a peer that is gone is counted.
        """
        self._post(identity, message)

    def tell(self, role: Role, message: Message) -> bool:
        """Send over the link to ``role`` as :meth:`post` does; False where there is none."""
        if role not in self._links:
            return False
        self._post(role, message)
        return True

    def dispatch(self) -> None:
        """Send what was posted. Called before every wait and wherever something takes its time."""
        if not self._posted:
            return
        posted, self._posted, self._posted_bytes = self._posted, {}, 0
        for target, messages in posted.items():
            if isinstance(target, bytes):
                self._route(target, bundle(messages))
            elif target in self._links:
                try:
                    self._links[target].send(bundle(messages), zmq.NOBLOCK)
                except zmq.Again:
                    self.unroutable += len(messages)

    def _post(self, target: Role | bytes, message: Message) -> None:
        payload = encode(message)
        waiting = self._posted.get(target)
        if waiting is None:
            self._posted[target] = [payload]
        else:
            waiting.append(payload)
        self._posted_bytes += len(payload)
        if self._posted_bytes > BUNDLE:
            self.dispatch()

    def _route(self, identity: bytes, payload: bytes) -> bool:
        if self._router is None:
            raise RuntimeError("the mailbox has no router")
        try:
            self._router.send(identity, zmq.NOBLOCK | zmq.SNDMORE)
            self._router.send(payload, zmq.NOBLOCK)
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            self.unroutable += 1
            self._peers.pop(identity, None)
            return False
        return True

    def watch(self, descriptor: int) -> None:
        """Report ``descriptor`` in the next batch once it is readable or at its end."""
        self._watched.add(descriptor)
        self._poller.register(descriptor, zmq.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            self._poller.unregister(descriptor)

    def flush(self, timeout: float) -> None:
        """Give what was sent up to ``timeout`` s to leave when the sockets are closed."""
        self.dispatch()
        linger = int(timeout * 1000)
        for socket in (self._router, *self._links.values()):
            if socket is not None:
                socket.linger = linger

    def close(self) -> None:
        """Close every socket; nothing lingers beyond what :meth:`flush` allowed."""
        for role in list(self._links):
            self._links.pop(role).close()
        if self._link_end is not None:
            self._link_end.close()
            self._link_end = None
        if self._door is not None and self._router is not None:
            self._router.disable_monitor()
            self._door.close()
            self._router.close()
            self._router = self._door = None
        with self._lock:
            self._closed = True
            os.close(self._wake_read)
            os.close(self._wake_write)

    # How a batch is collected.

    def _next_local(self) -> Envelope[Any] | None:
        with self._lock:
            if self._local:
                return self._local.popleft()
            if self._signalled:
                self._signalled = False
                os.read(self._wake_read, 64)
            return None

    def _collect(self) -> Batch | None:
        timeout = None
        if self.wake_at is not None:
            timeout = max(0, int((self.wake_at - time.monotonic()) * 1000) + 1)
        ready = dict(self._poller.poll(timeout))
        batch = Batch([], [], [], [], [])
        for source in ready:
            if source == self._wake_read:
                continue
            if isinstance(source, int):
                batch.fired.append(source)
            elif source is self._router:
                self._drain_router(batch)
            elif source is self._door:
                self._drain_door(batch)
            elif source is self._link_end:
                self._drain_link_end(batch)
            else:
                self._drain_links(batch, source)
        due = self.wake_at is not None and self.wake_at <= time.monotonic()
        if due or any(batch):
            return batch
        return None

    def _drain_door(self, batch: Batch) -> None:
        for kind in _events(self._door):
            if kind == zmq.EVENT_ACCEPTED:
                self._accepted += 1
            elif kind == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._proven += 1
            elif kind == zmq.EVENT_DISCONNECTED:
                batch.left.append(kind)

    def _drain_link_end(self, batch: Batch) -> None:
        batch.lost.extend(_ENDS[kind] for kind in _events(self._link_end) if kind in _ENDS)

    def _drain_router(self, batch: Batch) -> None:
        router = self._router
        if router is None:
            return
        for _ in range(BATCH):
            # Frames say by themselves whether more follow; asking the socket costs more than the
            # receive does.
            try:
                identity = router.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if not identity.more:
                self.dropped += 1
                continue
            frame = router.recv(zmq.NOBLOCK, copy=False)
            self._take(identity.bytes, frame, _skip_rest(router, frame), batch)

    def _take(self, identity: bytes, frame: zmq.Frame, too_many: bool, batch: Batch) -> None:
        peer = self._peers.get(identity) or self._meet(identity, frame)
        if peer is None or too_many:
            self.dropped += 1
            return
        try:
            messages = decode_all(frame.buffer, peer.role)
        except BadMessageError:
            self.dropped += 1
        else:
            batch.received.extend([(peer, message) for message in messages])

    def _meet(self, identity: bytes, frame: zmq.Frame) -> Peer | None:
        """Learn who a new connection is, from its key (X1).

        Only identities that our own socket made up are taken (they start with a zero byte and are
        never used twice): one that a peer chose could be somebody else's in a later connection.
        """
        user = _property(frame, "User-Id")
        if user is not None:
            key = user.encode()
            role = self._keyring.role(key)
            if role is None or not identity.startswith(b"\0"):
                return None
            peer = Peer(identity, role, key)
        elif _property(frame, "Socket-Type") is None:
            # No handshake at all: an inproc connection, so our own process, which says who it is.
            name, _, _ = identity.partition(b"#")
            try:
                peer = Peer(identity, Role(name.decode()), name)
            except ValueError:
                return None
        else:
            return None  # it came over a wire and nobody vouched for it
        self._peers[identity] = peer
        return peer

    def _drain_links(self, batch: Batch, source: object) -> None:
        for role, dealer in self._links.items():
            if dealer is not source:
                continue
            for _ in range(BATCH):
                try:
                    frame = dealer.recv(zmq.NOBLOCK, copy=False)
                except zmq.Again:
                    return
                _skip_rest(dealer, frame)
                try:
                    messages = decode_all(frame.buffer, role)
                except BadMessageError:
                    self.dropped += 1
                else:
                    batch.answers.extend([(role, message) for message in messages])
            return


def _skip_rest(socket: zmq.Socket[bytes], frame: zmq.Frame) -> bool:
    """Take what follows ``frame`` in its message; whether there was anything."""
    extra = frame.more
    while frame.more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
    return bool(extra)


#: Events at which a link is over, and what they mean.
_ENDS: dict[int, str] = {
    zmq.EVENT_DISCONNECTED: "the connection has ended",
    zmq.EVENT_CONNECT_RETRIED: "nobody listens there",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "the key is not admitted",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "somebody else listens there",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "the connection was refused",
}


def _monitor(
    context: zmq.Context[zmq.Socket[bytes]], socket: zmq.Socket[bytes], events: int
) -> zmq.Socket[bytes]:
    """A socket that tells of ``events`` of the connections of ``socket``."""
    address = f"inproc://monitor-{os.getpid()}-{next(_inproc_ids)}"
    socket.monitor(address, events)
    monitor: zmq.Socket[bytes] = context.socket(zmq.PAIR)
    monitor.rcvhwm = 0  # a full queue would block the thread that carries every message
    monitor.linger = 0
    monitor.connect(address)
    return monitor


def _events(monitor: zmq.Socket[bytes] | None) -> Iterator[int]:
    """Everything that ``monitor`` has to tell now."""
    while monitor is not None and not monitor.closed:
        try:
            event, _address = monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return
        yield int.from_bytes(event[:2], sys.byteorder)


def _property(frame: zmq.Frame, name: str) -> str | None:
    """A property of the connection that ``frame`` came over, where it has that one."""
    try:
        return str(frame.get(name))
    except zmq.ZMQError:
        return None
