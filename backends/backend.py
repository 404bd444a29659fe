"""What the session writer asks of a place where logs live; :mod:`.jsonl` is the shipped one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from .errors import InterlockError
from .event import Event
from .header import Header
from .log import Item, SessionLog


class LogBackend(Protocol):
    """A store of session logs that keeps the clauses L.

    The writer calls ``create``, ``open``, ``commit``, ``tend`` and ``close`` on threads of its
    pool: ``create`` and ``open`` several at a time, ``commit`` one at a time where
    ``group_commit`` is true and one at a time for each log otherwise.
    """

    @property
    def durability(self) -> str:
        """What a finished commit promises, as each log says of its writer."""

    @property
    def power_loss_durable(self) -> bool:
        """Whether a finished commit survives power loss (K7)."""

    @property
    def fell_back(self) -> str | None:
        """Why it promises less than was asked for, in words, or None."""

    @property
    def group_commit(self) -> bool:
        """Whether one commit serves many logs."""

    @property
    def needs_tending(self) -> bool:
        """Whether :meth:`tend` has work. No I/O; the writer's thread."""

    def create(self, header: Header) -> SessionLog:
        """Return a new, empty log that nothing shows yet (L7).

        ``SessionError``: ``SESSION_ID_INVALID``, ``SESSION_EXISTS``.
        """

    def open(self, session_id: str, *, wait: float = 0.0) -> SessionLog:
        """Return a log for writing, waiting up to ``wait`` seconds for its lock (L11).

        ``SessionError``: ``SESSION_NOT_FOUND``, ``SESSION_LOCKED``, ``SESSION_CORRUPT``,
        ``SESSION_SOURCE_CHANGED``, ``SESSION_FORMAT_UNSUPPORTED``; ``LogError``:
        ``LOG_WRITE_FAILED``.
        """

    def commit(self, items: Sequence[Item]) -> Sequence[int | InterlockError]:
        """Make batches durable; for each its last durable seq, or why it is not (L4, L6, L17)."""

    def tend(self) -> bool:
        """Do a bounded share of housekeeping; tell whether more is left. ``OSError``."""

    def list_ids(self) -> Sequence[str]:
        """Return the ids of all sessions, in any order (L17: a bad one hides no other)."""

    def events(self, session_id: str, from_seq: int = 0) -> Iterator[Event]:
        """Yield a session's events without its lock, also while it is being written.

        ``SessionError``: ``SESSION_NOT_FOUND``, ``SESSION_CORRUPT``,
        ``SESSION_FORMAT_UNSUPPORTED``.
        """

    def close(self) -> None:
        """Leave nothing pending. The logs are closed before."""
