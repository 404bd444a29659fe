"""The logic under :class:`Runtime` and :class:`AsyncRuntime`: starting, sessions, ending."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import zmq
from interlock.backends.disk import OsDisk
from interlock.backends.files import make_directories

from ..errors import RuntimeFailureError
from ..keys import ClientKey, Doorkeeper
from ..messages import (
    Message,
    RegisterTools,
    Stopped,
)
from ..roles import OWNERS, Role
from ..runtime_dir import AnswererKey, RuntimeDirectory, RuntimeInfo
from ..tools.spec import ToolSpec
from .bodies import HostBodies
from .config import RuntimeConfig
from .connected import ConnectedCore
from .desk import Setting
from .flow import Flow, in_thread, run_sync
from .host import HostActor
from .start import Keys, Starter

#: Seconds that an orderly end may take in all before processes are killed.
CLOSE_TIMEOUT = 30.0
#: The same when the user pressed Ctrl-C.
INTERRUPT_TIMEOUT = 1.2
#: The same where it had not even started.
START_TIMEOUT = 0.2


class RuntimeCore(ConnectedCore):
    """One running runtime in this process."""

    def __init__(
        self, config: RuntimeConfig, loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        self.config = config
        #: Owners that had to be killed at the end, and sessions that could not be flushed (L16).
        self.unsettled: list[Role] = []
        self.unwritten: dict[str, str] = {}
        self._keys = Keys.generate()
        # S6: what must be hidden from commands has to be there before the first of them.
        # L7: directories that are made above it are the user's own as well, whatever the umask.
        make_directories(config.root, OsDisk())
        self._directory = RuntimeDirectory.create()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._door = Doorkeeper(self._context)
        self._starter = Starter(config, self._directory, self._keys)
        self._publishing = threading.Lock()
        made: list[HostActor] = []
        self._reference = HostActor.start(
            self._starter,
            self._keys,
            self._context,
            self._door,
            self._registration(),
            config.answerers,
            Setting(str(config.root), config.approval, [t.spec for t in config.tools.values()]),
            made.append,
            threads=config.transport == "inproc",
        )
        [self._host] = made
        super().__init__(self._host)
        self._bodies = HostBodies(config, self._host.tell)
        if loop is not None:
            self._bodies.use_loop(loop)
        self._host.told = self._take
        self._host.owner_lost = self._lost
        self._host.broker_moved = self._broker_moved
        self._started_ms = time.time_ns() // 1_000_000

    def _lost(self, role: Role) -> None:
        if role is Role.DISPATCHER:
            self._bodies.dispatcher_lost()
        elif role is Role.BROKER:
            self._bodies.broker_lost()
        self._owner_lost(role)

    def _registration(self) -> RegisterTools:
        config = self.config
        return RegisterTools(
            0,
            list(config.wire_tools),
            bool(config.gates),
            bool(config.guards),
            bool(config.hooks),
            list(config.worker_env),
            [path or os.getcwd() for path in sys.path],
            *config.pieces,
        )

    # Starting.

    def started(self) -> Flow[None]:
        """Wait until every owner is ready and knows the tools."""
        atexit.register(self.close_now)
        try:
            yield self._host.ready
        except BaseException:
            # Nothing is recorded yet, so nobody needs time to settle anything.
            yield from self.closed(grace=0.0, timeout=START_TIMEOUT)
            raise
        self._publish()

    def _broker_moved(self) -> None:
        """F4: answerers that come from outside find the new life of the broker (host's thread)."""
        if self._host.ready.done() and not self._closed:
            self._publish()

    def _publish(self) -> None:
        with self._publishing:  # the starting thread and the host's may both have news
            self._publish_now()

    def _publish_now(self) -> None:
        broker = self._starter.config(Role.BROKER).endpoints[-1]
        info = RuntimeInfo(
            os.getpid(),
            str(self.config.root),
            self._started_ms,
            broker,
            self._keys.owners[Role.BROKER].public.decode(),
        )
        answerer = self._keys.answerer
        self._directory.publish(
            info, AnswererKey(answerer.public.decode(), answerer.secret.decode())
        )

    @property
    def directory(self) -> Path:
        return self._directory.path

    # What comes in without being asked for (the host's thread).

    def _take(self, role: Role, message: Message) -> None:
        if not self._told(role, message):
            self._bodies.take(message)

    @property
    def root(self) -> Path:
        return self.config.root

    @property
    def tools(self) -> list[ToolSpec]:
        return [tool.spec for tool in self.config.tools.values()]

    @property
    def default_policy(self) -> str:
        return self.config.approval

    @property
    def address(self) -> str:
        address = self._starter.desk_endpoint
        if address is None:
            raise ValueError(
                "an inproc runtime is for this process alone; one that others attach to is made "
                'with transport="ipc" or "tcp"'
            )
        return address

    @property
    def client_key(self) -> str:
        return ClientKey(self._keys.client, self._keys.host.public).text()

    def stats(self) -> Flow[dict[str, Any]]:
        counters = yield from super().stats()
        counters["host"] = yield self._host.counters()
        return counters

    # Ending.

    def closed(self, *, grace: float, timeout: float) -> Flow[dict[str, int]]:
        """L16: settle and flush everything and end; up to which ``seq`` each session is durable."""
        if self._closed or self._connection.forked:
            return {}
        self._closed = True
        atexit.unregister(self.close_now)
        deadline = time.monotonic() + timeout
        durable: dict[str, int] = {}
        try:
            stopped: dict[Role, Stopped | None] = yield self._host.shut_down(grace, timeout)
        except RuntimeFailureError:
            self.unsettled = list(OWNERS)  # the host's actor has failed; what it started is killed
        else:
            writer = stopped.get(Role.WRITER)
            durable = dict(writer.durable) if writer is not None else {}
            self._report(stopped)
        finally:
            yield in_thread(lambda: self._end(deadline))
        return durable

    def close_now(self) -> None:
        """What remains to do when the program ends without closing the runtime."""
        with contextlib.suppress(Exception):
            run_sync(self.closed(grace=0.0, timeout=INTERRUPT_TIMEOUT))

    def _report(self, stopped: dict[Role, Stopped | None]) -> None:
        self.unsettled = [role for role, word in stopped.items() if word is None]
        writer = stopped.get(Role.WRITER)
        self.unwritten = dict(writer.failed) if writer is not None else {}

    def _end(self, deadline: float) -> None:
        """Close what this process holds; nothing here waits without a bound."""
        for session in list(self._sessions.values()):
            session.end(None)
        self._bodies.close()
        self._host.finish(max(0.1, deadline - time.monotonic()))
        with contextlib.suppress(Exception):
            self._reference.stop(block=False)
            self._host.ended.result(timeout=2.0)
        self._door.close()
        self._context.destroy(linger=0)
        self._directory.close()
