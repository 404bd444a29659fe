"""The synchronous surface. Each method runs its flow in the calling thread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from interlock.backends.event import Event
from interlock.backends.jsonl import Listing

from ..agent.answer import Answer
from ..tools.result import ToolResult
from ..tools.spec import ToolSpec
from .attached import ClientCore
from .config import make_config
from .connected import ConnectedCore, OnUnknown
from .core import CLOSE_TIMEOUT, INTERRUPT_TIMEOUT, RuntimeCore
from .flow import run_sync
from .session import SessionCore
from .subscription import Progress, StreamedEvent, SubscriptionCore, WriteTrouble
from .turn import StepCore, ToolCall, TurnCore


class Runtime:
    """Hosts sessions: starts the four owners, watches and restarts them, ends them in order.

    Use it as a context manager. Every method may be called from any thread.

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
        self._core: ConnectedCore = RuntimeCore(make_config(root, **options))
        run_sync(self._core.started())

    @classmethod
    def connect(cls, address: str, key: str) -> Self:
        """Attach to a runtime that another process hosts; its tools run where that has them.

        An attached client creates, opens, calls and subscribes (X4). What it opened is its own:
        when it closes, or its process ends, its sessions are flushed and closed, and the runtime
        goes on. When the runtime ends, every request fails with ``ACTOR_LOST``.

        :param address: ``address`` of the runtime.
        :param key: ``client_key`` of the runtime, a secret.
        :raises ValueError: one of them is malformed.
        :raises RuntimeFailureError: ``ACTOR_LOST``: no runtime with that key listens there.

        >>> with Runtime.connect(address, key) as runtime:
        ...     session = runtime.create(cwd=".")
        """
        runtime = cls.__new__(cls)
        runtime._core = ClientCore(address, key)
        run_sync(runtime._core.started())
        return runtime

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

    def create(
        self,
        session_id: str | None = None,
        *,
        cwd: str | os.PathLike[str] | None = None,
        parent: str | None = None,
        agent_preset: str | None = None,
    ) -> Session:
        """Make a new session. Nothing is on disk before its first event (L7).

        :raises SessionError: ``SESSION_ID_INVALID``, ``SESSION_EXISTS``.
        """
        flow = self._core.create(session_id, cwd, parent, agent_preset)
        return Session(self._core, run_sync(flow))

    def open(
        self, session_id: str, *, wait: float = 0.0, on_unknown: OnUnknown = "report"
    ) -> Session:
        """Open a session for writing; an interrupted one is completed first (R2).

        :param wait: seconds to wait for the lock of a session that is open elsewhere.
        :param on_unknown: what to do about calls that may have run and whose outcome no log knows
            (R4): ``"report"`` says so to the model; ``"retry"`` runs ``read`` and ``idempotent``
            ones again, as the same call with the same idempotency key; ``"reconcile"`` asks the
            outside world with the tool's own ``reconcile`` function. What cannot be settled is
            reported. :attr:`Session.resolved` says what came of it, within the tools' timeouts.
        :raises SessionError: ``SESSION_NOT_FOUND``, ``SESSION_LOCKED`` (naming the holder),
            ``SESSION_CORRUPT``, ``SESSION_FORMAT_UNSUPPORTED``.
        """
        return Session(self._core, run_sync(self._core.open(session_id, wait, on_unknown)))

    def sessions(self) -> Iterator[Listing]:
        """Every session under the root, by header; bad ones are named (L17)."""
        return self._core.listing()

    def stats(self) -> dict[str, Any]:
        """Counters of every owner, and what was restarted and why."""
        return run_sync(self._core.stats())

    def close(self, grace: float = 5.0) -> dict[str, int]:
        """End in order: cancel running calls, wait up to ``grace`` s, record and flush everything.

        :returns: up to which ``seq`` each session that was open is durable (L16).
        """
        timeout = CLOSE_TIMEOUT if grace else INTERRUPT_TIMEOUT
        return run_sync(self._core.closed(grace=grace, timeout=timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        interrupted = kind is not None and issubclass(kind, KeyboardInterrupt | SystemExit)
        self.close(grace=0.0 if interrupted else 5.0)


class Session:
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

    def read(self, from_seq: int) -> list[Event]:
        """The events from ``from_seq`` on; the newest may not be durable yet."""
        return run_sync(self._core.events(from_seq))

    @property
    def events(self) -> list[Event]:
        """All events, read from the log; the newest may not be durable yet."""
        return run_sync(self._core.events())

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

    def append(
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
        return run_sync(
            self._core.append(
                type, data, ignorable=ignorable, surface_op=surface_op, sources=sources, flush=flush
            )
        )

    def flush(self) -> int:
        """Make everything appended so far durable; the seq up to which the log is (L4).

        :raises LogError: ``LOG_WRITE_FAILED``: the events are kept, the next flush tries again.
        """
        return run_sync(self._core.flush())

    def turn(self, prompt: str | None = None) -> Turn:
        """A turn, as a context manager; ``prompt`` becomes its ``user/message``."""
        return Turn(TurnCore(self._core, prompt))

    def set_approval_policy(self, policy: str) -> None:
        """Record ``"ask"`` or ``"never"``; in force for the very next request (A1)."""
        run_sync(self._core.set_approval_policy(policy))

    def set_sandbox_mode(self, mode: str) -> None:
        """Record the sandbox mode for the commands that follow."""
        run_sync(self._core.set_sandbox_mode(mode))

    def subscribe(self, from_seq: int = 0, *, progress: bool = False) -> Subscription:
        """Follow the session's events from ``from_seq`` on, live; also what calls say meanwhile."""
        return Subscription(run_sync(self._runtime.subscribe(self._core, from_seq, progress)))

    def close(self) -> int:
        """Flush and let go of the session; the seq up to which it is durable (L16)."""
        return run_sync(self._core.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Turn:
    """A turn: ``turn/start``, its prompt, its steps, ``turn/end``."""

    def __init__(self, core: TurnCore) -> None:
        self._core = core

    @property
    def number(self) -> int:
        """Turns count from 1 in a session."""
        return self._core.number

    def step(self) -> Step:
        """A step, as a context manager; everything earlier is durable before it starts (K1)."""
        return Step(self._core.new_step())

    def end(self, reason: dict[str, Any]) -> None:
        """End the turn with the reason of its ``turn/end``; leaving the block ends it as
        completed.
        """
        run_sync(self._core.end(reason))

    def __enter__(self) -> Self:
        run_sync(self._core.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        run_sync(self._core.finish(error))


class Step:
    """A step: one model answer, its calls, their results."""

    def __init__(self, core: StepCore) -> None:
        self._core = core

    @property
    def number(self) -> int:
        """Steps count from 1 in a turn."""
        return self._core.number

    def assistant(self, text: str = "", calls: Sequence[ToolCall] = ()) -> int:
        """Append the model's answer; the ``seq`` of the ``assistant/message``."""
        return run_sync(self._core.assistant(text, calls))

    def record(self, answer: Answer) -> int:
        """Append a model's answer with its stream; the ``seq`` of the ``assistant/message``."""
        return run_sync(self._core.record(answer))

    def attempt(self, stream: Sequence[dict[str, Any]]) -> None:
        """Append an ``assistant/attempt``: chunks of a model that yielded no message."""
        run_sync(self._core.attempt(stream))

    def execute(self) -> list[ToolResult]:
        """Run the calls of the answer; their results in model order.

        No body starts before its record is durable (K2). Ctrl-C cancels the calls and waits for
        what is recorded of them.
        """
        return run_sync(self._core.execute())

    def cancel(self, reason: str = "", call_ids: Sequence[str] | None = None) -> None:
        """Ask for the calls (or the named ones) to be cancelled, from any thread (P4).

        :meth:`execute` returns what became of them; ``reason`` stands in the results.
        """
        self._core.cancel(reason, call_ids)

    def __enter__(self) -> Self:
        run_sync(self._core.start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            run_sync(self._core.finish())


class Subscription:
    """Iterates over a session's items until it is closed; see :class:`StreamedEvent`."""

    def __init__(self, core: SubscriptionCore) -> None:
        self._core = core

    def __iter__(self) -> Iterator[StreamedEvent | Progress | WriteTrouble]:
        while True:
            item = run_sync(self._core.next())
            if item is None:
                if self._core.error is not None:
                    raise self._core.error
                return
            yield item

    def close(self) -> None:
        """Stop; a running iteration ends."""
        self._core.close()
