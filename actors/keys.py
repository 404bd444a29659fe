"""Keys, and the door that admits only known ones (X1).

Every connection is authenticated with CURVE. A :class:`Keyring` says which public keys are known
and which role each gives; a :class:`Doorkeeper` answers ZeroMQ's authentication requests (ZAP)
from it on a thread of its own, so that a handshake never waits for a busy actor.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
import threading
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import zmq
from zmq.auth.base import Authenticator
from zmq.utils import z85

from .roles import Role

_log = logging.getLogger(__name__)


class KeyPair(msgspec.Struct, frozen=True, array_like=True):
    """One CURVE key pair, Z85-encoded (40 bytes each). It lives in memory and in pipes only."""

    public: bytes
    secret: bytes

    @classmethod
    def generate(cls) -> KeyPair:
        public, secret = zmq.curve_keypair()
        return cls(public, secret)


class ClientKey(NamedTuple):
    """What a program must know to attach to a runtime: its key pair, and whom it talks to (X4)."""

    keys: KeyPair
    host_public: bytes

    def text(self) -> str:
        """As one word that any command line, file name or variable can carry."""
        parts = (self.keys.public, self.keys.secret, self.host_public)
        return base64.urlsafe_b64encode(b"".join(map(z85.decode, parts))).decode()

    @classmethod
    def parse(cls, text: str) -> ClientKey:
        """Read what :meth:`text` wrote; ``ValueError`` where it is something else."""
        try:
            raw = base64.b64decode(text.strip(), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != 3 * 32:
            raise ValueError("this is no client key; take runtime.client_key of the runtime")
        public, secret, host = (z85.encode(raw[i : i + 32]) for i in (0, 32, 64))
        return cls(KeyPair(public, secret), host)


class Keyring:
    """Which public keys are admitted, and the role of each. Safe to use from any thread."""

    def __init__(self, keys: Mapping[bytes, Role] | None = None) -> None:
        self._keys: dict[bytes, Role] = dict(keys or {})
        self.refused = 0

    def admit(self, public: bytes, role: Role) -> None:
        self._keys[public] = role

    def forget(self, public: bytes) -> None:
        self._keys.pop(public, None)

    def role(self, public: bytes) -> Role | None:
        return self._keys.get(public)

    def callback(self, _domain: str, key: bytes) -> bool:
        """The shape in which pyzmq's authenticator asks about a key."""
        known = key in self._keys
        if not known:
            self.refused += 1
        return known


class Doorkeeper:
    """Answers the authentication requests of one ZeroMQ context, on a thread of its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._authenticator = Authenticator(context, log=_log)
        self._authenticator.start()
        self._stop_read, self._stop_write = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="interlock-door", daemon=True)
        self._thread.start()

    def guard(self, domain: str, keyring: Keyring) -> None:
        """Let ``keyring`` decide for sockets whose ZAP domain is ``domain``."""
        self._authenticator.configure_curve_callback(domain, credentials_provider=keyring)

    def close(self) -> None:
        os.write(self._stop_write, b"\0")
        self._thread.join(timeout=2.0)
        os.close(self._stop_write)
        os.close(self._stop_read)

    def _serve(self) -> None:
        socket = self._authenticator.zap_socket
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(self._stop_read, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll())
                if self._stop_read in ready:
                    return
                request = socket.recv_multipart()
                handling = self._authenticator.handle_zap_message(request)
                try:
                    # The library's handler is a coroutine that awaits nothing with our keyring.
                    handling.send(None)
                except StopIteration:
                    continue
        except zmq.ContextTerminated:
            return
        finally:
            self._authenticator.stop()


def guard_server(socket: zmq.Socket[bytes], keys: KeyPair, domain: str) -> None:
    """Make ``socket`` (not yet bound) demand CURVE from whoever connects."""
    socket.curve_server = True
    socket.curve_secretkey = keys.secret
    socket.curve_publickey = keys.public
    socket.zap_domain = domain.encode()
    # X1: without a doorkeeper nobody gets in (the default would let everybody in).
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def guard_client(socket: zmq.Socket[bytes], keys: KeyPair, server_public: bytes) -> None:
    """Make ``socket`` (not yet connected) prove ``keys`` to the holder of ``server_public``."""
    socket.curve_secretkey = keys.secret
    socket.curve_publickey = keys.public
    socket.curve_serverkey = server_public
