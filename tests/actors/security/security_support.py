"""Those who try: connections with any keys, identity and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq
from interlock.actors import Runtime
from interlock.actors.keys import KeyPair, guard_client
from interlock.actors.messages import Attach, Attached, Message
from interlock.actors.roles import Role
from interlock.actors.wire import decode_all, encode


class Stranger:
    """A connection of somebody to the owner ``role`` of ``runtime``."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        runtime: Runtime,
        role: Role,
        keys: KeyPair | None,
        identity: bytes | None = None,
    ) -> None:
        self.role = role
        self._heard: list[Message] = []
        starter = runtime._core._starter
        if role is Role.HOST:
            endpoint, public = runtime.address, keys_of(runtime).host.public
        else:
            endpoint, public = starter.addresses[role].endpoint, starter.addresses[role].public
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.linger = 0
        if identity is not None:
            self.socket.routing_id = identity
        if keys is not None:
            guard_client(self.socket, keys, public)
        self.endpoint = endpoint
        self.socket.connect(endpoint)

    def say(self, *frames: bytes | Message) -> None:
        """Send, where there is still a way: the owner may have shown the door already."""
        parts = [encode(f) if isinstance(f, Message) else f for f in frames]
        if self.socket.poll(1000, zmq.POLLOUT):
            self.socket.send_multipart(parts)

    def hear(self, timeout: float = 20.0) -> Any:
        """The next message of the owner."""
        if not self._heard:
            assert self.socket.poll(int(timeout * 1000)), f"the {self.role} did not answer"
            self._heard += decode_all(self.socket.recv(), self.role)
        return self._heard.pop(0)

    def ask(self, message: Message) -> Any:
        self.say(message)
        return self.hear()

    def close(self) -> None:
        self.socket.close(linger=0)


def client_keys(connect: Callable[..., Stranger], runtime: Runtime) -> KeyPair:
    """Attach as a program that has the client key, and get the keys that it is given."""
    one = connect(runtime, Role.HOST, keys_of(runtime).client)
    attached = one.ask(Attach(1))
    assert isinstance(attached, Attached)
    return KeyPair(attached.public_key, attached.secret_key)


def keys_of(runtime: Runtime) -> Any:
    """All keys of a runtime, as its own process has them in memory."""
    return runtime._core._keys


def counted(runtime: Runtime, role: Role, counter: str) -> Callable[[], int]:
    """Reads one counter of one owner, as ``stats`` shows it."""

    def read() -> int:
        value: int = runtime.stats()[role][counter]
        return value

    return read
