"""The life of one call, top to bottom (P1).

``tool/call`` appended → arguments validated → command built (``sandbox`` tools) → gates → approval
if asked → guards → checkpoint → body → post hooks → ``tool/result`` appended.
"""

from __future__ import annotations

from typing import Any

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError
from interlock.backends.event import draft
from interlock.sandbox.policy import Mode, wider

from ..bodies.validate import validate
from ..errors import ToolError
from ..fibers import Promise, first
from ..messages import (
    Appended,
    BuildCommand,
    CommandBuilt,
    JudgeCall,
    Judged,
    Widening,
    WireResult,
)
from ..port import PeerLostError, Port, ReplyTimeoutError
from ..release import Checkpoint
from ..tools.failure import InvalidArgumentsError
from ..tools.fit import INLINE_LIMIT, preview
from ..tools.outcome import Outcome, shorten
from ..tools.spec import ToolSpec
from .approvals import Approvals
from .bodies import Bodies
from .call import CallRun, Ended
from .ends import dispatcher_lost, with_note
from .judging import Judging
from .log import LogClient, appended_anyway, checkpoint_failed
from .workers import WorkerPool

#: P2: a gate or guard that takes longer (s) denies; a little more for the way to the host and back.
JUDGE_TIMEOUT = 10.0 + 1.0
#: A builder is pure and short (s).
BUILD_TIMEOUT = 30.0
#: Characters of a justification that are shown and stored.
JUSTIFICATION = 2000

#: P2: gates fold to the strictest answer.
STRICTNESS = {"allow": 0, "ask": 1, "cancel": 2, "deny": 3}


class Pipeline:
    """Leads calls from their record to their result. Runs in the dispatcher's thread."""

    def __init__(
        self,
        port: Port,
        log: LogClient,
        approvals: Approvals,
        bodies: Bodies,
        workers: WorkerPool,
        judging: Judging,
        *,
        default_mode: str,
    ) -> None:
        self._port, self._log, self._approvals = port, log, approvals
        self._bodies, self._workers, self._judging = bodies, workers, judging
        self.default_mode = default_mode
        self._names: list[str] = []
        self._builds: dict[int, Promise[CommandBuilt]] = {}
        self.host: bytes | None = None
        self.has_gates = self.has_guards = self.has_hooks = False

    def use_tools(self, specs: dict[str, ToolSpec]) -> None:
        self._names = sorted(specs)

    # Before the record.

    def checked(self, call: CallRun) -> Ended | None:
        """:meth:`_problem`, found out once per call."""
        if not call.checked:
            call.checked, call.problem = True, self._problem(call)
        return call.problem

    def _problem(self, call: CallRun) -> Ended | None:
        """Why the call can never run: an unknown tool or invalid arguments."""
        if call.spec is None:
            return Ended(
                Code.UNKNOWN_TOOL,
                f"There is no tool named {call.name!r}. Known tools: "
                f"{', '.join(self._names) or 'none'}.",
            )
        try:
            valid = validate(call.spec, call.arguments.decode("utf-8", "surrogatepass"))
        except (InvalidArgumentsError, UnicodeDecodeError) as error:
            return Ended(Code.INVALID_ARGS, str(error))
        call.valid_arguments = valid.raw
        return None

    def is_plain(self, call: CallRun) -> bool:
        """Nobody else is asked between the record and the body: one message appends and flushes."""
        spec = call.spec
        return (
            spec is not None
            and spec.place != "sandbox"
            and spec.approval != "ask"
            and not self.has_gates
            and not self.has_guards
            and self.checked(call) is None
        )

    # The life of an outermost call.

    async def live(
        self, call: CallRun, appended: Promise[Appended], index: int, *, plain: bool, slots: Slots
    ) -> WireResult:
        """Lead one call from its ``tool/call`` (under way) to its recorded result."""
        try:
            outcome = await self._outcome(call, appended, index, plain=plain, slots=slots)
        except Ended as ended:
            outcome = ended.outcome
        except ToolError as refused:  # the release did not hold
            outcome = Outcome.failure(refused.code, refused.message)
        self._judging.ended(call)
        slots.leave(call)
        return await self._log.record(call, outcome)

    async def lost(self, call: CallRun, slots: Slots) -> WireResult:
        """F3: an earlier life of the dispatcher recorded this call; its bodies ended with it."""
        await self._approvals.close(call)
        slots.leave(call)
        return await self._log.record(call, dispatcher_lost(call))

    async def _outcome(
        self, call: CallRun, appended: Promise[Appended], index: int, *, plain: bool, slots: Slots
    ) -> Outcome:
        try:
            # Also when cancelled meanwhile: the result has to cite the record that it answers.
            reply = await appended
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            call.call_seq = appended_anyway(error, index)
            call.refused = isinstance(error, InterlockError) and call.call_seq < 0
            if isinstance(error, ReplyTimeoutError):  # K3: late
                call.call_seq = await self._log.recorded_at(call)
            call.stop_if_cancelled()
            raise checkpoint_failed(call, error) from None
        call.call_seq = call.covers = reply.first_seq + index
        call.writer = reply.incarnation
        call.stop_if_cancelled()  # K4: the acknowledgement came, and comes too late
        call.mode = reply.sandbox_mode or self.default_mode
        await self.prepare(call, slots)
        # A shipped gate may have had it asked for all the same: then more is to be covered (K2).
        if plain and not call.asks:
            checkpoint = Checkpoint(reply)
        else:
            checkpoint = await self._log.checkpoint(call)
        call.stop_if_cancelled()
        return await self.body(call, checkpoint)

    async def prepare(self, call: CallRun, slots: Slots) -> None:
        """Everything between the record and the checkpoint; ends the call where it may not run."""
        problem = self.checked(call)
        if problem is not None:
            raise problem
        if call.spec is not None and call.spec.place == "sandbox":
            call.command = await self._build(call)
        await self._gates(call, slots)
        await self._guards(call)

    async def body(self, call: CallRun, checkpoint: Checkpoint) -> Outcome:
        outcome = await self._bodies.run(call, checkpoint)
        call.inline_limit = self._judging.result_limit(call.name)
        if not self.has_hooks:
            return outcome
        judged = await self._judge(call, "hook", outcome)
        return with_note(outcome, judged.reason) if judged.reason else outcome

    # Its parts.

    async def _build(self, call: CallRun) -> Any:
        """Have a worker run the pure builder, so that what is judged and shown is the argv."""
        if not call.workspace:
            raise Ended(
                Code.TOOL_NOT_STARTED,
                "The call was not started: a confined command needs a workspace, and this session "
                "has none. Create it with cwd=….",
            )
        worker = await self._workers.worker_for(call, False)
        number = self._workers.number()
        built: Promise[CommandBuilt] = Promise()
        self._builds[number] = built
        worker.bodies.add(number)
        message = BuildCommand(
            number,
            call.session,
            call.identity.message_seq,
            call.call_id,
            call.name,
            call.valid_arguments,
            call.key,
            call.workspace,
        )
        late: Promise[None] = Promise()
        timer = self._port.at(self._port.now() + BUILD_TIMEOUT, lambda: late.resolve(None))
        try:
            if not self._port.send(worker.identity, message):
                raise Ended(Code.TOOL_NOT_STARTED, "The call was not started: its worker is gone.")
            await first(call.cancelled, built, late)
        finally:
            timer.cancel()
            self._builds.pop(number, None)
            self._workers.release(worker, number)
        call.stop_if_cancelled()
        if not built.done:
            raise Ended(
                Code.TOOL_FAILED,
                f"The command was not built within {BUILD_TIMEOUT:g} s; nothing ran.",
            )
        reply = built.result()
        if reply.command is None:
            raise Ended(Code(reply.code or Code.TOOL_FAILED), reply.message)
        return reply.command

    def built(self, message: CommandBuilt) -> None:
        promise = self._builds.get(message.number)
        if promise is not None:
            promise.resolve(message)

    def worker_lost(self, numbers: set[int], how: str) -> None:
        """Builders that died with their worker."""
        for number in numbers:
            promise = self._builds.get(number)
            if promise is not None:
                promise.resolve(
                    CommandBuilt(
                        number, None, Code.TOOL_FAILED, f"The command was not built: {how}."
                    )
                )

    async def _gates(self, call: CallRun, slots: Slots) -> None:
        reasons: list[str] = []
        if call.spec is not None and call.spec.approval == "ask":
            reasons.append(f"the tool {call.name} asks for approval of every call")
        judged = await self._judging.gates(call)
        if self.has_gates and judged.decision != "deny":
            judged = _stricter(judged, await self._judge(call, "gate", None))
        _end_unless_open(judged)
        if judged.decision == "ask":
            reasons.append(judged.reason or "a gate asks")
        widening = self._widening(call)
        if call.granted:  # A9: this very call was shown and allowed; a retry is the same call
            if widening is not None:
                call.widened_from, call.mode = widening.mode_from, widening.mode_to
            return
        if not reasons and widening is None:
            return
        if call.past:
            raise Ended(
                Code.TOOL_DENIED,
                "The call was not retried: it needs an approval, and its turn has ended.",
            )
        slots.leave(call)  # P3: a call that waits for a person leaves the group
        if reasons:
            await self._approvals.approve(call, _shown("; ".join(reasons), call))
        if widening is not None:
            await self._widen(call, widening)
        await call.unless_cancelled(slots.enter(call))

    def _widening(self, call: CallRun) -> Widening | None:
        """S4: the command asks for another mode; a wider one needs an approval of its own."""
        command = call.command
        if command is None or command.mode is None or command.mode == call.mode:
            return None
        if wider(Mode(command.mode), Mode(call.mode)):
            justification = shorten(command.justification or "", JUSTIFICATION)
            return Widening(call.mode, command.mode, justification or "no justification given")
        call.mode = command.mode
        return None

    async def _widen(self, call: CallRun, widening: Widening) -> None:
        """For this call alone: the mode of the session stays what it is."""
        call.widened_from, call.mode = widening.mode_from, widening.mode_to
        reason = (
            f"run outside {widening.mode_from}, in {widening.mode_to}: {widening.justification}"
        )
        await self._approvals.approve(call, _shown(reason, call), widening)

    async def _guards(self, call: CallRun) -> None:
        """P2: guards run last, and nothing later reopens what they closed."""
        _end_unless_open(self._judging.guards(call))
        if self.has_guards:
            judged = await self._judge(call, "guard", None)
            _end_unless_open(judged)
            if judged.decision == "ask":
                raise Ended(
                    Code.TOOL_DENIED, "A guard asked for approval, which only gates may do."
                )

    async def _judge(self, call: CallRun, phase: str, outcome: Outcome | None) -> Judged:
        """Ask the host's own code. No answer, or a broken one, denies (P2)."""
        if self.host is None:
            return Judged(0, "deny", "the process that judges calls is gone")
        result = WireResult(call.call_id, call.name, -1, outcome) if outcome is not None else None
        asked = self._port.ask_peer(
            self.host,
            lambda rid: JudgeCall(
                rid,
                phase,
                call.session,
                call.identity.message_seq,
                call.call_id,
                call.name,
                call.arguments,
                call.command.argv if call.command else None,
                result,
            ),
            JUDGE_TIMEOUT,
        )
        try:
            if phase == "hook":
                await first(asked)
                judged = asked.result()
            else:
                judged = await call.unless_cancelled(asked)
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            return Judged(0, "deny", f"the {phase}s did not answer ({error})")
        if not isinstance(judged, Judged) or judged.decision not in STRICTNESS:
            return Judged(0, "deny", f"the {phase}s gave no decision")
        return judged

    # Nested calls (K5).

    async def nested(self, call: CallRun) -> WireResult:
        """Lead a call that a body made: recorded under its parent, on the parent's checkpoint."""
        arguments = _json_or_text(call.arguments)
        ids = {
            "rootCallId": call.call_id,
            "parentCallId": call.parent.shown_id if call.parent else call.call_id,
            "subCallId": call.shown_id,
            "name": call.name,
            "arguments": arguments,
        }
        try:
            outcome = await self._nested_outcome(call, ids)
        except Ended as ended:
            outcome = ended.outcome
        except ToolError as refused:
            outcome = Outcome.failure(refused.code, refused.message)
        self._judging.ended(call)
        blocks = preview(outcome, limit=call.inline_limit or INLINE_LIMIT)
        end = ids | {"isError": not outcome.ok, "content": blocks}
        try:
            await self._log.note(call, [*call.notices, draft("tool/ptc-dispatch", end)])
        except (InterlockError, PeerLostError, ReplyTimeoutError):
            # The parent's own result will be held or unknown; the log stays a clean prefix.
            return WireResult(call.shown_id, call.name, -1, outcome)
        return WireResult(call.shown_id, call.name, call.covers, outcome)

    async def _nested_outcome(self, call: CallRun, ids: dict[str, Any]) -> Outcome:
        parent = call.parent
        assert parent is not None and parent.checkpoint is not None  # noqa: S101, PT018
        call.mode = parent.mode or self.default_mode
        try:
            reply = await self._log.note(call, [draft("tool/ptc-dispatch-start", ids)])
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            raise checkpoint_failed(call, error) from None
        call.call_seq, call.writer = reply.first_seq, reply.incarnation
        call.mode = reply.sandbox_mode or self.default_mode
        await self.prepare(call, Slots(1))
        if call.asks:
            checkpoint = await self._log.checkpoint(call)
        else:
            checkpoint, call.covers = parent.checkpoint, parent.covers
        call.stop_if_cancelled()
        return await self.body(call, checkpoint)


class Slots:
    """The bounded room that the calls of one group share (P3)."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._inside: set[int] = set()
        self._waiting: list[tuple[CallRun, Promise[None]]] = []

    @property
    def free(self) -> int:
        return max(0, self.room - len(self._inside))

    def enter(self, call: CallRun) -> Promise[None]:
        """Take a place, now or when one is free; oldest first."""
        promise: Promise[None] = Promise()
        self._waiting.append((call, promise))
        self._serve()
        return promise

    def leave(self, call: CallRun) -> None:
        self._inside.discard(id(call))
        self._waiting = [(c, p) for c, p in self._waiting if c is not call]
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self.free:
            call, promise = self._waiting.pop(0)
            self._inside.add(id(call))
            promise.resolve(None)


def _stricter(one: Judged, other: Judged) -> Judged:
    """P2: gates fold to the strictest answer; of two that are the same, both reasons count."""
    if one.decision == other.decision:
        return Judged(0, one.decision, "; ".join(filter(None, (one.reason, other.reason))))
    return max(one, other, key=lambda judged: STRICTNESS[judged.decision])


def _end_unless_open(judged: Judged) -> None:
    if judged.decision == "deny":
        raise Ended(
            Code.TOOL_DENIED,
            f"The call was denied{': ' + judged.reason if judged.reason else ''}. "
            "Nothing of it ran.",
        )
    if judged.decision == "cancel":
        raise Ended(
            Code.ABORTED_BEFORE_DISPATCH,
            f"The call was cancelled{': ' + judged.reason if judged.reason else ''}. "
            "Nothing of it ran.",
        )


def _shown(reason: str, call: CallRun) -> str:
    """A6: what an answerer sees: the reason, and the command line of a sandboxed call."""
    if call.command is None:
        return reason
    import shlex

    return f"{reason}: {shlex.join(call.command.argv)}"


def _json_or_text(raw: bytes) -> Any:
    from ..tools import jsontext

    try:
        return jsontext.decode(raw) if raw else {}
    except ValueError:
        return raw.decode("utf-8", "replace")
