"""How long jobs that are meant to be brief have kept their thread waiting of late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds that a brief job may wait beyond the time that it computes. After one that waits longer
#: the next ones are not brief, until one has been seen to be.
LIMIT = 0.005


class Pace:
    """Decides whether brief jobs may run in a thread that others wait for. One job at a time."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        #: Whether the last job waited for longer than the limit.
        self.is_slow = False

    def run(self, job: Callable[[], T]) -> T:
        """Run ``job`` in this thread and note whether it waited for longer than it computed."""
        begin, before = time.monotonic(), time.thread_time()
        try:
            return job()
        finally:
            worked = time.thread_time() - before
            waited = time.monotonic() - begin - worked
            self.is_slow = waited > worked + self._limit
