"""A session writer over real files, in virtual time."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

from interlock.actors.messages import (
    Append,
    CreateSession,
    Flush,
    SessionOpened,
)
from interlock.actors.roles import Role
from interlock.actors.writer.core import WriterCore
from interlock.backends.event import Draft
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log
from virtual import Network, VirtualPeer, VirtualPort


class WriterWorld:
    """A writer, its host and one open session ``s``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.network = Network()
        self.start("life-1")
        self.host = VirtualPeer(self.network, "host", Role.HOST)
        self.paths: dict[str, Path] = {}
        self._rid = 0

    def start(self, incarnation: str) -> None:
        self.backend = JsonlBackend(self.root)
        self.core: WriterCore = self.network.start(
            Role.WRITER,
            lambda port: WriterCore(port, self.backend, incarnation, port.end),  # type: ignore[arg-type]
            incarnation,
        )

    @property
    def port(self) -> VirtualPort:
        return self.network.owners[Role.WRITER].port

    @property
    def writes(self) -> int:
        return self.core.counters()["writes"]

    def rid(self) -> int:
        self._rid += 1
        return self._rid

    def create(self, session: str = "s", peer: VirtualPeer | None = None) -> Any:
        reply = (peer or self.host).ask(
            Role.WRITER, CreateSession(self.rid(), session, str(self.root))
        )
        if isinstance(reply, SessionOpened):
            self.paths[session] = Path(reply.path)
        return reply

    def say(self, *drafts: Draft, peer: VirtualPeer | None = None, **more: Any) -> Any:
        request = Append(self.rid(), more.pop("session", "s"), list(drafts), **more)
        return (peer or self.host).ask(Role.WRITER, request)

    def flush(self, session: str = "s") -> Any:
        return self.host.ask(Role.WRITER, Flush(self.rid(), session))

    def send(self, make: Any, *rest: Any) -> int:
        """Send a request without running the network; its rid."""
        rid = self.rid()
        self.host.say(Role.WRITER, make(rid, *rest))
        return rid

    def reply(self, rid: int) -> Any:
        found = [m for m in self.host.inbox if getattr(m, "rid", None) == rid]
        return found[0] if found else None

    def file(self, session: str = "s") -> Path:
        return self.paths[session]

    def stored(self, session: str = "s") -> list[str]:
        return [event.type for event in read_log(self.file(session)).events]


def disk_full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")
