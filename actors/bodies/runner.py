"""Running many tool bodies at once in one process: a worker, or the embedding host.

The runner never decides that a body has had enough time: it starts, asks to stop, and tells.
Deadlines belong to the dispatcher, and ending a body that does not listen means ending its process.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from interlock.actors.messages import Reconcile
from interlock.actors.tools.context import NestedCaller, ProgressSink, ToolContext, current_call
from interlock.actors.tools.declare import Tool
from interlock.actors.tools.failure import CallCancelled, InvalidArgumentsError
from interlock.actors.tools.outcome import Outcome, raised
from interlock.actors.tools.threads import Threads
from interlock.backends.codes import Code

from .builder import Purpose, conclude, prepare
from .loop import LoopThread

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyJob:
    """One body to run.

    ``number`` is the caller's own and unique while the body runs. ``arguments`` is a JSON object.
    ``timeout`` is what is left of the call's time, in seconds, for ``ctx.remaining()`` only.
    """

    number: int
    tool: Tool[..., Any]
    arguments: bytes = b"{}"
    purpose: Purpose = Purpose.BODY
    session_id: str = ""
    call_id: str = ""
    attempt: int = 1
    idempotency_key: str = ""
    cwd: str = ""
    timeout: float | None = None
    progress: ProgressSink | None = None
    nested: NestedCaller | None = None


def reconcile_job(message: Reconcile, tool: Tool[..., Any]) -> BodyJob:
    """The job that asks what became of a call."""
    return BodyJob(
        number=message.number,
        tool=tool,
        arguments=message.record,
        purpose=Purpose.RECONCILE,
        session_id=message.session,
        call_id=message.call_id,
        idempotency_key=message.idempotency_key,
        cwd=message.workspace,
        timeout=message.timeout,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyDone:
    """How a body ended. Times are this process's ``time.monotonic()``.

    ``entered`` says whether the tool's function was called at all. ``cancelled`` says that the body
    was asked to stop before it ended; its outcome is what it did nevertheless (P4: only a success
    may be replaced), and the code ``ABORTED`` where it stopped because it was asked to.
    """

    number: int
    outcome: Outcome
    started: float
    ended: float
    cancelled: bool
    entered: bool


@dataclass(frozen=True, slots=True)
class RunningBody:
    """A body that has not ended, for whoever decides what to do about it; times are monotonic."""

    number: int
    since: float
    cancelled_since: float | None


@dataclass(slots=True, eq=False)
class _Body:
    job: BodyJob
    context: ToolContext
    done: Callable[[BodyDone], None]
    since: float
    asked: float | None = None
    reason: str = ""
    entered: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class BodyRunner:
    """Runs bodies: sync ones on a thread each, async ones as tasks of one event loop.

    :param loop: a running loop for the async bodies, as in an embedding asyncio program; ``None``:
        a loop on a thread of the runner's own, started with the first async body.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop
        self._own_loop: LoopThread | None = None
        self._threads = Threads("interlock-body")
        self._bodies: dict[int, _Body] = {}
        self._reporting = 0
        self._changed = threading.Condition()
        self._closed = False

    def start(self, job: BodyJob, done: Callable[[BodyDone], None]) -> None:
        """Start a body and return at once.

        :param done: called exactly once when the body has ended, on the thread or loop it ran on
            (or on this thread, if it could not be started); it must be quick and must not raise.
        :raises RuntimeError: the runner is closed.
        :raises ValueError: a body with this number is running.
        """
        now = time.monotonic()
        context = ToolContext(
            session_id=job.session_id,
            call_id=job.call_id,
            tool=job.tool.name,
            attempt=job.attempt,
            idempotency_key=job.idempotency_key,
            cwd=job.cwd,
            deadline=None if job.timeout is None else now + job.timeout,
            progress=job.progress,
            nested=job.nested,
        )
        body = _Body(job, context, done, now)
        with self._changed:
            if self._closed:
                raise RuntimeError("the body runner is closed and starts nothing more")
            if job.number in self._bodies:
                raise ValueError(f"body {job.number} is already running")  # P9: never two at once
            self._bodies[job.number] = body
        try:
            if _is_async(job):
                loop = self._running_loop()
                loop.call_soon_threadsafe(self._create_task, loop, body)
            else:
                self._threads.submit(lambda: self._run_sync(body))
        except RuntimeError as error:
            # No thread to be had, or the loop is closed: nothing of the body ran.
            failure = Outcome.failure(Code.TOOL_FAILED, f"the body could not be started: {error}")
            self._finish(body, failure)

    def cancel(self, number: int, reason: str = "") -> bool:
        """Ask a body to stop: its context says so, and an async body gets ``CancelledError``.

        A body that does not listen goes on, and :meth:`running` says since when it was asked.
        Asking again sends an async body another ``CancelledError``.

        :returns: whether the body was running.
        """
        with self._changed:
            body = self._bodies.get(number)
            if body is None:
                return False
            if body.asked is None:
                body.asked = time.monotonic()
                body.reason = reason
            task = body.task
        body.context.cancel(reason)
        if task is not None:
            try:
                task.get_loop().call_soon_threadsafe(task.cancel)
            except RuntimeError:
                _log.warning("call %s not cancelled: its event loop is closed", body.job.call_id)
        return True

    def running(self) -> list[RunningBody]:
        """Return the bodies that have not ended, oldest first."""
        with self._changed:
            return [RunningBody(n, b.since, b.asked) for n, b in self._bodies.items()]

    def close(self, timeout: float = 5.0) -> list[RunningBody]:
        """Start nothing more, ask every body to stop, and wait at most ``timeout`` seconds.

        :returns: the bodies that still run; only ending the process ends them.
        """
        with self._changed:
            self._closed = True
            numbers = list(self._bodies)
        for number in numbers:
            self.cancel(number, "the runtime is closing")
        with self._changed:
            self._changed.wait_for(lambda: not self._bodies and not self._reporting, timeout)
        self._threads.close()
        if self._own_loop is not None:
            self._own_loop.stop()
        return self.running()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None:
            return self._loop
        with self._changed:
            if self._own_loop is None:
                self._own_loop = LoopThread("interlock-body-loop")
            return self._own_loop.loop

    def _run_sync(self, body: _Body) -> None:
        # A context of its own: nothing that one body sets is seen by the thread's next.
        outcome = contextvars.Context().run(self._call, body)
        self._finish(body, outcome)

    def _call(self, body: _Body) -> Outcome:
        current_call.set(body.context)
        try:
            function, keywords = self._enter(body)
            value = function(**keywords)
            _check_run(value)
            return conclude(body.job.purpose, body.job.tool, value)
        except BaseException as error:  # SystemExit too is an error of this call only
            return _failed(body, error)

    def _create_task(self, loop: asyncio.AbstractEventLoop, body: _Body) -> None:
        context = contextvars.Context()
        with self._changed:
            asked = body.asked is not None
            if not asked:
                body.task = loop.create_task(self._run_async(body), context=context)
                # A host that ends its loop may cancel the task before its first step.
                body.task.add_done_callback(lambda _: self._finish(body, _lost(body)))
        if asked:
            self._finish(body, _failed(body, asyncio.CancelledError()))

    async def _run_async(self, body: _Body) -> None:
        current_call.set(body.context)
        try:
            function, keywords = self._enter(body)
            value = await function(**keywords)
            outcome = conclude(body.job.purpose, body.job.tool, value)
        except BaseException as error:  # must not reach the loop that all share
            outcome = _failed(body, error)
        self._finish(body, outcome)

    def _enter(self, body: _Body) -> tuple[Callable[..., Any], dict[str, Any]]:
        job = body.job
        function, keywords = prepare(job.purpose, job.tool, job.arguments, body.context)
        body.context.raise_if_cancelled()  # asked before the function began: it does not begin
        body.entered = True
        return function, keywords

    def _finish(self, body: _Body, outcome: Outcome) -> None:
        with self._changed:
            if self._bodies.get(body.job.number) is not body:
                return
            asked = body.asked is not None
            del self._bodies[body.job.number]
            self._reporting += 1
        body.context.end()
        done = BodyDone(
            number=body.job.number,
            outcome=outcome,
            started=body.since,
            ended=time.monotonic(),
            cancelled=asked,
            entered=body.entered,
        )
        try:
            body.done(done)
        except Exception:
            _log.exception("the outcome of call %s was not taken", body.job.call_id)
        with self._changed:
            self._reporting -= 1
            self._changed.notify_all()


def _check_run(value: Any) -> None:
    if asyncio.iscoroutine(value):
        value.close()
        raise TypeError("the function returned a coroutine, which nobody ran; use `async def`")


def _is_async(job: BodyJob) -> bool:
    return job.tool.reconciler_is_async if job.purpose is Purpose.RECONCILE else job.tool.is_async


def _lost(body: _Body) -> Outcome:
    if body.asked is not None:
        return _failed(body, asyncio.CancelledError())
    return Outcome.failure(Code.TOOL_FAILED, "the body's event loop ended before the body began")


def _failed(body: _Body, error: BaseException) -> Outcome:
    """Tell a stop that was asked for from everything that a body can raise by itself."""
    if isinstance(error, InvalidArgumentsError) and not body.entered:
        return Outcome.failure(Code.INVALID_ARGS, str(error))
    if isinstance(error, CallCancelled | asyncio.CancelledError) and body.asked is not None:
        # P4: only a body that stopped because it was asked is ABORTED.
        reason = f": {body.reason}" if body.reason else ""
        began = "stopped when asked to" if body.entered else "was asked to stop before it began"
        return Outcome.failure(Code.ABORTED, f"the body {began}{reason}")
    return raised(error)
