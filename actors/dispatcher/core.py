"""The decisions of the tool dispatcher: which messages start, cancel and end what."""

from __future__ import annotations

from collections.abc import Callable

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, LogError

from ..errors import ToolError
from ..fibers import Promise, detach, first, spawn
from ..messages import (
    BodyFinished,
    BodyProgress,
    CancelCalls,
    CommandBuilt,
    CommandEnded,
    CommandOutput,
    ExecuteStep,
    Message,
    NestedCall,
    NestedResult,
    Reconciled,
    RegisterTools,
    ResolveCalls,
    SettleSession,
    Shutdown,
    StepExecuted,
    Stopped,
    ToolsRegistered,
    WireCall,
    WireResult,
    WorkerReady,
)
from ..owner import refusal
from ..port import Peer, Port
from ..roles import Role
from ..tools.identity import CallIdentity
from ..tools.outcome import Outcome
from ..tools.spec import ToolSpec
from .approvals import Approvals
from .bodies import Bodies
from .call import CallRun
from .judging import Judging
from .log import LogClient
from .pipeline import Pipeline
from .reopening import Reopening
from .resolving import Resolution, Resolving
from .step import StepRun
from .workers import Spawner, Worker, WorkerPool

#: K5: how deep calls may nest.
MAX_DEPTH = 8
#: How long (s) a finished step's results answer a repeated request (P9).
KEPT = 60.0
#: How long (s) the others may take to flush and end when the dispatcher ends with the host gone.
DRAIN_TIMEOUT = 60.0


class DispatcherCore:
    """Owns every call of one runtime. All methods run in the dispatcher's thread."""

    def __init__(
        self,
        port: Port,
        spawner: Spawner,
        end: Callable[[], None],
        *,
        incarnation: str,
        approval: str,
        approval_timeout: float,
        sandbox: str,
        workers: int,
    ) -> None:
        self._port, self._end = port, end
        self._log = LogClient(port)
        self._workers = WorkerPool(port, spawner, workers)
        self._workers.on_lost = self._worker_lost
        self._bodies = Bodies(port, self._workers)
        self._bodies.incarnation = incarnation
        self._approvals = Approvals(port, self._log, approval, approval_timeout)
        self._judging = Judging(port)
        self._pipeline = Pipeline(
            port,
            self._log,
            self._approvals,
            self._bodies,
            self._workers,
            self._judging,
            default_mode=sandbox,
        )
        self._specs: dict[str, ToolSpec] = {}
        #: The latest step of each session: a repeated request joins it (P9).
        self._steps: dict[str, StepRun] = {}
        self._resolving = Resolving(port, self._log, self._bodies, self._workers, self._pipeline)
        self._reopening = Reopening(port, self._log, self._steps, self._resolving)
        self._nested_calls: set[CallRun] = set()
        #: Keys of clients that have gone; none is ever used again.
        self._gone: set[bytes] = set()
        self._stopping = False
        self._host_gone = False
        self._calls = 0

    # Core protocol.

    def receive(self, peer: Peer, message: Message) -> None:
        match message:
            case ExecuteStep():
                self._execute(peer, message)
            case BodyFinished():
                self._bodies.finished(peer.identity, message)
            case BodyProgress():
                self._progress(peer, message)
            case NestedCall():
                detach(self._nested(peer, message))
            case CommandBuilt():
                self._pipeline.built(message)
            case CancelCalls(session, message_seq, reason, call_ids):
                for led in (self._steps.get(session), self._reopening.resolutions.get(session)):
                    mine = led is not None and led.requester_key == peer.key
                    if led is not None and mine and led.message_seq == message_seq:
                        led.cancel(call_ids, reason or "the caller cancelled it")
            case SettleSession():
                detach(self._reopening.settle(peer, message))
            case ResolveCalls():
                over = self._stopping or self._host_gone
                detach(self._reopening.resolve(peer, message, self._specs, over=over))
            case Reconciled():
                self._resolving.answered(peer.identity, message)
            case WorkerReady():
                self._workers.ready(peer.key, peer.identity, message)
            case RegisterTools():
                self._register(peer, message)
            case _:
                raise LogError(
                    Code.EVENT_INVALID, f"the dispatcher has no use for {type(message).__name__}"
                )

    def told(self, role: Role, message: Message) -> None:
        if role is not Role.LAUNCHER:
            return
        if isinstance(message, CommandEnded):
            self._bodies.command_ended(message)
        elif isinstance(message, CommandOutput):
            found = self._bodies.output(message)
            if found is not None:
                self._port.send(*found)

    def batch_done(self) -> None:
        self._bodies.writer_incarnation = self._port.peer_incarnation(Role.WRITER)
        self._log.batch_done()

    def peer_lost(self, role: Role) -> None:
        if role is Role.LAUNCHER:
            self._bodies.launcher_lost()
        elif role is Role.WRITER:
            # Nothing is released meanwhile (F2): its replies are lost, and checkpoints with them.
            self._bodies.writer_incarnation = ""

    def host_lost(self) -> None:
        """F1: release nothing more, let what runs end, record it, then end everything."""
        self._host_gone = True
        self._cancel_unreleased("the process that made the call has ended")
        self._pipeline.host = None
        self._bodies.host_lost()
        self._resolving.host_lost()
        detach(self._drain())

    def client_gone(self, key: bytes) -> Promise[None]:
        """As F1 for the calls of one client: what was released runs on and is recorded."""
        return spawn(self._client_gone(key)).result

    async def _client_gone(self, key: bytes) -> None:
        self._gone.add(key)
        why = "the client that made the call has gone"
        steps = [led for led in self._led() if led.requester_key == key]
        for step in steps:
            step.cancel_unreleased(why)
        self._cancel_nested(why, key)
        for step in steps:
            await first(step.results)

    def _led(self) -> list[StepRun | Resolution]:
        return [*self._steps.values(), *self._reopening.resolutions.values()]

    def shutdown(self, grace: float) -> Promise[Stopped]:
        """End in order: cancel, wait up to ``grace`` s, kill what is left, record all of it."""
        self._stopping = True
        return spawn(self._shut_down(grace)).result

    def counters(self) -> dict[str, int]:
        return {
            "calls": self._calls,
            "running_bodies": len(self._bodies),
            "releases": self._bodies.released,
            "approvals_asked": self._approvals.asked,
            "held_results": sum(len(held) for held in self._log.held.values()),
        } | self._workers.counters()

    # Tools.

    def _register(self, peer: Peer, message: RegisterTools) -> None:
        self._specs = {tool.spec.name: tool.spec for tool in message.tools}
        self._pipeline.use_tools(self._specs)
        self._pipeline.host = self._bodies.host = peer.identity
        self._judging.use(message)
        self._pipeline.has_gates = message.gates
        self._pipeline.has_guards = message.guards
        self._pipeline.has_hooks = message.hooks
        pickled = {t.spec.name: t.pickled for t in message.tools if t.spec.place != "host"}
        isolated = any(t.spec.isolate and t.spec.place == "worker" for t in message.tools)
        self._workers.start(pickled, warm_isolated=isolated)
        self._port.send(peer.identity, ToolsRegistered(message.rid))

    # Steps.

    def _execute(self, peer: Peer, message: ExecuteStep) -> None:
        if self._stopping or self._host_gone:
            raise ToolError(
                Code.ABORTED_BEFORE_DISPATCH,
                f"the runtime is closing; no call of session {message.session!r} was started",
            )
        _check_text(message)
        step = self._steps.get(message.session)
        joins = step is not None and step.message_seq == message.message_seq
        same = step is not None and joins and step.requester_key == peer.key
        if step is None or not same:
            _refuse_overlap(step, message)
            calls = [self._call(peer, message, call) for call in message.calls]
            if message.cancelled:
                for call in calls:
                    call.cancel("the step ended before it was run")
            self._calls += len(calls)
            step = StepRun(self._log, self._pipeline, message.message_seq, calls)
            self._steps[message.session] = step
            step.results.then(lambda: self._forget_later(message.session, step))
        results = step.results

        def done() -> None:
            try:
                reply: Message = StepExecuted(message.rid, results.result())
            except InterlockError as error:
                reply = refusal(message.rid, error)
            self._port.post(peer.identity, reply)

        results.then(done)

    def _forget_later(self, session: str, step: StepRun) -> None:
        """P9: a repeated request gets the recorded results for a while."""

        def forget() -> None:
            if self._steps.get(session) is step:
                del self._steps[session]

        self._port.at(self._port.now() + KEPT, forget)

    def _call(self, peer: Peer, message: ExecuteStep, call: WireCall) -> CallRun:
        return CallRun(
            identity=CallIdentity(message.session, message.message_seq, call.call_id),
            created_at=message.created_at,
            workspace=message.workspace,
            turn=message.turn,
            step=message.step,
            name=call.name,
            arguments=call.arguments,
            requester=peer.identity,
            requester_key=peer.key,
            spec=self._specs.get(call.name),
            call_seq=call.started_seq,
            covers=call.started_seq,
            undecided=call.undecided,
            never_released=call.never_released,
        )

    def _progress(self, peer: Peer, message: BodyProgress) -> None:
        body = self._bodies.find(message.number)
        word = self._bodies.progress(peer.identity, message)
        if body is not None and word is not None:
            self._port.send(body.call.requester, word)

    # Nested calls.

    async def _nested(self, peer: Peer, message: NestedCall) -> None:
        """K5: only the running parent's own connection, with its token, calls under it."""
        body = self._bodies.find(message.number)
        owner = None
        if body is not None:
            owner = body.worker.identity if body.worker is not None else self._bodies.host
        # A command has no token: nothing is nested under it.
        shown = body is not None and owner == peer.identity and body.token == message.token
        if body is None or not shown or not body.token:
            outcome = Outcome.failure(
                Code.TOOL_DENIED, "A nested call needs the token of the running call it belongs to."
            )
            result = WireResult("", message.name, -1, outcome)
        else:
            result = await self._run_nested(body.call, message)
        self._port.send(peer.identity, NestedResult(message.number, message.sub, result))

    async def _run_nested(self, parent: CallRun, message: NestedCall) -> WireResult:
        if parent.depth + 1 > MAX_DEPTH:
            outcome = Outcome.failure(
                Code.TOOL_DENIED, f"Calls nest {MAX_DEPTH} deep at most; this one was not started."
            )
            return WireResult(parent.shown_id, message.name, -1, outcome)
        if self._host_gone or parent.requester_key in self._gone:  # F1: nothing new is released
            outcome = Outcome.failure(
                Code.ABORTED_BEFORE_DISPATCH,
                "The call was not started: the process that made the outer call has ended.",
            )
            return WireResult(parent.shown_id, message.name, -1, outcome)
        call = self._nested_call(parent, message)
        self._calls += 1
        self._nested_calls.add(call)
        try:
            return await self._pipeline.nested(call)
        finally:
            self._nested_calls.discard(call)

    def _nested_call(self, parent: CallRun, message: NestedCall) -> CallRun:
        call = CallRun(
            identity=parent.identity,
            created_at=parent.created_at,
            workspace=parent.workspace,
            turn=parent.turn,
            step=parent.step,
            name=message.name,
            arguments=message.arguments,
            requester=parent.requester,
            requester_key=parent.requester_key,
            spec=self._specs.get(message.name),
            sub_path=f"{parent.sub_path}.{message.sub}",
            parent=parent,
            depth=parent.depth + 1,
        )
        # Cancelled with its parent, but not the other way round.
        parent.cancelled.then(lambda: call.cancel(parent.cancelled.result()))
        return call

    # Reopened sessions (F2).

    # Losing and ending.

    def worker_exited(self, key: bytes, how: str) -> None:
        """The shell saw the end of a worker's process."""
        self._workers.exited(key, how)

    def _worker_lost(self, worker: Worker, how: str) -> None:
        numbers = set(worker.bodies)  # each one's end takes it out of there
        self._bodies.worker_lost(worker, how)
        self._pipeline.worker_lost(numbers, how)
        self._resolving.worker_lost(numbers, how)

    def _cancel_unreleased(self, reason: str) -> None:
        for led in self._led():
            led.cancel_unreleased(reason)
        self._cancel_nested(reason)

    def _cancel_nested(self, reason: str, key: bytes | None = None) -> None:
        """Nested calls that wait: everybody's, or those of one client."""
        for call in list(self._nested_calls):
            if not call.released and key in (None, call.requester_key):
                call.cancel(reason)

    async def _drain(self) -> None:
        """F1: wait for what was released, have everything flushed, then end with the others."""
        await self._all_recorded()
        stops = [
            self._port.ask(role, lambda rid: Shutdown(rid, 0.0), DRAIN_TIMEOUT)
            for role in (Role.WRITER, Role.LAUNCHER)
        ]
        for stop in stops:
            await first(stop)
        self._workers.close()
        self._end()

    async def _shut_down(self, grace: float) -> Stopped:
        for led in self._led():
            led.cancel(None, "the runtime is closing")
        done = spawn(self._all_recorded()).result
        late: Promise[None] = Promise()
        timer = self._port.at(self._port.now() + grace, lambda: late.resolve(None))
        await first(done, late)
        timer.cancel()
        if not done.done:
            self._bodies.kill_all()
            await first(done)
        self._workers.close()
        return Stopped(0)

    async def _all_recorded(self) -> None:
        for led in self._led():
            await first(led.results)


def _check_text(message: ExecuteStep) -> None:
    """X3: arguments are text as the model wrote it; anything else is nobody's call."""
    for call in message.calls:
        try:
            call.arguments.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError as error:
            raise LogError(
                Code.EVENT_INVALID,
                f"call {call.call_id!r} of session {message.session!r} was not taken: its "
                f"arguments are no UTF-8 text ({error.reason} at byte {error.start})",
                session=message.session,
            ) from None


def _refuse_overlap(step: StepRun | None, message: ExecuteStep) -> None:
    """A session has one open step; a second one would hide the first from cancellations.

    X4: nor are anybody's calls pushed aside, or read, by somebody else's.
    """
    if step is not None and not step.results.done:
        raise LogError(
            Code.EVENT_INVALID,
            f"the calls of message {message.message_seq} of session {message.session!r} were not "
            f"taken: those of message {step.message_seq} still run; cancel them or wait for them",
            session=message.session,
        )
