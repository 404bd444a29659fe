"""The asynchronous surface: the same classes and methods, as coroutines on the caller's event loop.

Cancelling a task that waits for calls cancels the calls and waits for what is recorded of them
(P4).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from interlock.backends.codes import Code
from interlock.backends.event import Event
from interlock.backends.jsonl import Listing

from ..agent.answer import Answer
from ..errors import RuntimeFailureError
from ..tools.result import ToolResult
from ..tools.spec import ToolSpec
from .attached import ClientCore
from .config import make_config
from .connected import ConnectedCore, OnUnknown
from .core import CLOSE_TIMEOUT, INTERRUPT_TIMEOUT, RuntimeCore
from .flow import run_async
from .session import SessionCore
from .subscription import Progress, StreamedEvent, SubscriptionCore, WriteTrouble
from .turn import StepCore, ToolCall, TurnCore


class AsyncRuntime:
    """Hosts sessions: starts the four owners, watches and restarts them, ends them in order.

    Use it with ``async with``, or :meth:`start` and :meth:`close`, in one event loop; bodies of
    async ``host`` tools run on that loop.

    :param root: where session logs live; ``None``: the user's state directory.
    :param tools: what was declared with ``@tool``.
    :param gates: asked before the approval, ``guards`` last, ``hooks`` told of results: functions,
        which run in this process, and shipped pieces (:class:`~interlock.actors.Deny`, …).
    :param approval: ``"ask"`` or ``"never"``: the policy where a session's log does not say (A1).
    :param answerer: a function that decides requests, a :class:`~interlock.actors.Route` of one,
        ``"external"`` to keep them open for ``interlock approvals`` and
        :class:`~interlock.actors.Answering`, a list of these (the first answer wins), or ``None``:
        nobody can be asked, so nothing that asks is allowed.
    :param approval_timeout: seconds that a request stays open.
    :param sandbox: the mode of ``sandbox`` tools where a session's log does not say.
    :param durability: ``"journal"`` (one sync for many sessions) or ``"file"`` (one for each):
        acknowledged means that it survives power loss; ``"none"``: only the end of processes, and
        the log says so (K7).
    :param allow_file_durability: go on with ``"file"`` where no journal can be created under the
        root, and say so in each log; otherwise nothing is written there.
    :param allow_network_root: write also on a network file system, where locks and syncs may not
        hold.
    :param backend: ``"package.module:factory"``: where logs live instead of in files under
        ``root``. The writer's process imports it and calls ``factory(root, options)``, which
        returns a :class:`~interlock.backends.backend.LogBackend`.
    :param compression: ``"zstd"`` or ``"none"``, for new sessions.
    :param transport: ``"ipc"``, ``"tcp"`` on loopback, or ``"inproc"``: the owners as threads of
    this
        process, without keys (X1).
    :param workers: shared worker processes; ``None``: one per processor, at most four.
    :param worker_env: environment variables that workers get besides the usual few (X5).
    :raises RuntimeFailureError: ``ACTOR_LOST``: an owner could not be started.
    """

    def __init__(self, root: str | os.PathLike[str] | None = None, **options: Any) -> None:
        config = make_config(root, **options)
        self._make: Callable[[asyncio.AbstractEventLoop], ConnectedCore]
        self._make = lambda loop: RuntimeCore(config, loop)
        self._running: ConnectedCore | None = None

    @classmethod
    def connect(cls, address: str, key: str) -> Self:
        """A client of a runtime that another process hosts; ``async with`` or ``start`` attach it.

        Its tools run where that has them.

        An attached client creates, opens, calls and subscribes (X4). What it opened is its own:
        when it closes, or its process ends, its sessions are flushed and closed, and the runtime
        goes on. When the runtime ends, every request fails with ``ACTOR_LOST``.

        :param address: ``address`` of the runtime.
        :param key: ``client_key`` of the runtime, a secret.
        :raises ValueError: one of them is malformed.
        :raises RuntimeFailureError: (when it is started) ``ACTOR_LOST``: no runtime with that key
            listens there.

        >>> async with AsyncRuntime.connect(address, key) as runtime:
        ...     session = await runtime.create(cwd=".")
        """
        runtime = cls.__new__(cls)
        runtime._make = lambda _loop: ClientCore(address, key)
        runtime._running = None
        return runtime

    @property
    def _core(self) -> ConnectedCore:
        if self._running is None:
            raise RuntimeFailureError(
                Code.RUNTIME_CLOSED, "the runtime is not started; use it with `async with`"
            )
        return self._running

    async def start(self) -> Self:
        """Start the owners; ``async with`` does it too.

        :raises RuntimeFailureError: ``ACTOR_LOST``: an owner could not be started.
        """
        if self._running is None:
            self._running = self._make(asyncio.get_running_loop())
            await run_async(self._running.started())
        return self

    @property
    def root(self) -> Path:
        """Where session logs live."""
        return self._core.root

    @property
    def address(self) -> str:
        """Where others attach with :meth:`connect`; ``ValueError`` for an ``inproc`` runtime."""
        return self._core.address

    @property
    def directory(self) -> Path:
        """Where answerers in other processes of this user join (``Answering.connect``).

        :raises ValueError: this is an attached client: only the host knows it.
        """
        return self._core.directory

    @property
    def client_key(self) -> str:
        """The secret with which they do; it is nowhere but in memory and where you put it."""
        return self._core.client_key

    @property
    def processes(self) -> dict[str, int]:
        """The process ids of the four owners, by role."""
        return self._core.processes()

    async def create(
        self,
        session_id: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        parent: str | None = None,
        agent_preset: str | None = None,
    ) -> AsyncSession:
        """Make a new session. Nothing is on disk before its first event (L7).

        :raises SessionError: ``SESSION_ID_INVALID``, ``SESSION_EXISTS``.
        """
        flow = self._core.create(session_id, cwd, parent, agent_preset)
        return AsyncSession(self._core, await run_async(flow))

    async def open(
        self, session_id: str, *, wait: float = 0.0, on_unknown: OnUnknown = "report"
    ) -> AsyncSession:
        """Open a session for writing; an interrupted one is completed first (R2).

        :param wait: seconds to wait for the lock of a session that is open elsewhere.
        :param on_unknown: what to do about calls that may have run and whose outcome no log knows
            (R4): ``"report"`` says so to the model; ``"retry"`` runs ``read`` and ``idempotent``
            ones again, as the same call with the same idempotency key; ``"reconcile"`` asks the
            outside world with the tool's own ``reconcile`` function. What cannot be settled is
            reported; :attr:`AsyncSession.resolved` says what came of it. Takes up to the timeouts
            of the tools.
        :raises SessionError: ``SESSION_NOT_FOUND``, ``SESSION_LOCKED`` (naming the holder),
            ``SESSION_CORRUPT``, ``SESSION_FORMAT_UNSUPPORTED``.
        """
        opened = await run_async(self._core.open(session_id, wait, on_unknown))
        return AsyncSession(self._core, opened)

    def sessions(self) -> Iterator[Listing]:
        """Every session under the root, by header; bad ones are named (L17)."""
        return self._core.listing()

    async def stats(self) -> dict[str, Any]:
        """Counters of every owner, and what was restarted and why."""
        return await run_async(self._core.stats())

    async def close(self, grace: float = 5.0) -> dict[str, int]:
        """End in order: cancel running calls, wait up to ``grace`` s, record and flush everything.

        :returns: up to which ``seq`` each session that was open is durable (L16).
        """
        timeout = CLOSE_TIMEOUT if grace else INTERRUPT_TIMEOUT
        return await run_async(self._core.closed(grace=grace, timeout=timeout))

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stops = (KeyboardInterrupt, SystemExit, asyncio.CancelledError)
        interrupted = kind is not None and issubclass(kind, stops)
        await self.close(grace=0.0 if interrupted else 5.0)


class AsyncSession:
    """One agent's log, open for appending. Turns follow one another; use it from one thread."""

    def __init__(self, runtime: ConnectedCore, core: SessionCore) -> None:
        self._runtime, self._core = runtime, core

    @property
    def id(self) -> str:
        """The session's id."""
        return self._core.id

    @property
    def cwd(self) -> str | None:
        """The working directory: the workspace of its sandboxed commands."""
        return self._core.cwd

    @property
    def path(self) -> Path:
        """The log file (it exists once something is durable)."""
        return self._core.path

    @property
    def durable_seq(self) -> int:
        """The highest event known here to survive power loss; -1 before the first (L2)."""
        return self._core.durable_seq

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools that its calls may name."""
        return self._runtime.tools

    async def read(self, from_seq: int) -> list[Event]:
        """The events from ``from_seq`` on; the newest may not be durable yet."""
        return await run_async(self._core.events(from_seq))

    @property
    async def events(self) -> list[Event]:
        """All events, read from the log; the newest may not be durable yet."""
        return await run_async(self._core.events())

    @property
    def repaired_events(self) -> int:
        """How many events opening it appended to complete an interrupted turn (R2)."""
        return self._core.repaired_events

    @property
    def resolved(self) -> dict[str, str]:
        """What became of calls of unknown outcome when it was opened, by call id (R4): ``"done"``,
        ``"failed"``, ``"not-done"`` or ``"unknown"``. Those that were only reported are left out.
        """
        return dict(self._core.resolved)

    async def append(
        self,
        type: str,  # noqa: A002 - the log's own word
        data: dict[str, Any],
        *,
        ignorable: bool = False,
        surface_op: Literal["append"] | tuple[int, int] | None = None,
        sources: Iterable[int] | None = None,
        flush: bool = False,
    ) -> int:
        """Append a ``user/message``, ``system/message``, ``request/*`` or ignorable event; its seq.

        Appended is not durable (L2); ``flush=True`` returns when it is.

        :raises LogError: ``EVENT_INVALID``; with ``flush`` also ``LOG_WRITE_FAILED``.
        """
        return await run_async(
            self._core.append(
                type, data, ignorable=ignorable, surface_op=surface_op, sources=sources, flush=flush
            )
        )

    async def flush(self) -> int:
        """Make everything appended so far durable; the seq up to which the log is (L4).

        :raises LogError: ``LOG_WRITE_FAILED``: the events are kept, the next flush tries again.
        """
        return await run_async(self._core.flush())

    def turn(self, prompt: str | None = None) -> AsyncTurn:
        """A turn, as a context manager; ``prompt`` becomes its ``user/message``."""
        return AsyncTurn(TurnCore(self._core, prompt))

    async def set_approval_policy(self, policy: str) -> None:
        """Record ``"ask"`` or ``"never"``; in force for the very next request (A1)."""
        await run_async(self._core.set_approval_policy(policy))

    async def set_sandbox_mode(self, mode: str) -> None:
        """Record the sandbox mode for the commands that follow."""
        await run_async(self._core.set_sandbox_mode(mode))

    async def subscribe(self, from_seq: int = 0, *, progress: bool = False) -> AsyncSubscription:
        """Follow the session's events from ``from_seq`` on, live; also what calls say meanwhile."""
        return AsyncSubscription(
            await run_async(self._runtime.subscribe(self._core, from_seq, progress))
        )

    async def close(self) -> int:
        """Flush and let go of the session; the seq up to which it is durable (L16)."""
        return await run_async(self._core.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncTurn:
    """A turn: ``turn/start``, its prompt, its steps, ``turn/end``."""

    def __init__(self, core: TurnCore) -> None:
        self._core = core

    @property
    def number(self) -> int:
        """Turns count from 1 in a session."""
        return self._core.number

    def step(self) -> AsyncStep:
        """A step, as a context manager; everything earlier is durable before it starts (K1)."""
        return AsyncStep(self._core.new_step())

    async def end(self, reason: dict[str, Any]) -> None:
        """End the turn with the reason of its ``turn/end``; leaving the block ends it as
        completed.
        """
        await run_async(self._core.end(reason))

    async def __aenter__(self) -> Self:
        await run_async(self._core.start())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await run_async(self._core.finish(error))


class AsyncStep:
    """A step: one model answer, its calls, their results."""

    def __init__(self, core: StepCore) -> None:
        self._core = core

    @property
    def number(self) -> int:
        """Steps count from 1 in a turn."""
        return self._core.number

    async def assistant(self, text: str = "", calls: Sequence[ToolCall] = ()) -> int:
        """Append the model's answer; the ``seq`` of the ``assistant/message``."""
        return await run_async(self._core.assistant(text, calls))

    async def record(self, answer: Answer) -> int:
        """Append a model's answer with its stream; the ``seq`` of the ``assistant/message``."""
        return await run_async(self._core.record(answer))

    async def attempt(self, stream: Sequence[dict[str, Any]]) -> None:
        """Append an ``assistant/attempt``: chunks of a model that yielded no message."""
        await run_async(self._core.attempt(stream))

    async def execute(self) -> list[ToolResult]:
        """Run the calls of the answer; their results in model order.

        No body starts before its record is durable (K2). Ctrl-C cancels the calls and waits for
        what is recorded of them.
        """
        return await run_async(self._core.execute())

    def cancel(self, reason: str = "", call_ids: Sequence[str] | None = None) -> None:
        """Ask for the calls (or the named ones) to be cancelled, from any thread (P4).

        :meth:`execute` returns what became of them; ``reason`` stands in the results.
        """
        self._core.cancel(reason, call_ids)

    async def __aenter__(self) -> Self:
        await run_async(self._core.start())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            await run_async(self._core.finish())


class AsyncSubscription:
    """Iterates over a session's items until it is closed; see :class:`StreamedEvent`."""

    def __init__(self, core: SubscriptionCore) -> None:
        self._core = core

    async def __aiter__(self) -> AsyncIterator[StreamedEvent | Progress | WriteTrouble]:
        while True:
            item = await run_async(self._core.next())
            if item is None:
                if self._core.error is not None:
                    raise self._core.error
                return
            yield item

    def close(self) -> None:
        """Stop; a running iteration ends."""
        self._core.close()
