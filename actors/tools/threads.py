"""Threads that start when there is work and end when there is none for a while."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

_log = logging.getLogger(__name__)

#: An idle thread waits this long for more work; seconds.
IDLE = 10.0


class Threads:
    """A pool of daemon threads: a thread that never returns keeps nobody from leaving.

    ``submit`` hands a function to an idle thread, or starts one. With ``limit`` threads busy it
    queues; without a limit it never does, which is what bodies need that may block for minutes.

    :param name: what the threads' names begin with.
    :param limit: the most threads at once; ``None``: as many as there is work.
    :param idle: seconds after which an idle thread ends.
    """

    def __init__(self, name: str, limit: int | None = None, idle: float = IDLE) -> None:
        self._name = name
        self._limit = limit
        self._idle_time = idle
        self._work: deque[Callable[[], None]] = deque()
        self._ready = threading.Condition()
        self._idle = 0
        self._count = 0
        self._started = 0
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Run ``work`` on a thread. What it raises is only logged.

        :raises RuntimeError: the pool is closed, or the system gives no more threads.
        """
        with self._ready:
            if self._closed:
                raise RuntimeError(f"the threads {self._name} are closed")
            self._work.append(work)
            if self._idle >= len(self._work):
                self._ready.notify()
                return
            if self._limit is not None and self._count >= self._limit:
                return  # the next thread that is done takes it
            try:
                self._start_one()
            except RuntimeError:
                # Behind a limit a busy thread will take it; bodies must not wait for each other.
                if self._limit is None or not self._count:
                    self._work.pop()
                    raise

    def close(self) -> None:
        """Let idle threads end, and the busy ones after their work. Does not wait."""
        with self._ready:
            self._closed = True
            self._ready.notify_all()

    @property
    def count(self) -> int:
        """How many threads there are, busy or idle."""
        with self._ready:
            return self._count

    def _start_one(self) -> None:
        self._started += 1
        thread = threading.Thread(
            target=self._run, name=f"{self._name}-{self._started}", daemon=True
        )
        thread.start()
        self._count += 1

    def _run(self) -> None:
        while True:
            work = self._next()
            if work is None:
                return
            try:
                work()
            except BaseException:
                _log.exception("work on a thread of %s raised", self._name)
            del work  # an idle thread keeps nothing of its last body alive

    def _next(self) -> Callable[[], None] | None:
        with self._ready:
            self._idle += 1
            try:
                self._ready.wait_for(lambda: self._work or self._closed, self._idle_time)
                if self._work:
                    return self._work.popleft()
                self._count -= 1
                return None
            finally:
                self._idle -= 1
