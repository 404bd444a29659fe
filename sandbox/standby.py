"""Prepared launcher processes, seen from the host: taken when a command is to be run.

Starting an interpreter takes 12 ms and more, so the processes that confine a command are made
before it is known (`interlock.sandbox.prepared.nursery` tells their life). The first `take` of a
process starts them; they end with the process, or on `close`.
"""

import _socket
import atexit
import contextlib
import os
import select
import subprocess
import sys
import threading
from dataclasses import dataclass

from .launcher import start_guardian
from .policy import base_environment
from .prepared.kernel import pair, receive, send

#: Pairs kept ready. One is enough for commands one after the other; two overlap with its renewal.
READY = 2


@dataclass
class Standby:
    """A supervisor and its child, waiting for one command.

    pid: the supervisor's. ended: readable once it has ended; `close` gives all of them back.
    """

    supervisor: _socket.socket
    child: _socket.socket
    ended: int
    pid: int

    def close(self) -> None:
        """Give up the descriptors. A pair that was not used ends."""
        self.supervisor.close()
        self.child.close()
        if self.ended >= 0:
            os.close(self.ended)
            self.ended = -1


class Nursery:
    """The prepared processes of one host process. Any thread may take from it."""

    def __init__(self) -> None:
        self.owner = (os.getpid(), os.geteuid())
        self._lock = threading.Lock()
        #: Pairs that were asked for and not taken yet.
        self._ready = 0
        self._control, end = pair()
        argv, fds = start_guardian(end.fileno())
        try:
            self._guardian = subprocess.Popen(
                argv,
                pass_fds=(*fds, end.fileno()),
                env=base_environment(None),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        except BaseException:
            self._control.close()
            raise
        finally:
            end.close()
            for fd in fds:
                os.close(fd)
        self._ask(READY)

    @property
    def pid(self) -> int:
        """The guardian's process id."""
        return self._guardian.pid

    def take(self) -> Standby:
        """A pair. Raises OSError where the nursery is gone."""
        with self._lock:
            if self._ready == 0:
                self._ask(1)
            message, fds = receive(self._control)
            self._ready -= 1
        if len(fds) != 3:
            raise ProcessLookupError(3, "the prepared launcher is gone")
        to_supervisor, to_child = (_socket.socket(fileno=fd) for fd in fds[:2])
        return Standby(to_supervisor, to_child, fds[2], int(message))

    def renew(self) -> None:
        """Have as many pairs made as are missing: after a command, not while one starts."""
        with self._lock, contextlib.suppress(OSError):
            if self._ready < READY:
                self._ask(READY - self._ready)

    def is_alive(self) -> bool:
        """Whether it still makes pairs."""
        poller = select.poll()
        poller.register(self._control, 0)
        return not poller.poll(0) and self._guardian.poll() is None

    def close(self) -> None:
        """End every prepared process and every command of theirs, and wait for that."""
        self._control.close()
        if self.owner[0] == os.getpid():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guardian.wait(10)

    def _ask(self, number: int) -> None:
        send(self._control, b"+" * number)
        self._ready += number


_lock = threading.Lock()
_nursery: Nursery | None = None


def possible() -> bool:
    """Whether this system has what prepared processes need."""
    return sys.platform == "linux" and hasattr(os, "pidfd_open")


def prepare() -> Nursery:
    """Start the prepared processes of this process, unless that was done before.

    Worth calling early in a program whose first command is to start quickly: it returns before
    they are ready. Raises OSError where they cannot be started.
    """
    global _nursery  # noqa: PLW0603 one for each process
    with _lock:
        if _nursery is None or _nursery.owner != (os.getpid(), os.geteuid()):
            _nursery = Nursery()
        return _nursery


def take() -> Standby:
    """A prepared pair of this process. Raises OSError where none can be had."""
    return prepare().take()


def forget_dead() -> bool:
    """Have what was killed replaced next time; whether it was. What lives is left alone."""
    nursery = _nursery
    if nursery is None or nursery.is_alive():
        return False
    _forget(nursery)
    return True


def renew() -> None:
    """Replace what was taken."""
    if _nursery is not None and _nursery.owner[0] == os.getpid():
        _nursery.renew()


def _forget(nursery: Nursery) -> None:
    """Start anew next time: what there was has ended."""
    global _nursery  # noqa: PLW0603 one for each process
    with _lock:
        if _nursery is nursery:
            _nursery = None
    nursery.close()


def close() -> None:
    """End this process's prepared processes; the next command starts new ones."""
    nursery = _nursery
    if nursery is not None:
        _forget(nursery)


atexit.register(close)
