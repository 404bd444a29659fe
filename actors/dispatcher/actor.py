"""The shell of the tool dispatcher: worker processes, and which life of the writer is connected."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys

import msgspec

from ..keys import KeyPair
from ..mailbox import Peer
from ..messages import Message, RegisterTools
from ..owner import Core, Owner
from ..roles import Role
from ..tools.environment import worker_environment
from ..worker.config import WorkerConfig
from .core import DispatcherCore


class DispatcherActor(Owner):
    """Owns the calls of one runtime; see
    :class:`~interlock.actors.dispatcher.core.DispatcherCore`.
    """

    asks = frozenset({Role.WRITER, Role.BROKER, Role.LAUNCHER})

    def make_core(self) -> Core:
        options = self.config.options
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._worker_env: list[str] = []
        self._sys_path = list(sys.path)
        self._dispatcher = DispatcherCore(
            self,
            self,
            self.end,
            incarnation=self.incarnation,
            approval=str(options["approval"]),
            approval_timeout=float(options["approval_timeout"]),
            sandbox=str(options["sandbox"]),
            workers=int(options["workers"]),
        )
        return self._dispatcher

    def to_core(self, peer: Peer, message: Message) -> None:
        if isinstance(message, RegisterTools):
            self._worker_env, self._sys_path = message.worker_env, message.sys_path
        super().to_core(peer, message)

    # Spawner.

    def spawn(self) -> tuple[int, bytes]:
        """Start a worker in a session and process group of its own, with a clean environment
        (X5).
        """
        keys = KeyPair.generate()
        self.keyring.admit(keys.public, Role.WORKER)
        endpoint = next(e for e in self.config.endpoints if not e.startswith("inproc:"))
        config = WorkerConfig(
            endpoint,
            keys,
            self.config.keys.public,
            os.getpid(),
            self._sys_path,
            str(self.config.options["cwd"]),
        )
        process = subprocess.Popen(
            [sys.executable, "-m", "interlock.actors.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=worker_environment(os.environ, self._worker_env) | {"PYTHONSAFEPATH": "1"},
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.msgpack.encode(config))
            process.stdin.close()
        self._processes[process.pid] = process
        self.watch_process(process.pid, lambda: self._worker_ended(process.pid, keys.public))
        return process.pid, keys.public

    def kill(self, pid: int) -> None:
        if pid in self._processes:  # not reaped yet, so the pid is still its own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _worker_ended(self, pid: int, key: bytes) -> None:
        process = self._processes.pop(pid)
        # What its bodies started in its group ends with it, whatever ended the worker (P5, P6).
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        status = process.wait()
        self.keyring.forget(key)
        self.mailbox.forget(key)
        self._dispatcher.worker_exited(key, _ended(status))

    def on_stop(self) -> None:
        for pid in list(self._processes):
            self.kill(pid)
        super().on_stop()


def _ended(status: int) -> str:
    """How a worker's end is told."""
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = str(-status)
        return f"the worker process that ran it was ended by signal {-status} ({name})"
    return f"the worker process that ran it ended with exit status {status}"
