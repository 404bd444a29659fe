"""Bodies under way: released once, asked to stop, given up, and what their end means (P4–P6, P8).

A body gets a number when it is released. Whatever ends it first settles its promise: its own
result, the death of the process that ran it, or the end of the grace after its time was up. What
comes later is dropped: the result is already recorded.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from interlock.backends.codes import Code

from ..fibers import Promise
from ..messages import (
    BodyFinished,
    BodyProgress,
    CallProgress,
    CancelBody,
    CommandEnded,
    CommandOutput,
)
from ..port import Port, Timer
from ..release import Checkpoint, ReleaseTerms, launch, release
from ..roles import Role
from ..tools.outcome import Outcome, checked
from . import ends
from .call import CallRun, Ended
from .workers import Worker, WorkerPool

#: How long (s) a body that was asked to stop may take before it is ended or given up (P5).
GRACE = 2.0
#: The launcher ends a command by itself; beyond this (s) it is taken for broken.
LAUNCHER_SLACK = 10.0


@dataclass(eq=False)
class Body:
    """One released body."""

    number: int
    call: CallRun
    place: str
    worker: Worker | None
    timeout: float
    since: float
    token: str
    #: Why it was asked to stop: "timeout", "cancelled", or not at all.
    asked: str | None = None
    timer: Timer | None = None
    ended: Promise[ends.End] = field(default_factory=Promise)


class Bodies:
    """All bodies that run now. Runs in the dispatcher's thread."""

    def __init__(self, port: Port, workers: WorkerPool) -> None:
        self._port, self._workers = port, workers
        self._running: dict[int, Body] = {}
        self.host: bytes | None = None
        #: The life of the writer that owns the sessions; releases are bound to it (K6).
        self.writer_incarnation = ""
        #: This life of the dispatcher.
        self.incarnation = ""
        self.released = 0

    def __len__(self) -> int:
        return len(self._running)

    def of_session(self, session: str) -> list[Body]:
        return [b for b in self._running.values() if b.call.session == session]

    def find(self, number: int) -> Body | None:
        return self._running.get(number)

    async def run(self, call: CallRun, checkpoint: Checkpoint) -> Outcome:
        """Release the body under ``checkpoint`` and return what its end means for the call."""
        call.checkpoint = checkpoint
        if call.command is not None:
            body = self._launch(call, checkpoint)
        elif call.spec is not None and call.spec.place == "host":
            body = self._release_to_host(call, checkpoint)
        else:
            body = await self._release_to_worker(call, checkpoint)
        call.cancelled.then(lambda: self._ask_to_stop(body, "cancelled"))
        end = await body.ended
        if end.command is not None and end.command.risks:
            call.notices.append(ends.risks(call, end.command.risks))
        return ends.meaning(call, body.asked, body.timeout, end)

    # Releasing.

    def _terms(self, call: CallRun, number: int, timeout: float) -> ReleaseTerms:
        return ReleaseTerms(
            call.identity,
            number,
            call.key,
            timeout,
            call.covers,
            # K6: of no life at all where the call's record is not in this one's log.
            self.writer_incarnation if call.writer == self.writer_incarnation else "",
            call.workspace,
            self.incarnation,
            call.attempt,
        )

    def _timeout(self, call: CallRun) -> float:
        timeout = call.spec.timeout if call.spec is not None else 0.0
        if call.command is not None and call.command.timeout is not None:
            timeout = min(timeout, call.command.timeout)
        return timeout

    async def _release_to_worker(self, call: CallRun, checkpoint: Checkpoint) -> Body:
        isolated = bool(call.spec and call.spec.isolate)
        while True:
            worker = await self._workers.worker_for(call, isolated)
            number, token, timeout = (
                self._workers.number(),
                secrets.token_hex(16),
                self._timeout(call),
            )
            message = release(
                checkpoint,
                self._terms(call, number, timeout),
                call.name,
                call.valid_arguments,
                token,
            )
            body = self._track(
                Body(number, call, "worker", worker, timeout, self._port.now(), token)
            )
            worker.bodies.add(number)
            if self._port.send(worker.identity, message):
                return self._started(body)
            # Nothing left this process: the worker's connection is gone, and its end will be seen.
            self._forget(body)
            self._workers.unreachable(worker)

    def _release_to_host(self, call: CallRun, checkpoint: Checkpoint) -> Body:
        number, token, timeout = self._workers.number(), secrets.token_hex(16), self._timeout(call)
        message = release(
            checkpoint, self._terms(call, number, timeout), call.name, call.valid_arguments, token
        )
        if self.host is None or not self._port.send(self.host, message):
            raise Ended(
                Code.ABORTED_BEFORE_DISPATCH,
                "The call was not started: the process that would run it is gone.",
            )
        return self._started(
            self._track(Body(number, call, "host", None, timeout, self._port.now(), token))
        )

    def _launch(self, call: CallRun, checkpoint: Checkpoint) -> Body:
        assert call.command is not None  # noqa: S101 - the caller asked for it
        number, timeout = self._workers.number(), self._timeout(call)
        message = launch(
            checkpoint,
            self._terms(call, number, timeout),
            call.command,
            call.mode,
        )
        if not self._port.tell(Role.LAUNCHER, message):
            raise Ended(
                Code.SANDBOX_UNAVAILABLE,
                "The call was not started: the sandbox launcher is not running.",
            )
        return self._started(
            self._track(Body(number, call, "sandbox", None, timeout, self._port.now(), ""))
        )

    def _track(self, body: Body) -> Body:
        self._running[body.number] = body
        return body

    def _started(self, body: Body) -> Body:
        """P8: its time runs from here."""
        body.call.released = True
        self.released += 1
        extra = LAUNCHER_SLACK if body.place == "sandbox" else 0.0
        when = self._port.now() + body.timeout + extra
        body.timer = self._port.at(when, lambda: self._time_is_up(body))
        return body

    # Stopping.

    def _time_is_up(self, body: Body) -> None:
        if body.place == "sandbox":
            self._end(body, ends.End(lost="the sandbox launcher did not report its end"))
        else:
            self._ask_to_stop(body, "timeout")

    def _ask_to_stop(self, body: Body, reason: str) -> None:
        """P5, P4: ask, and after the grace end what can be ended."""
        if body.ended.done or (body.asked is not None and reason == "cancelled"):
            return
        first_time = body.asked is None
        body.asked = reason
        if first_time:
            self._send(body, CancelBody(body.number, reason))
        if body.place == "sandbox":
            return  # the launcher asks, waits its grace and kills
        killable = body.worker is not None and body.worker.isolated
        if reason == "timeout" or killable:
            if body.timer is not None:
                body.timer.cancel()
            body.timer = self._port.at(self._port.now() + GRACE, lambda: self._give_up(body))

    def _give_up(self, body: Body) -> None:
        """It ignored the request. A process of its own is killed; a thread can only be left
        behind.
        """
        if body.ended.done:
            return
        worker = body.worker
        if worker is not None and worker.isolated:
            self._workers.kill(worker)  # its end is reported by the watch on the process
            return
        if worker is not None:
            self._workers.retire(worker, body.number)
        self._end(body, ends.End(left_running=True))

    def kill_all(self) -> None:
        """The runtime closes and the grace is over: end every process that still runs a body."""
        for body in list(self._running.values()):
            body.asked = body.asked or "cancelled"
            if body.worker is not None:
                self._workers.kill(body.worker)
            elif body.place == "sandbox":
                self._send(body, CancelBody(body.number, "cancelled", kill=True))
            else:
                self._end(body, ends.End(left_running=True))

    def _send(self, body: Body, message: CancelBody) -> None:
        if body.worker is not None:
            self._port.send(body.worker.identity, message)
        elif body.place == "sandbox":
            self._port.tell(Role.LAUNCHER, message)
        elif self.host is not None:
            self._port.send(self.host, message)

    # Ending.

    def finished(self, sender: bytes, message: BodyFinished) -> None:
        """A worker or the host reports an end. Late and foreign reports change nothing."""
        body = self._running.get(message.number)
        if body is None:
            self._workers.late(sender, message.number)
            return
        expected = body.worker.identity if body.worker is not None else self.host
        if sender == expected and body.place != "sandbox":
            outcome = checked(message.outcome)
            self._end(body, ends.End(outcome=outcome, cancelled=message.cancelled))

    def command_ended(self, message: CommandEnded) -> None:
        body = self._running.get(message.number)
        if body is not None and body.place == "sandbox":
            self._end(body, ends.End(command=message))

    def worker_lost(self, worker: Worker, how: str) -> None:
        """P6: every body it ran has an unknown outcome."""
        for number in list(worker.bodies):
            body = self._running.get(number)
            if body is not None:
                self._end(body, ends.End(lost=how))

    def host_lost(self) -> None:
        """F1: host bodies died with the embedding process."""
        self.host = None
        for body in list(self._running.values()):
            if body.place == "host":
                self._end(body, ends.End(lost="the embedding process that ran it has ended"))

    def launcher_lost(self) -> None:
        """F5: its commands died with it."""
        for body in list(self._running.values()):
            if body.place == "sandbox":
                self._end(body, ends.End(lost="the sandbox launcher that ran it has ended"))

    def _end(self, body: Body, end: ends.End) -> None:
        self._forget(body)
        body.ended.resolve(end)

    def _forget(self, body: Body) -> None:
        self._running.pop(body.number, None)
        if body.timer is not None:
            body.timer.cancel()
        if body.worker is not None and not self._workers.is_stuck(body.worker, body.number):
            self._workers.release(body.worker, body.number)

    # What running bodies say.

    def progress(self, sender: bytes, message: BodyProgress) -> CallProgress | None:
        body = self._running.get(message.number)
        if body is None or sender not in (body.worker.identity if body.worker else None, self.host):
            return None
        return CallProgress(body.call.session, body.call.call_id, "progress", message.data)

    def output(self, message: CommandOutput) -> tuple[bytes, CallProgress] | None:
        body = self._running.get(message.number)
        if body is None:
            return None
        call = body.call
        return call.requester, CallProgress(
            call.session, call.call_id, message.stream, message.data
        )
