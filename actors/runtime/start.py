"""How the four owners are started: as processes, or as threads of this process (``inproc``)."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec
import pykka
import zmq

from ..keys import Doorkeeper, KeyPair
from ..owner import Owner, OwnerConfig, PeerAddress, Terminate
from ..roles import OWNERS, Role
from ..runtime_dir import RuntimeDirectory
from ..search_path import owners_path
from .config import RuntimeConfig


class Started(Protocol):
    """One life of an owner."""

    pid: int
    #: Becomes readable when the owner is ready; -1 where readiness comes by callback.
    ready_descriptor: int

    def read_ready(self) -> str:
        """The incarnation, once ready; empty where it ended before that."""

    def kill(self) -> None:
        """End it at once."""

    def reap(self) -> str:
        """How it ended, in words, once it has."""


@dataclass(frozen=True)
class Keys:
    """All keys of one runtime; in memory only."""

    owners: Mapping[Role, KeyPair]
    host: KeyPair
    answerer: KeyPair
    client: KeyPair

    @classmethod
    def generate(cls) -> Keys:
        owners = {role: KeyPair.generate() for role in OWNERS}
        return cls(owners, KeyPair.generate(), KeyPair.generate(), KeyPair.generate())

    def admitted(self, role: Role) -> dict[bytes, Role]:
        """Who may connect to the owner ``role`` from its start, and as what.

        Clients get keys of their own from the front desk; the one they all know opens that only.
        """
        admitted = {self.host.public: Role.HOST}
        if role in (Role.BROKER, Role.WRITER):
            admitted[self.answerer.public] = Role.ANSWERER
        if role is not Role.DISPATCHER:
            admitted[self.owners[Role.DISPATCHER].public] = Role.DISPATCHER
        return admitted


class Starter:
    """Starts lives of owners. Every life has an endpoint of its own, so that nothing that was meant
    for an ended one reaches its successor."""

    def __init__(self, config: RuntimeConfig, directory: RuntimeDirectory, keys: Keys) -> None:
        self._config, self._directory, self._keys = config, directory, keys
        # S6: found out once, before the first command could plant anything.
        self._search_path = owners_path(sys.path)
        self._lives: dict[Role, int] = {}
        self.addresses: dict[Role, PeerAddress] = {}
        #: Keys of the clients that are attached: the next life of an owner admits them.
        self.clients: set[bytes] = set()
        #: Where clients attach; ``inproc`` is for one process and has no desk.
        self.desk_endpoint: str | None = self._desk_endpoint()
        for role in OWNERS:
            self._new_address(role)

    def _desk_endpoint(self) -> str | None:
        match self._config.transport:
            case "tcp":
                return f"tcp://127.0.0.1:{_free_port()}"
            case "ipc":
                return self._directory.endpoint("host")
            case _:
                return None

    def _new_address(self, role: Role) -> None:
        life = self._lives[role] = self._lives.get(role, 0) + 1
        transport = self._config.transport
        if transport == "tcp":
            endpoint = f"tcp://127.0.0.1:{_free_port()}"
        elif transport == "inproc":
            endpoint = f"inproc://{self._directory.path.name}-{role}-{life}"
        else:
            endpoint = self._directory.endpoint(f"{role}-{life}")
        self.addresses[role] = PeerAddress(endpoint, self._keys.owners[role].public)

    def renew(self, role: Role) -> None:
        """Give the next life of ``role`` its endpoint."""
        self._new_address(role)

    def config(self, role: Role) -> OwnerConfig:
        endpoints = [self.addresses[role].endpoint]
        if self._config.transport == "inproc" and role in (Role.DISPATCHER, Role.BROKER):
            # Workers are processes, and answerers come from outside, also here.
            endpoints.append(self._directory.endpoint(f"{role}-{self._lives[role]}"))
        if self._config.transport == "tcp" and role is Role.BROKER:
            endpoints.append(self._directory.endpoint(f"{role}-{self._lives[role]}"))
        peers = {r: a for r, a in self.addresses.items() if r is not role}
        return OwnerConfig(
            role=role,
            endpoints=endpoints,
            keys=self._keys.owners[role],
            admitted=self._keys.admitted(role) | dict.fromkeys(self.clients, Role.CLIENT),
            peers=peers,
            host_pid=os.getpid(),
            root=str(self._config.root),
            runtime_dir=str(self._directory.path),
            options=self._config.owner_options(),
            sys_path=[path or os.getcwd() for path in sys.path],
        )

    def start_process(self, role: Role) -> OwnerProcess:
        return OwnerProcess(role, self.config(role), self._directory, self._search_path)

    def start_thread(
        self,
        role: Role,
        context: zmq.Context[zmq.Socket[bytes]],
        door: Doorkeeper,
        ready: Callable[[str], None],
        ended: Callable[[], None],
    ) -> OwnerThread:
        return OwnerThread(role, self.config(role), context, door, ready, ended)


class OwnerProcess:
    """An owner as ``python -m interlock.actors.<owner>``, in a session of its own."""

    def __init__(
        self,
        role: Role,
        config: OwnerConfig,
        directory: RuntimeDirectory,
        search_path: list[str],
    ) -> None:
        self._log_path = directory.path / f"{role}.log"
        environment = dict(os.environ) | {"PYTHONSAFEPATH": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(search_path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with os.fdopen(os.open(self._log_path, flags, 0o600), "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"interlock.actors.{role}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                pass_fds=(directory.lock_descriptor,),
                start_new_session=True,
            )
        assert self._process.stdin is not None  # noqa: S101 - asked for above
        assert self._process.stdout is not None  # noqa: S101
        self.pid = self._process.pid
        self.ready_descriptor = self._process.stdout.fileno()
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.msgpack.encode(config))
            self._process.stdin.close()

    def read_ready(self) -> str:
        assert self._process.stdout is not None  # noqa: S101
        line = self._process.stdout.readline().decode().strip()
        self._process.stdout.close()
        return line

    def kill(self) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def running(self) -> bool:
        return self._process.poll() is None

    def reap(self) -> str:
        status = self._process.wait()
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        last = self._last_words()
        return f"{how}: {last}" if last else how

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = self._log_path.read_text(errors="replace").strip().splitlines()
            return lines[-1] if lines else ""
        return ""


class OwnerThread:
    """An owner as a thread of this process: for tests and tiny embeddings, without keys (X1)."""

    pid = 0
    ready_descriptor = -1

    def __init__(
        self,
        role: Role,
        config: OwnerConfig,
        context: zmq.Context[zmq.Socket[bytes]],
        door: Doorkeeper,
        ready: Callable[[str], None],
        ended: Callable[[], None],
    ) -> None:
        module = importlib.import_module(f"interlock.actors.{role}.actor")
        actor: type[Owner] = getattr(module, f"{role.capitalize()}Actor")
        self._reference = actor.start(config, context, door, ready, ended)

    def read_ready(self) -> str:
        return ""

    def kill(self) -> None:
        with contextlib.suppress(pykka.ActorDeadError):
            self._reference.tell(Terminate())

    def reap(self) -> str:
        return "its thread has ended"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
