"""What becomes of calls with an unknown outcome when their session is opened again (R4).

A ``retry`` runs the body of a ``read`` or ``idempotent`` call once more, as the same call with the
same idempotency key; a ``reconcile`` asks the outside world with the tool's own function. What is
decided is durable, as ``interlock/settled``, before anything acts on it: a crash in between leaves
the call as doubtful as it was, and the next attempt is counted.
"""

from __future__ import annotations

from typing import Any

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError
from interlock.backends.event import Draft, draft

from ..bodies.builder import encode_record, read_reconciliation
from ..errors import ToolError
from ..fibers import Promise, first, spawn
from ..messages import CancelBody, DoubtfulCall, Message, Reconcile, Reconciled, ResolvedCall
from ..port import PeerLostError, Port, ReplyTimeoutError
from ..release import Checkpoint
from ..tools import jsontext
from ..tools.outcome import Outcome, checked, returned, shorten
from ..tools.result import CallRecord, Done, NotDone, Unknown
from ..tools.spec import ToolSpec
from .bodies import GRACE, Bodies
from .call import CallRun, Ended
from .ends import advice
from .log import LogClient, checkpoint_failed
from .pipeline import Pipeline, Slots
from .workers import Worker, WorkerPool

RETRIED = frozenset({"read", "idempotent"})
#: Characters of an outcome that a message to the model may hold.
TOLD = 16_000


def can_be_resolved(call: DoubtfulCall, spec: ToolSpec | None, how: str) -> bool:
    """Tell whether ``how`` says anything about this call; the others are only reported."""
    if spec is None or call.outcome is not None:
        return False
    if how == "reconcile":
        return spec.reconciles
    # What it called itself may have acted, and would act again.
    return how == "retry" and spec.effect in RETRIED and not call.nested


class Resolving:
    """Runs retries and reconciliations. All of it in the dispatcher's thread."""

    def __init__(
        self, port: Port, log: LogClient, bodies: Bodies, workers: WorkerPool, pipeline: Pipeline
    ) -> None:
        self._port, self._log, self._bodies = port, log, bodies
        self._workers, self._pipeline = workers, pipeline
        #: Who was asked what, by number; None is the host.
        self._asked: dict[int, tuple[Worker | None, Promise[Outcome]]] = {}

    def answered(self, sender: bytes, message: Reconciled) -> None:
        """A tool's function has said what it found. What comes late or from others is dropped."""
        asked = self._asked.get(message.number)
        if asked is None:
            self._workers.late(sender, message.number)
        elif sender == self._identity(asked[0]):
            asked[1].resolve(checked(message.outcome))

    def worker_lost(self, numbers: set[int], how: str) -> None:
        """Those that were asking died with their worker."""
        for number in numbers:
            asked = self._asked.get(number)
            if asked is not None:
                asked[1].resolve(Outcome.failure(Code.TOOL_FAILED, how))

    def host_lost(self) -> None:
        """F1: those that were asking in the embedding process died with it."""
        for worker, answer in self._asked.values():
            if worker is None:
                answer.resolve(Outcome.failure(Code.TOOL_FAILED, "the embedding process has ended"))

    async def resolve(self, call: CallRun, how: str) -> ResolvedCall:
        """Settle one call as far as that can be done, and record it."""
        try:
            outcome = await (self._retry(call) if how == "retry" else self._reconcile(call))
        except Ended as ended:
            outcome = _still_unknown(call, ended.outcome.message)
        except ToolError as refused:
            outcome = _still_unknown(call, refused.message)
        word = _word(outcome)
        if not call.past:
            await self._log.record(call, outcome)
            return ResolvedCall(call.call_seq, call.call_id, word)
        if word == "unknown":
            return ResolvedCall(call.call_seq, call.call_id, word)
        text = _told(call, outcome, word)
        try:
            await self._note(call, how, word, text=text)
        except Ended:  # it could not be made durable: it is found out again another time
            return ResolvedCall(call.call_seq, call.call_id, "unknown")
        return ResolvedCall(call.call_seq, call.call_id, word, text)

    async def _retry(self, call: CallRun) -> Outcome:
        call.attempt += 1
        try:
            reply = await self._log.append(call.session, [], behalf=call.requester_key)
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            raise checkpoint_failed(call, error) from None
        call.mode = reply.sandbox_mode or self._pipeline.default_mode
        await self._pipeline.prepare(call, Slots(1))
        call.stop_if_cancelled()
        checkpoint = await self._note(call, "retry", "retrying")
        call.stop_if_cancelled()
        return await self._pipeline.body(call, checkpoint)

    async def _reconcile(self, call: CallRun) -> Outcome:
        problem = self._pipeline.checked(call)
        if problem is not None:
            raise problem
        found = await self._ask(call)
        call.stop_if_cancelled()
        outcome = _found(call, found)
        if not call.past:
            await self._note(call, "reconcile", _word(outcome), reason=getattr(found, "reason", ""))
        return outcome

    async def _note(self, call: CallRun, how: str, outcome: str, **more: str) -> Checkpoint:
        """Make durable what is decided; the acknowledgement is what a release needs (K2)."""
        return await self._log.decided(call, _settled(call, how, outcome, more))

    async def _ask(self, call: CallRun) -> Done | NotDone | Unknown:
        """Have the tool's function look at the outside world, where the tool runs."""
        spec = call.spec
        assert spec is not None  # noqa: S101 - only such calls get here
        worker: Worker | None = None
        if spec.place != "host":
            worker = await self._workers.worker_for(call, False)
        number = self._workers.number()
        answer: Promise[Outcome] = Promise()
        self._asked[number] = worker, answer
        late: Promise[None] = Promise()
        timer = self._port.at(self._port.now() + spec.timeout, lambda: late.resolve(None))
        if worker is not None:
            worker.bodies.add(number)
        try:
            if not self._send(worker, _question(call, number, spec.timeout)):
                self._let_go(worker, number)
                return Unknown("the process that would ask is gone")
            await first(call.cancelled, answer, late)
            if not answer.done:
                await self._stop(worker, number, answer)
            if answer.done:
                self._let_go(worker, number)
        finally:
            timer.cancel()
            del self._asked[number]
        call.stop_if_cancelled()
        if not answer.done:
            return Unknown(f"the tool's reconcile function did not answer in {spec.timeout:g} s")
        return read_reconciliation(answer.result())

    def _identity(self, worker: Worker | None) -> bytes | None:
        return worker.identity if worker is not None else self._bodies.host

    def _send(self, worker: Worker | None, message: Message) -> bool:
        target = self._identity(worker)
        return target is not None and self._port.send(target, message)

    def _let_go(self, worker: Worker | None, number: int) -> None:
        if worker is not None:
            self._workers.release(worker, number)

    async def _stop(self, worker: Worker | None, number: int, answer: Promise[Outcome]) -> None:
        """Ask the function to stop; one that does not keeps its worker from further work."""
        self._send(worker, CancelBody(number, "its time is up"))
        over: Promise[None] = Promise()
        timer = self._port.at(self._port.now() + GRACE, lambda: over.resolve(None))
        await first(answer, over)
        timer.cancel()
        if not answer.done and worker is not None:
            self._workers.retire(worker, number)


class Resolution:
    """The calls of one session that are being resolved, one after another, as a step is led.

    It has what a step has for those who cancel, wait and drain.
    """

    def __init__(
        self, resolving: Resolving, how: str, message_seq: int, key: bytes, calls: list[CallRun]
    ) -> None:
        self._resolving, self._how = resolving, how
        self.message_seq, self.requester_key, self.calls = message_seq, key, calls
        self.results: Promise[list[ResolvedCall]] = spawn(self._run()).result

    def cancel(self, call_ids: list[str] | None, reason: str) -> None:
        for call in self.calls:
            if call_ids is None or call.call_id in call_ids:
                call.cancel(reason)

    def cancel_unreleased(self, reason: str) -> None:
        for call in self.calls:
            if not call.released:
                call.cancel(reason)

    async def _run(self) -> list[ResolvedCall]:
        return [await self._resolving.resolve(call, self._how) for call in self.calls]


def _question(call: CallRun, number: int, timeout: float) -> Reconcile:
    raw = call.arguments.decode("utf-8", "surrogatepass")
    record = CallRecord(
        session_id=call.session,
        created_at=call.created_at,
        message_seq=call.identity.message_seq,
        call_id=call.call_id,
        tool=call.name,
        arguments=jsontext.decode(call.valid_arguments),
        raw_arguments=raw,
        idempotency_key=call.key,
        attempts=call.attempt,
    )
    return Reconcile(
        number=number,
        session=call.session,
        call_id=call.call_id,
        tool=call.name,
        record=encode_record(record),
        idempotency_key=call.key,
        timeout=timeout,
        workspace=call.workspace,
    )


def _settled(call: CallRun, how: str, outcome: str, more: dict[str, str]) -> Draft:
    data: dict[str, Any] = {
        "callSeq": call.call_seq,
        "callId": call.call_id,
        "messageSeq": call.identity.message_seq,
        "name": call.name,
        "how": how,
        "attempt": call.attempt,
        "outcome": outcome,
    }
    data |= {name: value for name, value in more.items() if value}
    return draft("interlock/settled", data, ignorable=True)


def _found(call: CallRun, found: Done | NotDone | Unknown) -> Outcome:
    if isinstance(found, Done):
        outcome = returned(found.value)
        return outcome if outcome.ok else _still_unknown(call, outcome.message)
    if isinstance(found, NotDone):
        why = f": {found.reason}" if found.reason else "."
        return Outcome.failure(
            Code.TOOL_NOT_STARTED,
            "The call was interrupted, and it has been looked up since: it had no effect, and will "
            f"have none{why} It can be made again if it is still wanted.",
            meta={"reconciled": "not-done"},
        )
    return _still_unknown(call, found.reason or "the outside world does not say")


def _still_unknown(call: CallRun, why: str) -> Outcome:
    return Outcome.failure(
        Code.TOOL_OUTCOME_UNKNOWN,
        f"The call was started, but how it ended is not known, also after another look: {why} "
        f"{advice(call)}",
    )


def _word(outcome: Outcome) -> str:
    if outcome.ok:
        return "done"
    if outcome.code == Code.TOOL_OUTCOME_UNKNOWN:
        return "unknown"
    return "not-done" if outcome.code == Code.TOOL_NOT_STARTED else "failed"


def _told(call: CallRun, outcome: Outcome, word: str) -> str:
    """What the model is told of a call whose result it has seen to be unknown."""
    head = (
        f"The outcome of your call {call.call_id!r} of {call.name}, which was unknown, is known now"
    )
    if word == "done":
        return shorten(f"{head}: it was done. Its result: {outcome.text()}", TOLD)
    return shorten(f"{head}: {outcome.message}", TOLD)
