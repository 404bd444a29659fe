"""Those who try: connections with any keys, identity and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import zmq
from interlock.actors import Runtime
from interlock.actors.keys import KeyPair, guard_client
from interlock.actors.messages import Message
from interlock.actors.roles import Role
from interlock.actors.wire import decode, encode


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
        address = runtime._core._starter.addresses[role]
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.linger = 0
        if identity is not None:
            self.socket.routing_id = identity
        if keys is not None:
            guard_client(self.socket, keys, address.public)
        self.socket.connect(address.endpoint)

    def say(self, *frames: bytes | Message) -> None:
        self.socket.send_multipart([encode(f) if isinstance(f, Message) else f for f in frames])

    def hear(self, timeout: float = 20.0) -> Any:
        """The next message of the owner."""
        assert self.socket.poll(int(timeout * 1000)), f"the {self.role} did not answer"
        return decode(self.socket.recv(), self.role)

    def ask(self, message: Message) -> Any:
        self.say(message)
        return self.hear()

    def close(self) -> None:
        self.socket.close(linger=0)


def keys_of(runtime: Runtime) -> Any:
    """All keys of a runtime, as its own process has them in memory."""
    return runtime._core._keys


def counted(runtime: Runtime, role: Role, counter: str) -> Callable[[], int]:
    """Reads one counter of one owner, as ``stats`` shows it."""

    def read() -> int:
        value: int = runtime.stats()[role][counter]
        return value

    return read
