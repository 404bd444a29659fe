"""One open session in the writer: its window, its writes under way, and who waits for them."""

from __future__ import annotations

from dataclasses import dataclass, field

from interlock.backends.log import SessionLog

from ..fibers import Promise
from ..port import Timer
from .streams import Streams


@dataclass(slots=True)
class Waiter:
    """Somebody who waits until the log is durable up to ``target``."""

    target: int
    promise: Promise[int]


@dataclass(slots=True, eq=False)
class OpenSession:
    """What the writer keeps for one session; touched in the writer's thread only."""

    log: SessionLog
    #: The key of the connection that opened it: only that one and the dispatcher append.
    opener: bytes
    opener_identity: bytes
    created_at: int
    streams: Streams = field(default_factory=Streams)
    window: Timer | None = None
    #: The window has run out or somebody asked for a flush: write as soon as possible.
    due: bool = False
    writing: bool = False
    waiters: list[Waiter] = field(default_factory=list)
    #: Holds once the log is closed and its lock is free.
    released: Promise[None] = field(default_factory=Promise)
    closing: Promise[int] | None = None
    writer_noted: bool = False

    @property
    def last_seq(self) -> int:
        return self.log.fold.next_seq - 1
