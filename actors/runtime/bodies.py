"""The host's own code: bodies of ``host`` tools, gates, guards, hooks, the answerer.

User code never runs in an actor's thread: each of these runs on threads (or the caller's event
loop) of its own, and what it says goes back through the host's actor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from interlock.backends.codes import Code

from ..bodies.runner import BodyDone, BodyJob, BodyRunner, reconcile_job
from ..errors import RuntimeFailureError
from ..messages import (
    ApprovalAsked,
    ApprovalGone,
    BodyFinished,
    BodyProgress,
    CancelBody,
    JudgeCall,
    Judged,
    Message,
    NestedCall,
    NestedResult,
    Reconcile,
    Reconciled,
    Release,
)
from ..roles import Role
from ..tools.gates import GateCall, GateRunner, fold
from ..tools.result import ToolResult
from ..tools.threads import Threads
from .callbacks import Callbacks
from .config import RuntimeConfig


class HostBodies:
    """Runs the host's code when the dispatcher or the broker asks for it."""

    def __init__(self, config: RuntimeConfig, tell: Callable[[Role, Message], None]) -> None:
        self._config, self._tell = config, tell
        self._runner = BodyRunner()
        self._judges = GateRunner()
        self._threads = Threads("interlock-host")
        self._callbacks = Callbacks(config.answerers, tell)
        self._passed = 0
        self._sub = 0
        self._nested: dict[tuple[int, int], Future[ToolResult]] = {}

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run async bodies on the embedding program's event loop."""
        self._runner = BodyRunner(loop)

    def close(self) -> None:
        self._runner.close(0.0)
        self._judges.close()
        self._threads.close()
        self._callbacks.close()

    def broker_lost(self) -> None:
        """F4: what it asked is settled (any thread)."""
        self._callbacks.broker_lost()

    def dispatcher_lost(self) -> None:
        """F3: what the dispatcher released is over, and nobody answers its nested calls (any
        thread).

        The calls' outcomes are recorded as unknown; a body in this process can only be asked to
        stop.
        """
        nested, self._nested = self._nested, {}
        for waiting in nested.values():
            waiting.set_exception(
                RuntimeFailureError(
                    Code.ACTOR_LOST,
                    "the dispatcher that led this call has ended, and the call with it",
                )
            )
        for body in self._runner.running():
            self._runner.cancel(body.number, "the dispatcher that led this call has ended")

    def take(self, message: Message) -> bool:
        """Handle ``message`` if it is for the host's code (the host's thread)."""
        match message:
            case Release():
                self._run(message)
            case Reconcile():
                self._reconcile(message)
            case CancelBody(number, reason):
                self._runner.cancel(number, reason)
            case NestedResult(number, sub, result):
                waiting = self._nested.pop((number, sub), None)
                if waiting is not None:
                    waiting.set_result(ToolResult.of(result.call_id, result.name, result.outcome))
            case JudgeCall():
                self._threads.submit(lambda: self._judge(message))
            case ApprovalAsked():
                self._callbacks.asked(message)
            case ApprovalGone(request):
                self._callbacks.gone(request)
            case _:
                return False
        return True

    # Bodies.

    def _run(self, message: Release) -> None:
        if message.number <= self._passed:
            return  # K6: single use
        self._passed = message.number
        number, token = message.number, message.token
        job = BodyJob(
            number=number,
            tool=self._config.tools[message.tool],
            arguments=message.arguments,
            session_id=message.session,
            call_id=message.call_id,
            attempt=message.attempt,
            idempotency_key=message.idempotency_key,
            cwd=message.workspace,
            timeout=message.timeout,
            progress=lambda data: self._tell(Role.DISPATCHER, BodyProgress(number, data)),
            nested=lambda name, arguments: self._call_tool(number, token, name, arguments),
        )
        self._runner.start(job, self._finished)

    def _finished(self, done: BodyDone) -> None:
        stopped = done.cancelled and done.outcome.code == Code.ABORTED
        self._tell(Role.DISPATCHER, BodyFinished(done.number, done.outcome, stopped))

    def _reconcile(self, message: Reconcile) -> None:
        if message.number > self._passed:
            self._passed = message.number
            tool = self._config.tools[message.tool]
            self._runner.start(reconcile_job(message, tool), self._reconciled)

    def _reconciled(self, done: BodyDone) -> None:
        self._tell(Role.DISPATCHER, Reconciled(done.number, done.outcome))

    def _call_tool(
        self, number: int, token: str, name: str, arguments: bytes
    ) -> Future[ToolResult]:
        self._sub += 1
        waiting: Future[ToolResult] = Future()
        self._nested[(number, self._sub)] = waiting
        self._tell(Role.DISPATCHER, NestedCall(number, token, self._sub, name, arguments))
        return waiting

    # Judges.

    def _judge(self, message: JudgeCall) -> None:
        call = GateCall(
            session_id=message.session,
            message_seq=message.message_seq,
            call_id=message.call_id,
            tool=self._config.tools[message.tool].spec,
            raw_arguments=message.arguments.decode("utf-8", "surrogatepass"),
        )
        decision, reason = self._decision(message, call)
        self._tell(Role.DISPATCHER, Judged(message.rid, decision, reason))

    def _decision(self, message: JudgeCall, call: GateCall) -> tuple[str, str]:
        if message.phase == "hook":
            return "allow", self._hooks(message, call)
        if message.phase == "gate":
            decision = self._judges.gates(self._config.gates, call)
        else:
            decision = fold([self._judges.guards(self._config.guards, call)])
        return decision.verdict.name.lower(), decision.reason

    def _hooks(self, message: JudgeCall, call: GateCall) -> str:
        result = message.result
        if result is None:
            return ""
        seen = ToolResult.of(result.call_id, result.name, result.outcome)
        notes = [
            # Each hook gets a copy: what it does to it changes nothing.
            self._judges.post(hook, call, replace(seen, meta=dict(seen.meta)))
            for hook in self._config.hooks
        ]
        return "\n".join(note for note in notes if note)
