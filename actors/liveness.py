"""Noticing that another process has ended: the end of a descriptor, never a heartbeat.

A stopped process (SIGSTOP) is not dead and is not reported as such.
"""

from __future__ import annotations

import os
import select
import sys


class Watch:
    """A descriptor that becomes readable when a process has ended."""

    def __init__(self, descriptor: int, kqueue: object | None = None) -> None:
        self.descriptor = descriptor
        self._kqueue = kqueue

    @classmethod
    def process(cls, pid: int) -> Watch | None:
        """Watch process ``pid``; ``None`` where it is gone already.

        The caller must know that ``pid`` is still the process it means: its own child that it has
        not reaped, its parent, or one that such a process has just named.
        """
        if sys.platform == "linux":
            try:
                return cls(os.pidfd_open(pid))
            except ProcessLookupError:
                return None
        return cls._kqueue_watch(pid)

    @classmethod
    def _kqueue_watch(cls, pid: int) -> Watch | None:
        queue = select.kqueue()  # type: ignore[attr-defined,unused-ignore]
        event = select.kevent(  # type: ignore[attr-defined,unused-ignore]
            pid,
            filter=select.KQ_FILTER_PROC,  # type: ignore[attr-defined,unused-ignore]
            flags=select.KQ_EV_ADD | select.KQ_EV_ONESHOT,  # type: ignore[attr-defined,unused-ignore]
            fflags=select.KQ_NOTE_EXIT,  # type: ignore[attr-defined,unused-ignore]
        )
        try:
            queue.control([event], 0)
        except ProcessLookupError:
            queue.close()
            return None
        return cls(queue.fileno(), queue)

    def close(self) -> None:
        if self._kqueue is not None:
            self._kqueue.close()  # type: ignore[attr-defined]
        else:
            os.close(self.descriptor)
