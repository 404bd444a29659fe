"""The mailbox over real sockets: X1, X3, and that everything that is ready comes in one go."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from interlock.actors.keys import Doorkeeper, KeyPair, Keyring, guard_client
from interlock.actors.mailbox import BUNDLE, Batch, Mailbox
from interlock.actors.messages import Append, Flush, Hello, Message, Welcome
from interlock.actors.roles import Role
from interlock.actors.wire import LIMITS, bundle, decode_all, encode
from interlock.backends.event import draft
from pykka._envelope import Envelope

#: No wait in these tests is meant to be this long (s): one that is has failed.
PATIENCE = 20.0


class Hub:
    """An owner's mailbox, and the means to connect to it as anybody."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.door = Doorkeeper(self.context)
        self.keys = KeyPair.generate()
        self.keyring = Keyring()
        self.door.guard(Role.WRITER, self.keyring)
        self.endpoint = f"ipc://{directory}/writer"
        self.inproc = f"inproc://{directory}/writer"
        self.mailbox = Mailbox()
        self.mailbox.open(
            self.context, [self.endpoint, self.inproc], self.keys, self.keyring, Role.WRITER
        )
        self._opened: list[Any] = []

    def peer(self, role: Role, endpoint: str | None = None) -> Mailbox:
        """Another mailbox that is connected to this one."""
        keys = KeyPair.generate()
        self.keyring.admit(keys.public, role)
        peer = Mailbox()
        peer.use(self.context, keys, role)
        peer.connect(Role.WRITER, endpoint or self.endpoint, self.keys.public)
        self._opened.append(peer)
        return peer

    def raw(self, role: Role | None, routing_id: bytes = b"") -> zmq.Socket[bytes]:
        """A bare socket: a peer that may say anything. Without a role its key is unknown."""
        keys = KeyPair.generate()
        if role is not None:
            self.keyring.admit(keys.public, role)
        socket: zmq.Socket[bytes] = self.context.socket(zmq.DEALER)
        socket.linger = 0
        if routing_id:
            socket.routing_id = routing_id
        guard_client(socket, keys, self.keys.public)
        socket.connect(self.endpoint)
        self._opened.append(socket)
        return socket

    def received(self, count: int) -> list[tuple[Role, Message]]:
        """The next ``count`` remote messages, however many batches they take."""
        found: list[tuple[Role, Message]] = []
        while len(found) < count:
            batch = self.mailbox.get().message
            assert isinstance(batch, Batch)
            found += [(peer.role, message) for peer, message in batch.received]
        return found

    def close(self) -> None:
        for opened in self._opened:
            opened.close()
        self.mailbox.close()
        self.door.close()
        self.context.destroy(linger=0)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path)
    yield hub
    hub.close()


@pytest.fixture
def settled(hub: Hub) -> Callable[[], None]:
    """Wait until what was sent before has been taken: a good message sent last has arrived."""

    def wait(socket: zmq.Socket[bytes] | None = None) -> None:
        if socket is None:
            say(hub.peer(Role.HOST), Hello(99))
        else:
            socket.send(encode(Hello(99)))
        assert hub.received(1)[0][1] == Hello(99)

    return wait


def say(peer: Mailbox, *messages: Message) -> None:
    """Send to the writer, in one payload."""
    for message in messages:
        assert peer.tell(Role.WRITER, message)
    peer.dispatch()


@pytest.mark.parametrize("transport", ["ipc", "inproc"])
def test_X1_the_role_comes_from_the_connection_and_the_reply_finds_its_way(hub, transport):
    peer = hub.peer(Role.CLIENT, hub.inproc if transport == "inproc" else None)
    say(peer, Hello(7))
    [(sender, message)] = hub.mailbox.get().message.received
    assert (sender.role, message) == (Role.CLIENT, Hello(7))
    assert hub.mailbox.send(sender.identity, Welcome(7, "writer", "life", 1))
    batch = peer.get().message
    assert batch.answers == [(Role.WRITER, Welcome(7, "writer", "life", 1))]


def test_messages_of_one_connection_keep_their_order(hub):
    peer = hub.peer(Role.HOST)
    say(peer, Hello(0))
    assert len(hub.received(1)) == 1
    for number in range(500):
        say(peer, Flush(number, "s"))
    total = hub.received(500)
    assert [message.rid for _, message in total] == list(range(500)), "in the order of sending"


def test_a_batch_is_all_that_lies_there(hub):
    """The writer commits everything it drained with one sync."""
    peer = hub.peer(Role.HOST, hub.inproc)
    for number in range(300):
        say(peer, Flush(number, "s"))
    batch = hub.mailbox.get().message
    assert len(batch.received) == 300


def test_what_was_told_leaves_with_the_next_wait_in_one_payload(hub):
    peer, socket = hub.peer(Role.HOST), hub.raw(Role.HOST)
    for number in range(3):
        peer.tell(Role.WRITER, Flush(number, "s"))
    peer.put(Envelope("local"))
    peer.get()
    assert hub.received(3) == [(Role.HOST, Flush(number, "s")) for number in range(3)]
    socket.send(encode(Hello(1)))
    [(sender, _)] = hub.mailbox.get().message.received
    for number in range(3):
        hub.mailbox.post(sender.identity, Welcome(number, "writer", "life", 1))
    hub.mailbox.dispatch()
    frame = socket.recv()
    assert len(decode_all(frame, Role.WRITER)) == 3


def test_what_was_posted_does_not_come_behind_what_was_sent_after_it(hub):
    peer = hub.peer(Role.HOST)
    say(peer, Hello(1))
    [(sender, _)] = hub.mailbox.get().message.received
    for number in range(10):
        hub.mailbox.post(sender.identity, Welcome(2 * number, "writer", "life", 1))
        assert hub.mailbox.send(sender.identity, Welcome(2 * number + 1, "writer", "life", 1))
    found: list[int] = []
    while len(found) < 20:
        found += [message.rid for _, message in peer.get().message.answers]
    assert found == list(range(20))


def test_what_waits_to_be_sent_together_is_bounded(hub):
    peer = hub.peer(Role.HOST)
    say(peer, Hello(1))
    hub.received(1)
    message = Append(1, "s", [draft("user/message", {"text": "x" * (BUNDLE // 4)})])
    for _ in range(40):
        peer.tell(Role.WRITER, message)
        assert peer._posted_bytes <= BUNDLE
    peer.dispatch()
    assert len(hub.received(40)) == 40


def test_a_reply_posted_to_somebody_who_is_gone_is_counted_and_the_others_get_theirs(hub):
    peer = hub.peer(Role.HOST)
    say(peer, Hello(1))
    [(sender, _)] = hub.mailbox.get().message.received
    hub.mailbox.post(b"\0gone", Hello(1))
    hub.mailbox.post(sender.identity, Welcome(1, "writer", "life", 1))
    hub.mailbox.dispatch()
    assert hub.mailbox.unroutable == 1
    assert peer.get().message.answers == [(Role.WRITER, Welcome(1, "writer", "life", 1))]


def test_X3_a_bundle_with_one_message_that_is_not_allowed_is_dropped_as_a_whole(hub, settled):
    peer, socket = hub.peer(Role.HOST), hub.raw(Role.ANSWERER)
    say(peer, Hello(0))
    hub.received(1)
    socket.send(bundle([encode(Hello(1)), encode(Append(1, "s", [])), encode(Hello(2))]))
    settled(socket)
    assert hub.mailbox.dropped == 1


def test_local_and_remote_messages_both_arrive_and_stop_ends_the_wait(hub):
    peer = hub.peer(Role.HOST, hub.inproc)
    say(peer, Hello(1))
    hub.mailbox.put(Envelope("local"))
    got = [hub.mailbox.get().message, hub.mailbox.get().message]
    assert got[0] == "local"
    assert [message for _, message in got[1].received] == [Hello(1)]


def test_a_local_message_of_another_thread_wakes_the_actor(hub):
    thread = threading.Timer(0.0, lambda: hub.mailbox.put(Envelope("from elsewhere")))
    thread.start()
    assert hub.mailbox.get().message == "from elsewhere"
    thread.join(PATIENCE)


def test_a_timer_ends_the_wait_with_an_empty_batch(hub):
    hub.mailbox.wake_at = 0.0
    batch = hub.mailbox.get().message
    assert isinstance(batch, Batch)
    assert not any(batch)


def test_a_descriptor_at_its_end_is_reported(hub):
    read, write = os.pipe()
    hub.mailbox.watch(read)
    os.close(write)
    assert hub.mailbox.get().message.fired == [read]
    hub.mailbox.unwatch(read)
    os.close(read)
    hub.mailbox.wake_at = 0.0
    assert hub.mailbox.get().message.fired == []


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"garbage"],
        [b"\xc1"],
        [encode(Hello(1)), b"one frame more"],
        [b"", encode(Hello(1))],
        [encode(Hello(1))[:-1]],
        [b"\x91" * 100_000],
    ],
    ids=["empty", "garbage", "no-msgpack", "two-frames", "empty-first", "cut", "nested"],
)
def test_X3_a_malformed_message_is_dropped_and_counted_and_the_mailbox_lives_on(
    hub, settled, frames
):
    socket = hub.raw(Role.HOST)
    socket.send_multipart(frames)
    settled(socket)
    assert hub.mailbox.dropped == 1


def test_X3_a_message_that_the_role_may_not_send_is_dropped_and_counted(hub, settled):
    socket = hub.raw(Role.ANSWERER)
    socket.send(encode(Append(1, "s", [])))
    settled(socket)
    assert hub.mailbox.dropped == 1


def test_X3_an_oversized_message_is_dropped_before_it_is_parsed(hub, settled):
    socket = hub.raw(Role.ANSWERER)
    socket.send(b"x" * (LIMITS[Role.ANSWERER] + 1))
    settled(socket)
    assert hub.mailbox.dropped == 1


def test_X1_X3_a_connection_that_chose_its_own_identity_is_not_believed(hub, settled):
    """It could be somebody else's in a later connection."""
    socket = hub.raw(Role.HOST, routing_id=b"writer")
    socket.send(encode(Hello(1)))
    socket.send(encode(Hello(2)))
    settled()
    while hub.mailbox.dropped < 2:
        hub.mailbox.wake_at = 0.0
        assert hub.mailbox.get().message.received == []
    assert hub.mailbox.dropped == 2


def test_X1_X3_an_inproc_connection_that_is_no_role_is_dropped(hub, settled):
    for name in (b"nobody#1", b"\xff#1"):
        socket = hub.context.socket(zmq.DEALER)
        socket.linger = 0
        socket.routing_id = name
        socket.connect(hub.inproc)
        socket.send(encode(Hello(1)))
        hub._opened.append(socket)
    settled()
    while hub.mailbox.dropped < 2:
        hub.mailbox.wake_at = 0.0
        hub.mailbox.get()
    assert hub.mailbox.dropped == 2


def test_X1_a_peer_without_a_known_key_is_refused_before_a_byte_of_it_is_parsed(hub, settled):
    socket = hub.raw(None)
    socket.send(encode(Hello(1)))
    monitored = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    assert monitored.poll(PATIENCE * 1000), "the handshake fails"
    settled()
    assert hub.mailbox.dropped == 0
    assert hub.keyring.refused >= 1
    socket.disable_monitor()


def test_X1_a_key_that_was_forgotten_no_longer_connects(hub, settled):
    keys = KeyPair.generate()
    hub.keyring.admit(keys.public, Role.WORKER)
    hub.keyring.forget(keys.public)
    assert hub.keyring.role(keys.public) is None
    assert not hub.keyring.callback("writer", keys.public)


def test_a_reply_to_somebody_who_is_gone_is_counted_and_not_silent(hub):
    assert not hub.mailbox.send(b"\0gone", Hello(1))
    assert hub.mailbox.unroutable == 1


def test_without_a_link_nothing_is_told(hub):
    peer = hub.peer(Role.HOST)
    assert peer.connected(Role.WRITER)
    peer.disconnect(Role.WRITER)
    assert not peer.tell(Role.WRITER, Hello(1))


def test_putting_into_a_closed_mailbox_does_no_harm():
    mailbox = Mailbox()
    mailbox.close()
    mailbox.put(Envelope("late"))
    assert not mailbox.empty()
