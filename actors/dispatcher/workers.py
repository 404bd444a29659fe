"""Which process runs a body: shared workers, and processes of their own for isolated calls.

A worker that is stuck with a body that ignored its timeout takes no new ones; the others in it get
up to their own deadlines, then the process is ended. Nothing here starts or ends a process itself:
that is the :class:`Spawner`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from interlock.backends.codes import Code

from ..fibers import Promise
from ..messages import LoadTools, WorkerReady
from ..port import Port
from .call import CallRun, Ended

#: Bodies that share one worker at a time.
SHARED_BODIES = 64
#: Idle processes kept for isolated calls.
WARM = 1
#: Starts that may fail in a row before waiting calls are told.
FAILED_STARTS = 3


class Spawner(Protocol):
    """Starts and ends worker processes (the shell's part)."""

    def spawn(self) -> tuple[int, bytes]:
        """Start a process; its pid and the public key that it will show."""

    def kill(self, pid: int) -> None:
        """End a process and its whole process group at once."""


@dataclass(eq=False)
class Worker:
    """One worker process."""

    pid: int
    key: bytes
    isolated: bool
    identity: bytes = b""
    ready: bool = False
    retired: bool = False
    bodies: set[int] = field(default_factory=set)
    #: Bodies that were given up: their calls have results, their threads may still run.
    stuck: set[int] = field(default_factory=set)
    #: Tools that this process could not load, and why.
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def usable(self) -> bool:
        """It takes bodies, or will once it is ready."""
        return not self.retired

    @property
    def free(self) -> bool:
        room = 1 if self.isolated else SHARED_BODIES
        return self.ready and self.usable and len(self.bodies) < room


@dataclass(eq=False)
class _Wanted:
    isolated: bool
    tool: str
    promise: Promise[Worker]


class WorkerPool:
    """The workers of one runtime. Runs in the dispatcher's thread."""

    def __init__(self, port: Port, spawner: Spawner, shared: int) -> None:
        self._port, self._spawner, self._shared = port, spawner, shared
        self._workers: dict[bytes, Worker] = {}
        self._wanted: deque[_Wanted] = deque()
        self._tools: dict[str, bytes] = {}
        # Above every number of an earlier life: the clock is the machine's, and counts on (K6).
        self._number = int(port.now() * 1_000_000)
        self._failed_starts = 0
        self._closing = False
        self.lost = 0
        #: Told of a worker's end before its bodies are settled.
        self.on_lost: Callable[[Worker, str], None] = lambda _worker, _how: None

    def number(self) -> int:
        """K6: grows with every release, also from one life of the dispatcher to the next, so that
        a receiver can refuse what it has passed and a late report finds no other body.
        """
        self._number += 1
        return self._number

    def start(self, tools: dict[str, bytes], *, warm_isolated: bool) -> None:
        """Start the shared workers for the tools that run in one."""
        self._tools = tools
        if not tools:
            return
        for _ in range(self._shared):
            self._spawn(isolated=False)
        if warm_isolated:
            for _ in range(WARM):
                self._spawn(isolated=True)

    def acquire(self, isolated: bool, tool: str) -> Promise[Worker]:
        """A worker with room, now or when there is one. Waiting costs the call no time (P8)."""
        wanted = _Wanted(isolated, tool, Promise())
        self._wanted.append(wanted)
        self._serve()
        return wanted.promise

    async def worker_for(self, call: CallRun, isolated: bool) -> Worker:
        """:meth:`acquire` for ``call``; a cancelled one waits no longer."""
        promise = self.acquire(isolated, call.name)
        try:
            return await call.unless_cancelled(promise)
        finally:
            self._wanted = deque(w for w in self._wanted if w.promise is not promise)

    def by_key(self, key: bytes) -> Worker | None:
        return self._workers.get(key)

    def by_identity(self, identity: bytes) -> Worker | None:
        return next((w for w in self._workers.values() if w.identity == identity), None)

    def ready(self, key: bytes, identity: bytes, message: WorkerReady) -> None:
        """A worker has connected (no tools yet) or has loaded its tools."""
        worker = self._workers.get(key)
        if worker is None:
            return
        worker.identity = identity
        if message.loaded:
            worker.ready, worker.broken = True, message.failed
            self._failed_starts = 0
            self._serve()
        else:
            self._port.send(identity, LoadTools(self._tools))

    def release(self, worker: Worker, number: int) -> None:
        """A body has ended: its room is free again."""
        worker.bodies.discard(number)
        if worker.retired and not worker.bodies - worker.stuck:
            self.kill(worker)
        elif worker.isolated and not worker.bodies and self._spare() > WARM:
            worker.retired = True
            self.kill(worker)
        else:
            self._serve()

    def retire(self, worker: Worker, number: int) -> None:
        """``number`` ignored its timeout: no new bodies here; the others keep their deadlines."""
        worker.stuck.add(number)
        if not worker.retired:
            worker.retired = True
            if not self._closing:
                self._spawn(isolated=worker.isolated)
        if not worker.bodies - worker.stuck:
            self.kill(worker)

    def is_stuck(self, worker: Worker, number: int) -> bool:
        return number in worker.stuck

    def late(self, identity: bytes, number: int) -> None:
        """A body that was given up has ended after all."""
        worker = self.by_identity(identity)
        if worker is not None and number in worker.stuck:
            worker.stuck.discard(number)
            worker.bodies.discard(number)

    def unreachable(self, worker: Worker) -> None:
        worker.ready = False

    def kill(self, worker: Worker) -> None:
        self._spawner.kill(worker.pid)

    def close(self) -> None:
        """End every worker; no body that counts runs any more."""
        self._closing = True
        for worker in list(self._workers.values()):
            self.kill(worker)

    def exited(self, key: bytes, how: str) -> None:
        """A worker's process has ended."""
        worker = self._workers.pop(key, None)
        if worker is None:
            return
        if not worker.ready:
            self._failed_starts += 1
        if not worker.retired and not self._closing:
            self.lost += 1
        self.on_lost(worker, how)
        if self._closing or worker.retired or not self._tools:
            return
        if self._failed_starts >= FAILED_STARTS:
            self._give_up_waiting(how)
        elif not worker.isolated or self._isolated_wanted():
            self._spawn(isolated=worker.isolated)

    def counters(self) -> dict[str, int]:
        return {
            "workers": len(self._workers),
            "workers_lost": self.lost,
            "stuck_bodies": sum(len(w.stuck) for w in self._workers.values()),
            "waiting_for_worker": len(self._wanted),
        }

    # Deciding.

    def _spawn(self, *, isolated: bool) -> None:
        pid, key = self._spawner.spawn()
        self._workers[key] = Worker(pid, key, isolated)

    def _spare(self) -> int:
        return sum(1 for w in self._workers.values() if w.isolated and w.free)

    def _isolated_wanted(self) -> bool:
        return any(w.isolated for w in self._wanted if not w.promise.done)

    def _serve(self) -> None:
        """Hand free workers to those who wait, oldest first; start more isolated ones if needed."""
        # Handing over runs the call that waited, which may ask for another worker: that one queues
        # up behind whoever is left.
        queue, self._wanted = self._wanted, deque()
        left: deque[_Wanted] = deque()
        waiting_isolated = waiting_shared = 0
        for wanted in queue:
            if wanted.promise.done:
                continue
            worker = self._pick(wanted.isolated)
            if worker is None:
                left.append(wanted)
                waiting_isolated += wanted.isolated
                waiting_shared += not wanted.isolated
            else:
                self._hand_over(worker, wanted)
        self._wanted = left + self._wanted
        starting = sum(1 for w in self._workers.values() if w.isolated and not w.ready)
        for _ in range(waiting_isolated - starting):
            self._spawn(isolated=True)
        if waiting_shared and not any(w.usable for w in self._workers.values() if not w.isolated):
            # Starting them was given up for the calls that waited then; this one tries anew.
            for _ in range(max(1, self._shared)):
                self._spawn(isolated=False)

    def _hand_over(self, worker: Worker, wanted: _Wanted) -> None:
        why = worker.broken.get(wanted.tool)
        if why is not None:
            wanted.promise.fail(
                Ended(
                    Code.TOOL_FAILED,
                    f"The call was not started: the worker could not load the tool {wanted.tool!r} "
                    f"({why}). Nothing of it ran.",
                )
            )
            return
        wanted.promise.resolve(worker)

    def _pick(self, isolated: bool) -> Worker | None:
        free = [w for w in self._workers.values() if w.isolated == isolated and w.free]
        return min(free, key=lambda w: len(w.bodies), default=None)

    def _give_up_waiting(self, how: str) -> None:
        wanted, self._wanted = self._wanted, deque()
        self._failed_starts = 0
        for one in wanted:
            one.promise.fail(
                Ended(
                    Code.TOOL_NOT_STARTED,
                    f"The call was not started: no worker process can be started here ({how}). "
                    "Nothing of it ran.",
                )
            )
