"""How long jobs that are meant to be brief have kept their thread waiting of late."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

#: Seconds that one brief job may wait for the disk; one that waits longer is not called brief again
#: until another has been seen not to.
LIMIT = 0.005


class Pace:
    """Decides whether brief jobs may run in a thread that others wait for. One job at a time."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        #: Whether the last job waited for longer than the limit.
        self.is_slow = False

    def run(self, job: Callable[[], T]) -> T:
        """Run ``job`` in this thread and note how long it waited; its own work does not count."""
        begin, worked = time.monotonic(), time.thread_time()
        try:
            return job()
        finally:
            waited = (time.monotonic() - begin) - (time.thread_time() - worked)
            self.is_slow = waited > self._limit
