"""How a confined command's first process is started, watched and ended: two ways, one protocol."""

import contextlib
import os
import signal
import subprocess
from typing import Protocol

from . import standby
from .confined import Confined
from .prepared.kernel import send
from .sealed import sealed

#: Standard input, output and error of a command: descriptors for it, closed once it has them.
Streams = tuple[int, int, int]


class Runner(Protocol):
    """The process that a command runs below. Used in the thread that started it."""

    pid: int
    #: Becomes readable when it has ended, where the system has such a thing.
    ended_fd: int | None

    def ended(self) -> bool:
        """Whether it has ended."""

    def code(self) -> int | None:
        """Its exit status, negative for a signal; None where that is not known (yet)."""

    def ask(self) -> None:
        """Have it send the command SIGTERM."""

    def end(self) -> None:
        """Have it end the command and all it started, and tell."""

    def kill(self) -> None:
        """End it at once; what it started ends with it."""

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it has ended."""

    def close(self) -> None:
        """Give back descriptors, once it has ended."""


class PopenRunner:
    """A process of its own, started here."""

    def __init__(self, confined: Confined, streams: Streams) -> None:
        self._confined = confined
        self._process = subprocess.Popen(
            confined.argv,
            env=confined.env,
            cwd=confined.cwd,
            pass_fds=confined.pass_fds,
            stdin=streams[0],
            stdout=streams[1],
            stderr=streams[2],
            start_new_session=True,
        )
        confined.release()
        self.pid = self._process.pid
        self.ended_fd = os.pidfd_open(self.pid) if hasattr(os, "pidfd_open") else None

    def ended(self) -> bool:
        return self._process.poll() is not None

    def code(self) -> int | None:
        return self._process.returncode

    def ask(self) -> None:
        with contextlib.suppress(OSError):
            self._process.terminate()  # the supervisor hands it on

    def end(self) -> None:
        self._confined.let_go()
        if self._confined.backend in ("bwrap", "none"):
            self.kill()

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._process.kill()

    def wait(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self.ended()

    def close(self) -> None:
        self._process.wait()
        if self.ended_fd is not None:
            os.close(self.ended_fd)
            self.ended_fd = None


class PreparedRunner:
    """A supervisor that was prepared before (`standby`)."""

    def __init__(self, confined: Confined, streams: Streams, pair: standby.Standby) -> None:
        errand = confined.errand
        assert errand is not None  # noqa: S101 the caller looked
        self._pair = pair
        self.pid = pair.pid
        self.ended_fd: int | None = pair.ended
        self._over = False
        told = sealed("interlock-errand", errand.described())
        try:
            send(pair.supervisor, b"watch", [told, confined.status_end])
            send(pair.child, b"become", [told, *streams, *errand.keep])
        except BaseException:
            pair.close()
            raise
        finally:
            os.close(told)
        confined.release()

    def ended(self) -> bool:
        if not self._over and self.ended_fd is not None:
            self._over = _readable(self.ended_fd)
        return self._over

    def code(self) -> int | None:
        return None

    def ask(self) -> None:
        self._say(b"ask")

    def end(self) -> None:
        self._say(b"end")

    def kill(self) -> None:
        if self.ended_fd is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.ended_fd, signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        if not self._over and self.ended_fd is not None:
            self._over = _readable(self.ended_fd, seconds)
        return self._over

    def close(self) -> None:
        self._pair.close()
        self.ended_fd = None
        standby.renew()

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            send(self._pair.supervisor, word)


def start(confined: Confined, streams: Streams) -> Runner:
    """Start ``confined`` from a prepared process where there are such, else in one of its own.

    Raises OSError where neither can be started.
    """
    if confined.errand is not None and standby.possible():
        for _ in range(2):
            try:
                return PreparedRunner(confined, streams, standby.take())
            except OSError:
                if not standby.forget_dead():
                    break
    return PopenRunner(confined, streams)


def _readable(fd: int, seconds: float = 0) -> bool:
    import select

    poller = select.poll()
    poller.register(fd, select.POLLIN)
    return bool(poller.poll(seconds * 1000))
