"""Runs one confined command to its end: starts it, reads it, ends it when its time is up.

Everything happens in the calling thread, which therefore lives as long as the command (S8).
"""

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from .confined import Confined
from .disk import LOOK, DiskWatch
from .output import Collector, Output
from .rlimits import apply_from_outside
from .runner import Runner, start
from .sealed import sealed
from .status import Status, read_status

#: Bytes read at a time, which is what a pipe holds.
_PIECE = 65_536
#: Seconds that the runner may take to end everything before it is killed itself.
_RUNNER_GRACE = 6.0
#: Seconds to go on reading after the runner has ended, while a stranger still writes (S8).
_DRAIN_LIMIT = 1.0
#: Seconds between looks at the runner where the system has no descriptor for its end.
_LOOK = 0.05

End = Literal["ended", "timeout", "cancelled", "exceeded"]
OnOutput = Callable[[str, bytes], None]
OnStarted = Callable[[int], None]


class CancelToken:
    """Asks a running command to stop, from any thread; the run wakes up at once.

    One token may serve several runs. Cancelling is final: a run that starts later ends before its
    command does.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._killing = False
        self._wakers: set[int] = set()

    @property
    def cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    @property
    def killing(self) -> bool:
        """Whether `cancel` was called with ``kill``."""
        return self._killing

    def cancel(self, *, kill: bool = False) -> None:
        """Ask. Returns at once; the command gets SIGTERM, its grace, then SIGKILL.

        kill: leave out the asking and the grace; also for a run that was asked before.
        """
        with self._lock:
            self._cancelled = True
            self._killing = self._killing or kill
            for fd in self._wakers:
                with contextlib.suppress(OSError):
                    os.write(fd, b"\0")

    @contextlib.contextmanager
    def _waking(self, fd: int) -> Iterator[None]:
        with self._lock:
            self._wakers.add(fd)
            if self._cancelled:
                os.write(fd, b"\0")
        try:
            yield
        finally:
            with self._lock:
                self._wakers.discard(fd)


@dataclass(frozen=True)
class Ended:
    """How a run came to its end, not yet interpreted.

    end: whether the command ended by itself, or why we ended it. runner_code: the runner's own exit
    status, negative for a signal; None where it is not known. error: why the runner could not be
    started, or what limit on the disk was exceeded. duration: seconds.
    """

    end: End
    status: Status
    runner_code: int | None
    stdout: Output
    stderr: Output
    duration: float
    error: str | None = None


@dataclass
class Run:
    """One run's settings and state. `watch` is the way in."""

    confined: Confined
    timeout: float | None
    grace: float
    cancel: CancelToken | None
    output_limit: int
    on_output: OnOutput | None
    on_started: OnStarted | None
    end: End = "ended"
    raw_status: bytes = b""
    status: Status = field(default_factory=Status)
    begun: float = field(default_factory=time.monotonic)
    deadline: float | None = None
    runner: Runner | None = None
    #: Escalation so far: 0 running, 1 asked to stop, 2 being killed, 3 its runner was killed.
    pressed: int = 0
    #: The first process of bubblewrap's pid namespace, held by descriptor: numbers are used again.
    init: int | None = None

    def __post_init__(self) -> None:
        self.out = Collector(self.output_limit)
        self.err = Collector(self.output_limit)
        self.selector = selectors.DefaultSelector()
        self.disk = DiskWatch(self.confined.policy.workspace, self.confined.policy.limits)
        self.excess: str | None = None
        if self.timeout is not None:
            self.deadline = self.begun + self.timeout

    def watch(self, streams: tuple[int | None, int | None]) -> None:
        """Read until the runner has ended, pressing it when the time comes."""
        for fd, name in zip(streams, ("stdout", "stderr"), strict=True):
            if fd is not None:
                os.set_blocking(fd, False)
                self.selector.register(fd, selectors.EVENT_READ, name)
        if self.confined.status is not None:
            os.set_blocking(self.confined.status, False)
            self.selector.register(self.confined.status, selectors.EVENT_READ, "status")
        with self._watching_runner(), self._watching_cancel():
            while not self._runner_ended():
                self._step(self._patience())
        self._end_init()
        self._drain()

    def _step(self, patience: float | None) -> bool:
        """Handle what is there, or wait for it; False where nothing came."""
        ready = self.selector.select(patience)
        for key, _ in ready:
            if key.data in ("stdout", "stderr", "status"):
                self._read(key.fd, key.data)
            elif key.data == "cancel":
                os.read(key.fd, 512)
                self._press("cancelled")
            else:
                self.selector.unregister(key.fd)
        if self.deadline is not None and time.monotonic() >= self.deadline:
            self._press("timeout")
        if self.pressed == 0 and self.disk.wanted:
            self.excess = self.disk.exceeded()
            if self.excess is not None:
                self.grace = 0.0  # while it is asked, it would take more
                self._press("exceeded")
        return bool(ready)

    def _patience(self) -> float | None:
        left = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
        if self.pressed == 0 and self.disk.wanted:
            left = LOOK if left is None else min(left, LOOK)
        if self.runner is not None and self.runner.ended_fd is not None:
            return left
        return _LOOK if left is None else min(_LOOK, left)

    def _read(self, fd: int, name: str) -> None:
        try:
            piece = os.read(fd, _PIECE)
        except BlockingIOError:
            return
        if not piece:
            self.selector.unregister(fd)
        elif name == "status":
            self._take_status(piece)
        else:
            (self.out if name == "stdout" else self.err).add(piece)
            if self.on_output is not None:
                self.on_output(name, piece)

    def _take_status(self, piece: bytes) -> None:
        known = self.status.child
        self.raw_status += piece
        self.status = read_status(self.raw_status)
        if known is None and self.status.child is not None:
            self._hold_init(self.status.child)
            if self.init is not None:
                # Only for a process that is known to be our runner's: the number is its word.
                with contextlib.suppress(ProcessLookupError):
                    apply_from_outside(self.status.child, self.confined.limits)
                self.confined.open_gate()
            if self.on_started is not None:
                self.on_started(self.status.child)

    def _hold_init(self, child: int) -> None:
        if self.confined.backend != "bwrap" or self.runner is None:
            return
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(child)
            # Ours is a child of bubblewrap, which is our runner or was started by it.
            parent = parent_of(child)
            if self.runner.pid in (parent, parent_of(parent) if parent else None):
                self.init = fd
            else:
                os.close(fd)

    def _press(self, why: End) -> None:
        """Go one step further in ending the command: ask, then kill, then kill the runner (S7)."""
        at_once = self.cancel is not None and self.cancel.killing
        if self.pressed == 0:
            self.end = why
        elif why == "cancelled" and not (at_once and self.pressed == 1):
            return
        self.pressed += 1
        now = time.monotonic()
        if self.pressed == 1 and self.grace > 0 and not at_once:
            self._ask()
            self.deadline = now + self.grace
        elif self.pressed <= 2:
            self.pressed = 2
            self._kill()
            self.deadline = now + _RUNNER_GRACE
        else:
            self._kill_runner()
            self.deadline = now + _RUNNER_GRACE

    def _ask(self) -> None:
        """SIGTERM to the command's process group."""
        if self.confined.backend == "bwrap":
            for group in groups_below(self.status.child):
                with contextlib.suppress(OSError):
                    os.killpg(group, signal.SIGTERM)
        elif self.runner is not None:
            self.runner.ask()

    def _kill(self) -> None:
        """SIGKILL to everything the command started, while the runner stays to say how it ended."""
        if self.init is not None:
            # The first process of a pid namespace: the kernel ends all others with it.
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.init, signal.SIGKILL)
        elif self.runner is not None:
            self.runner.end()

    def _kill_runner(self) -> None:
        if self.runner is not None:
            self.runner.kill()

    def _runner_ended(self) -> bool:
        # Its last record says that nothing is left; what it still clears away is not waited for.
        return self.runner is None or self.status.over or self.runner.ended()

    @contextlib.contextmanager
    def _watching_runner(self) -> Iterator[None]:
        fd = self.runner.ended_fd if self.runner is not None else None
        if fd is None:
            yield
            return
        self.selector.register(fd, selectors.EVENT_READ, "runner")
        try:
            yield
        finally:
            with contextlib.suppress(KeyError):
                self.selector.unregister(fd)

    @contextlib.contextmanager
    def _watching_cancel(self) -> Iterator[None]:
        if self.cancel is None:
            yield
            return
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self.selector.register(reader, selectors.EVENT_READ, "cancel")
        try:
            with self.cancel._waking(writer):
                yield
        finally:
            with contextlib.suppress(KeyError):
                self.selector.unregister(reader)
            os.close(reader)
            os.close(writer)

    def _drain(self) -> None:
        """Take what the pipes still hold. Their writers are dead; strangers are not waited for."""
        limit = time.monotonic() + _DRAIN_LIMIT
        self.deadline = None
        while self.selector.get_map() and time.monotonic() < limit:
            if not self._step(0):
                return

    def _end_init(self) -> None:
        """Wait until nothing in the sandbox is left.

        S7: bubblewrap's outer process leaves as soon as it knows the command's status, while what
        the command left behind is still being ended.
        """
        if self.init is None:
            return
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.init, signal.SIGKILL)
        poller = select.poll()
        poller.register(self.init, select.POLLIN)
        poller.poll(_RUNNER_GRACE * 1000)
        os.close(self.init)
        self.init = None

    def finish(self) -> None:
        """End whatever still runs, also after an error or Ctrl-C in the middle."""
        if self.runner is not None:
            if not self._runner_ended():
                self._kill()
                if not self.runner.wait(_RUNNER_GRACE):
                    self.runner.kill()
                    self.runner.wait(_RUNNER_GRACE)
            self._end_init()
            self.runner.close()
        if self.status.over:
            self.confined.scratch = None  # its supervisor sees to it
        self.selector.close()

    def result(self, error: str | None = None) -> Ended:
        code = self.runner.code() if self.runner is not None else None
        return Ended(
            end=self.end,
            status=self.status,
            runner_code=code if code is not None else self.status.runner,
            stdout=self.out.result(),
            stderr=self.err.result(),
            duration=time.monotonic() - self.begun,
            error=error if error is not None else self.excess,
        )


def watch(
    confined: Confined,
    *,
    timeout: float | None,
    grace: float = 2.0,
    cancel: CancelToken | None = None,
    output_limit: int = 262_144,
    on_output: OnOutput | None = None,
    on_started: OnStarted | None = None,
    stdin: bytes = b"",
    inherit: bool = False,
) -> Ended:
    """Run a confined command to its end and say how it went. Closes ``confined``.

    The arguments are those of `interlock.sandbox.run`.
    """
    run = Run(confined, timeout, grace, cancel, output_limit, on_output, on_started)
    streams: list[int] = []
    try:
        if cancel is not None and cancel.cancelled:
            run.end = "cancelled"
            return run.result()
        try:
            run.runner = _start(confined, stdin, streams, inherit=inherit)
        except (OSError, subprocess.SubprocessError) as error:
            return run.result(str(error))
        try:
            run.watch((streams[0], streams[1]) if streams else (None, None))
        finally:
            run.finish()
        return run.result()
    finally:
        for fd in streams:
            os.close(fd)
        confined.close()


def _start(confined: Confined, stdin: bytes, streams: list[int], *, inherit: bool) -> Runner:
    """Start the runner with the command's three streams; our ends of two go into ``streams``."""
    given: list[int] = []
    try:
        if stdin:
            # A file, not a pipe: nothing can block on a command that does not read.
            given.append(sealed("interlock-stdin", stdin))
        elif not inherit:
            given.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        source = given[0] if given else 0
        if inherit:
            return start(confined, (source, 1, 2))
        for _ in range(2):
            ours, theirs = os.pipe()
            streams.append(ours)
            given.append(theirs)
        return start(confined, (source, given[1], given[2]))
    finally:
        for fd in given:
            os.close(fd)


def parent_of(pid: int) -> int | None:
    """The parent of a process, or None where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


def groups_below(child: int | None) -> set[int]:
    """Process groups of the command, which is a child of the sandbox's first process.

    That process shares the group, and as the first of its namespace it ignores polite signals.
    """
    if child is None or sys.platform != "linux":
        return set()
    try:
        with open(f"/proc/{child}/task/{child}/children") as file:
            return {os.getpgid(int(pid)) for pid in file.read().split()}
    except OSError:
        return set()
