"""The worker's actor: takes releases from the dispatcher, hands them to the runner, reports ends.

It runs nothing but releases whose number is higher than any it has seen (K6), unpickles nothing but
what the dispatcher passes on from the host (X2), and ends at once when the dispatcher does.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pykka
import zmq
from interlock.backends.codes import Code
from pykka._envelope import Envelope

from ..bodies.builder import Purpose, read_command
from ..bodies.runner import BodyDone, BodyJob, BodyRunner, reconcile_job
from ..liveness import Watch
from ..mailbox import Batch, Mailbox
from ..messages import (
    BodyFinished,
    BodyProgress,
    BuildCommand,
    CancelBody,
    CommandBuilt,
    LoadTools,
    Message,
    NestedCall,
    NestedResult,
    Reconcile,
    Reconciled,
    Release,
    WorkerReady,
)
from ..roles import Role
from ..tools.declare import Tool
from ..tools.outcome import Outcome, describe
from ..tools.pack import unpack
from ..tools.result import ToolResult
from .config import WorkerConfig


class WorkerActor(pykka.ThreadingActor):
    """One per worker process; its thread owns the connection to the dispatcher."""

    use_daemon_thread = True

    def __init__(
        self,
        config: WorkerConfig,
        context: zmq.Context[zmq.Socket[bytes]],
        end: Callable[[], None],
    ) -> None:
        super().__init__()
        self._config, self._context, self._end = config, context, end
        self._tools: dict[str, Tool[..., Any]] = {}
        self._runner = BodyRunner()
        self._passed = 0
        self._nested: dict[tuple[int, int], Future[ToolResult]] = {}
        self._next_sub = 0

    @staticmethod
    def _create_actor_inbox() -> Mailbox:
        return Mailbox()

    @property
    def _mailbox(self) -> Mailbox:
        inbox = self.actor_inbox
        assert isinstance(inbox, Mailbox)  # noqa: S101 - made by _create_actor_inbox above
        return inbox

    def on_start(self) -> None:
        try:
            self._begin()
        except BaseException:
            # pykka stops an actor whose start fails without calling either hook: end the process.
            self._end()
            raise

    def _begin(self) -> None:
        config = self._config
        watch = Watch.process(config.parent_pid)
        if watch is None or os.getppid() != config.parent_pid:
            self._end()
            return
        self._parent = watch
        self._mailbox.use(self._context, config.keys, Role.WORKER)
        self._mailbox.watch(watch.descriptor)
        self._mailbox.connect(Role.DISPATCHER, config.endpoint, config.server_public)
        self._say(WorkerReady(os.getpid(), False, {}))

    def on_failure(self, *_error: object) -> None:
        self._end()

    def on_stop(self) -> None:
        self._end()

    def on_receive(self, message: Any) -> None:
        if isinstance(message, Batch):
            if message.fired:  # F3: the dispatcher is gone, and every body ends with it
                end_group()
            for _, received in message.answers:
                self._receive(received)
        elif isinstance(message, Message):
            self._say(message)

    def _say(self, message: Message) -> None:
        self._mailbox.tell(Role.DISPATCHER, message)

    def _say_later(self, message: Message) -> None:
        """From another thread: a socket stays in its own."""
        self.actor_inbox.put(Envelope(message))

    def _receive(self, message: Message) -> None:
        match message:
            case Release():
                self._run(message)
            case CancelBody(number, reason):
                self._runner.cancel(number, reason)
            case BuildCommand():
                self._build(message)
            case Reconcile():
                self._reconcile(message)
            case NestedResult(number, sub, result):
                waiting = self._nested.pop((number, sub), None)
                if waiting is not None:
                    waiting.set_result(ToolResult.of(result.call_id, result.name, result.outcome))
            case LoadTools(tools):
                self._load(tools)
            case _:
                return

    def _load(self, tools: dict[str, bytes]) -> None:
        failed = {}
        for name, pickled in tools.items():
            try:
                tool = unpack(pickled)
                _ = tool.coerce  # built now, or the first call of each tool would wait for it
            except Exception as error:  # this tool's calls are told why; the others go on
                failed[name] = describe(error)
            else:
                self._tools[name] = tool
        self._say(WorkerReady(os.getpid(), True, failed))

    def _is_new(self, number: int) -> bool:
        """K6: a duplicate, replayed or late message runs nothing."""
        if number <= self._passed:
            return False
        self._passed = number
        return True

    def _run(self, message: Release) -> None:
        if not self._is_new(message.number):
            return
        number, token = message.number, message.token
        job = BodyJob(
            number=number,
            tool=self._tools[message.tool],
            arguments=message.arguments,
            session_id=message.session,
            call_id=message.call_id,
            attempt=message.attempt,
            idempotency_key=message.idempotency_key,
            cwd=message.workspace,
            timeout=message.timeout,
            progress=lambda data: self._say_later(BodyProgress(number, data)),
            nested=lambda name, arguments: self._call_tool(number, token, name, arguments),
        )
        self._runner.start(job, self._finished)

    def _finished(self, done: BodyDone) -> None:
        stopped = done.cancelled and done.outcome.code == Code.ABORTED
        self._say_later(BodyFinished(done.number, done.outcome, stopped))

    def _call_tool(
        self, number: int, token: str, name: str, arguments: bytes
    ) -> Future[ToolResult]:
        """K5: a nested call, from the body's thread; the dispatcher checks the token."""
        self._next_sub += 1
        sub = self._next_sub
        waiting: Future[ToolResult] = Future()
        self._nested[(number, sub)] = waiting
        self._say_later(NestedCall(number, token, sub, name, arguments))
        return waiting

    def _build(self, message: BuildCommand) -> None:
        if not self._is_new(message.number):
            return
        job = BodyJob(
            number=message.number,
            tool=self._tools[message.tool],
            arguments=message.arguments,
            purpose=Purpose.BUILD,
            session_id=message.session,
            call_id=message.call_id,
            idempotency_key=message.idempotency_key,
            cwd=message.workspace,
        )
        self._runner.start(job, self._built)

    def _reconcile(self, message: Reconcile) -> None:
        if self._is_new(message.number):
            tool = self._tools[message.tool]
            self._runner.start(reconcile_job(message, tool), self._reconciled)

    def _reconciled(self, done: BodyDone) -> None:
        self._say_later(Reconciled(done.number, done.outcome))

    def _built(self, done: BodyDone) -> None:
        outcome: Outcome = done.outcome
        command = read_command(outcome) if outcome.ok else None
        self._say_later(CommandBuilt(done.number, command, outcome.code, outcome.message))


def end_group() -> None:
    """End this process and everything that its bodies started in its process group."""
    os.killpg(os.getpgrp(), signal.SIGKILL)
