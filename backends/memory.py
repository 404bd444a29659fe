"""A complete backend whose logs live in memory, for tests and for trying things out.

It keeps every clause of L that does not speak of disks, and promises nothing beyond the end of its
process: a runtime takes it with ``durability="none"`` only (K7).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .codes import Code
from .errors import InterlockError, SessionError
from .event import Event, decode_line
from .fold import LogFold
from .header import Header, decode_header, encode_header
from .log import Item, SessionLog, commit_each
from .passes import Dropped
from .paths import session_dir_name

_NOWHERE = Path("/memory")


class _Session:
    """One session: its header and the lines of its events."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.lines: list[bytes] = []
        self.spills: dict[int, bytes] = {}
        self.open = True


class MemoryStore:
    """The lines of one log; a :class:`~.log.LogStore`."""

    def __init__(self, backend: MemoryBackend, session: _Session, *, published: bool) -> None:
        self._backend = backend
        self._session = session
        self._published = published
        self._failed: InterlockError | None = None
        self._opened_seq = len(session.lines) - 1

    @property
    def directory(self) -> Path:
        return _NOWHERE / session_dir_name(self._session.header.id)

    @property
    def path(self) -> Path:
        return self.directory / "log"

    @property
    def compressed(self) -> bool:
        return False

    @property
    def published(self) -> bool:
        return self._published

    @property
    def owed(self) -> bool:
        # There is no file: whoever reads asks the writer.
        return True

    @property
    def dropped(self) -> Dropped | None:
        return None

    @property
    def failed(self) -> InterlockError | None:
        return self._failed

    @property
    def opened_seq(self) -> int:
        return self._opened_seq

    def write(self, data: bytes, spills: Sequence[tuple[int, bytes]]) -> None:
        if self._failed is not None:
            raise self._failed
        if not self._published:
            self._failed = self._backend.publish(self._session)
            if self._failed is not None:
                raise self._failed
            self._published = True
        self._session.spills.update(spills)
        self._session.lines += data.splitlines(keepends=True)

    def mend(self) -> None:
        """Nothing in memory is ever torn."""

    def close(self) -> None:
        self._session.open = False


class MemoryBackend:
    """Sessions in memory; a :class:`~.backend.LogBackend`. Safe to use from several threads."""

    durability = "none"
    power_loss_durable = False
    fell_back: str | None = None
    group_commit = True
    needs_tending = False

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._mutex = threading.Lock()

    def create(self, header: Header) -> SessionLog:
        session_dir_name(header.id)
        try:
            decode_header(encode_header(header), source=f"session {header.id!r}")
        except SessionError as error:
            raise ValueError(error.message) from error
        with self._mutex:
            if header.id in self._sessions:
                raise _exists(header.id)
        store = MemoryStore(self, _Session(header), published=False)
        return SessionLog(header, store, LogFold(), -1, ())

    def open(self, session_id: str, *, wait: float = 0.0) -> SessionLog:
        del wait  # Both holders are in this process: who waits would keep the other from closing.
        with self._mutex:
            session = self._session(session_id)
            if session.open:
                raise SessionError(
                    Code.SESSION_LOCKED,
                    f"session {session_id!r} is open already; close it first",
                    session=session_id,
                )
            session.open = True
        fold, events = LogFold(), [decode_line(line) for line in session.lines]
        for event in events:
            fold.replay(event)
        store = MemoryStore(self, session, published=True)
        return SessionLog(session.header, store, fold, len(events) - 1, events)

    def commit(self, items: Sequence[Item]) -> Sequence[int | InterlockError]:
        return commit_each(items)

    def tend(self) -> bool:
        return False

    def list_ids(self) -> Sequence[str]:
        with self._mutex:
            return list(self._sessions)

    def events(self, session_id: str, from_seq: int = 0) -> Iterator[Event]:
        with self._mutex:
            lines = self._session(session_id).lines[from_seq:]
        return map(decode_line, lines)

    def close(self) -> None:
        """What is in memory stays there as long as this object."""

    def publish(self, session: _Session) -> SessionError | None:
        """Make a new session visible; return why not, if another one came first (L7)."""
        with self._mutex:
            if self._sessions.setdefault(session.header.id, session) is session:
                return None
        error = _exists(session.header.id)
        error.details["closed"] = True
        return error

    def _session(self, session_id: str) -> _Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionError(
                Code.SESSION_NOT_FOUND, f"no session {session_id!r} in memory", session=session_id
            )
        return session


def make(root: Path, options: Mapping[str, Any]) -> MemoryBackend:
    """For ``Runtime(backend="interlock.backends.memory:make", durability="none")``."""
    del root, options
    return MemoryBackend()


def _exists(session_id: str) -> SessionError:
    return SessionError(
        Code.SESSION_EXISTS,
        f"session {session_id!r} already exists; open it, or choose another id",
        session=session_id,
    )
