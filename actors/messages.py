"""Everything that is said between processes: the map of the system.

One type per thing said. ``SENDERS`` are the roles that may say it (X3); the docstring names the
receiver and the reply. A request carries ``rid``, unique on its connection; its reply carries the
same ``rid``. A request that is refused is answered by :class:`Refused`. Event payloads travel as
encoded JSON, so that they are encoded once, and results as JSON too (X2): the only pickle is in
:class:`RegisterTools` and :class:`LoadTools`, which the dispatcher passes on as opaque bytes.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec
from interlock.backends.event import Draft

from .hooks.pieces import AnyPiece
from .roles import Role
from .tools.command import Command
from .tools.outcome import Outcome
from .tools.spec import ToolSpec

HOSTS = frozenset({Role.HOST})
CALLERS = frozenset({Role.HOST, Role.CLIENT})
APPENDERS = frozenset({Role.HOST, Role.CLIENT, Role.DISPATCHER})
READERS = frozenset({Role.HOST, Role.CLIENT, Role.DISPATCHER, Role.ANSWERER})
ANSWERERS = frozenset({Role.HOST, Role.ANSWERER})
WRITER = frozenset({Role.WRITER})
DISPATCHER = frozenset({Role.DISPATCHER})
BROKER = frozenset({Role.BROKER})
LAUNCHER = frozenset({Role.LAUNCHER})
WORKERS = frozenset({Role.WORKER})
BODIES = frozenset({Role.WORKER, Role.HOST})
RUNNERS = frozenset({Role.DISPATCHER, Role.LAUNCHER})
OWNERS = frozenset({Role.WRITER, Role.DISPATCHER, Role.BROKER, Role.LAUNCHER})
STOPPERS = frozenset({Role.HOST, Role.DISPATCHER})


class Message(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """The root of all messages."""

    SENDERS: ClassVar[frozenset[Role]] = frozenset()


# Any owner.


class Refused(Message, frozen=True):
    """Any owner or the host → requester: the request ``rid`` was not done, and why."""

    SENDERS = OWNERS | HOSTS
    rid: int
    code: str
    message: str
    details: dict[str, str | int | bool | None] = {}


class Hello(Message, frozen=True):
    """Anyone → any owner: are you there? Replied to by :class:`Welcome`."""

    SENDERS = frozenset(Role)
    rid: int


class Welcome(Message, frozen=True):
    """Any owner → requester: who answers, and which life of it."""

    SENDERS = OWNERS
    rid: int
    role: str
    incarnation: str
    pid: int


class PeerChanged(Message, frozen=True):
    """Host → owner or client: ``role`` is at ``endpoint`` under ``public_key``, in another life."""

    SENDERS = HOSTS
    role: str
    endpoint: str
    public_key: bytes
    incarnation: str
    pid: int


class PeerGone(Message, frozen=True):
    """Host → owner or client: the process that held ``role`` in life ``incarnation`` has ended."""

    SENDERS = HOSTS
    role: str
    incarnation: str


# Clients that attach.


class Attach(Message, frozen=True):
    """Client → host: let me in. Replied to by :class:`Attached`."""

    SENDERS = frozenset({Role.CLIENT})
    rid: int


class Attached(Message, frozen=True):
    """Host → client: your own keys for the owners, where those are, and what this runtime has."""

    SENDERS = HOSTS
    rid: int
    public_key: bytes
    secret_key: bytes
    owners: list[PeerChanged]
    root: str
    approval: str
    tools: list[ToolSpec]


class StillThere(Message, frozen=True):
    """Host → client: nothing; whether it can be sent shows whether the client is connected."""

    SENDERS = HOSTS


class Admit(Message, frozen=True):
    """Host → any owner: whoever proves ``key`` is a client. Replied to by :class:`Noted`."""

    SENDERS = HOSTS
    rid: int
    key: bytes


class Dismiss(Message, frozen=True):
    """Host → any owner: the client with ``key`` is gone; settle what was its own, forget it.

    Replied to by :class:`Noted` once the dispatcher has recorded what it had released, and once
    the writer has flushed and closed its sessions.
    """

    SENDERS = HOSTS
    rid: int
    key: bytes


class Noted(Message, frozen=True):
    """Any owner → host: it is so."""

    SENDERS = OWNERS
    rid: int


class StatsRequest(Message, frozen=True):
    """Host or client → any owner. Replied to by :class:`Stats`."""

    SENDERS = CALLERS
    rid: int


class Stats(Message, frozen=True):
    """Any owner → requester: counters by name."""

    SENDERS = OWNERS
    rid: int
    counters: dict[str, int]


class Shutdown(Message, frozen=True):
    """Host → any owner, dispatcher → writer and launcher: finish in order and end.

    ``grace`` is how long (s) running bodies get to end by themselves after they were asked to
    (dispatcher only). Replied to by :class:`Stopped`.
    """

    SENDERS = STOPPERS
    rid: int
    grace: float


class Stopped(Message, frozen=True):
    """Any owner → requester: everything it owned is settled; up to which ``seq`` per session
    (L16).
    """

    SENDERS = OWNERS
    rid: int
    durable: dict[str, int] = {}
    failed: dict[str, str] = {}


# The session writer.


class CreateSession(Message, frozen=True):
    """Host or client → writer. Replied to by :class:`SessionOpened`; nothing is written yet
    (L7).
    """

    SENDERS = CALLERS
    rid: int
    session: str
    cwd: str | None
    parent: str | None = None
    agent_preset: str | None = None


class OpenSession(Message, frozen=True):
    """Host or client → writer: open for writing. Waits up to ``wait`` s for the lock.

    Replied to by :class:`SessionOpened`. Nothing is repaired yet: results that the dispatcher still
    holds come first (F2).
    """

    SENDERS = CALLERS
    rid: int
    session: str
    wait: float = 0.0


class UnansweredCall(msgspec.Struct, frozen=True, array_like=True):
    """A call of the open step without a result."""

    message_seq: int
    call_id: str
    name: str
    call_seq: int | None
    turn: int
    step: int


class DoubtfulCall(msgspec.Struct, frozen=True, array_like=True):
    """A call that may have run, and of which no log says how it ended (R4).

    ``arguments`` is the raw text as the model wrote it, in UTF-8. ``attempts`` counts its releases,
    ``granted`` says that an approval was, ``nested`` that it was seen making calls of its own.
    ``recorded``: its result stands in the log and says "unknown"; ``outcome`` is then what has been
    found out since and the model has not been told yet.
    """

    message_seq: int
    call_id: str
    name: str
    call_seq: int
    turn: int
    step: int
    arguments: bytes
    attempts: int
    granted: bool
    nested: bool
    recorded: bool
    outcome: str | None = None


class SessionOpened(Message, frozen=True):
    """Writer → requester: the session is open here, and how it stands."""

    SENDERS = WRITER
    rid: int
    session: str
    created_at: int
    cwd: str | None
    directory: str
    path: str
    next_seq: int
    durable_seq: int
    incarnation: str
    turn: int | None
    step: int | None
    last_turn: int
    balanced: bool
    unanswered: list[UnansweredCall]
    approval_policy: str | None
    sandbox_mode: str | None
    system_seq: int | None
    surface_empty: bool
    dropped_bytes: int = 0
    dropped_records: int = 0
    dropped_offset: int = -1
    #: Calls whose outcome nobody knows: those of the open step, and those of earlier ones.
    doubtful: list[DoubtfulCall] = []


class RepairSession(Message, frozen=True):
    """Host or client → writer: append the closers of R2 and flush. Replied to by
    :class:`Appended`.
    """

    SENDERS = CALLERS
    rid: int
    session: str


class Append(Message, frozen=True):
    """Host, client or dispatcher → writer: add events after ``after``; with ``flush``, durably.

    Replied to by :class:`Appended`, at once or, with ``flush``, when the events are durable.
    ``behalf`` is the key of whom the dispatcher appends for: who may not append to a session gets
    no call recorded in it either (X4). Without drafts it asks just that.
    """

    SENDERS = APPENDERS
    rid: int
    session: str
    drafts: list[Draft]
    after: int = -1
    flush: bool = False
    behalf: bytes = b""


class Flush(Message, frozen=True):
    """Host, client or dispatcher → writer: make all admitted events durable (L4).

    Replied to by :class:`Appended` with ``last_seq`` the highest event that was admitted before.
    """

    SENDERS = APPENDERS
    rid: int
    session: str


class Appended(Message, frozen=True):
    """Writer → requester: what was appended and how far the log is durable (L2).

    ``first_seq`` is -1 where nothing was appended. ``approval_policy`` and ``sandbox_mode`` are
    those in force after the append (``None`` where the log does not say).
    """

    SENDERS = WRITER
    rid: int
    session: str
    first_seq: int
    last_seq: int
    durable_seq: int
    incarnation: str
    approval_policy: str | None = None
    sandbox_mode: str | None = None


class ReadPending(Message, frozen=True):
    """Any reader → writer: the events from ``from_seq`` on that are not yet durable."""

    SENDERS = READERS
    rid: int
    session: str
    from_seq: int


class PendingEvents(Message, frozen=True):
    """Writer → requester: log lines that are appended but not in the file yet, and the file."""

    SENDERS = WRITER
    rid: int
    session: str
    path: str
    durable_seq: int
    incarnation: str
    lines: list[bytes]


class Subscribe(Message, frozen=True):
    """Any reader → writer: stream the session's events. Replied to by :class:`Subscribed`."""

    SENDERS = READERS
    rid: int
    session: str


class Subscribed(Message, frozen=True):
    """Writer → requester: the stream starts at ``next_seq``; earlier events are in the log."""

    SENDERS = WRITER
    rid: int
    session: str
    path: str
    next_seq: int
    durable_seq: int
    incarnation: str


class Unsubscribe(Message, frozen=True):
    """Subscriber → writer."""

    SENDERS = READERS
    session: str


class StreamItem(Message, frozen=True):
    """Writer → subscriber: new log lines (may be none) and how far the log is durable."""

    SENDERS = WRITER
    session: str
    first_seq: int
    lines: list[bytes]
    durable_seq: int
    incarnation: str


class StreamLagged(Message, frozen=True):
    """Writer → subscriber: items were left out; re-read the log, the stream goes on at
    ``next_seq``.
    """

    SENDERS = WRITER
    session: str
    next_seq: int
    durable_seq: int
    incarnation: str


class StreamAck(Message, frozen=True):
    """Subscriber → writer: ``count`` items were taken."""

    SENDERS = READERS
    session: str
    count: int


class StreamEnded(Message, frozen=True):
    """Writer → subscriber: the session was closed here; ``code`` says why where it was not in
    order.
    """

    SENDERS = WRITER
    session: str
    durable_seq: int
    code: str | None
    message: str


class WriteFailed(Message, frozen=True):
    """Writer → session's opener and subscribers: a background write failed; nothing is lost yet
    (L5).
    """

    SENDERS = WRITER
    session: str
    code: str
    message: str
    durable_seq: int
    closed: bool


class SessionState(Message, frozen=True):
    """Dispatcher or host → writer: how the open session stands. Replied to by
    :class:`SessionOpened`.
    """

    SENDERS = APPENDERS
    rid: int
    session: str


class CloseSession(Message, frozen=True):
    """Host or client → writer: flush and let go. Replied to by :class:`SessionClosed`."""

    SENDERS = CALLERS
    rid: int
    session: str


class SessionClosed(Message, frozen=True):
    """Writer → requester: the session is closed and durable up to ``durable_seq`` (L16)."""

    SENDERS = WRITER
    rid: int
    session: str
    durable_seq: int


# The tool dispatcher.


class WireTool(msgspec.Struct, frozen=True, array_like=True):
    """A tool as it is registered: what the dispatcher reads, and what only a worker unpickles."""

    spec: ToolSpec
    pickled: bytes


class RegisterTools(Message, frozen=True):
    """Host → dispatcher: the tools of this runtime, and which judges the host has."""

    SENDERS = HOSTS
    rid: int
    tools: list[WireTool]
    gates: bool
    guards: bool
    hooks: bool
    #: Names of environment variables that workers get besides the usual few (X5).
    worker_env: list[str]
    sys_path: list[str]
    #: The shipped gates, guards and post hooks: data, judged in the dispatcher.
    gate_pieces: list[AnyPiece] = []
    guard_pieces: list[AnyPiece] = []
    hook_pieces: list[AnyPiece] = []


class ToolsRegistered(Message, frozen=True):
    """Dispatcher → host."""

    SENDERS = DISPATCHER
    rid: int


class WireCall(msgspec.Struct, frozen=True, array_like=True):
    """One advertised call; ``arguments`` is the raw string as the model wrote it, in UTF-8.

    ``started_seq`` is its ``tool/call`` where an earlier life of the dispatcher recorded it: such a
    call is not run again, its outcome is unknown (F3), unless it was ``never_released`` (R6).
    ``undecided`` are its approval requests that the log still leaves open.
    """

    call_id: str
    name: str
    arguments: bytes
    started_seq: int = -1
    undecided: list[str] = []
    never_released: bool = False


class ExecuteStep(Message, frozen=True):
    """Host or client → dispatcher: run the calls of one assistant message, in model order.

    With ``cancelled`` they are recorded as cancelled and none runs (P4). Replied to by
    :class:`StepExecuted` when every call has its result in the log.
    """

    SENDERS = CALLERS
    rid: int
    session: str
    created_at: int
    workspace: str
    turn: int
    step: int
    message_seq: int
    calls: list[WireCall]
    cancelled: bool = False


class WireResult(msgspec.Struct, frozen=True, array_like=True):
    """One result. ``seq`` is its event, -1 where it could not be appended (the session is lost)."""

    call_id: str
    name: str
    seq: int
    outcome: Outcome


class StepExecuted(Message, frozen=True):
    """Dispatcher → requester: the results, in model order."""

    SENDERS = DISPATCHER
    rid: int
    results: list[WireResult]


class CancelCalls(Message, frozen=True):
    """Host or client → dispatcher: cancel the named calls of a step, or all of them (P4).

    The answer is the :class:`StepExecuted` of the step.
    """

    SENDERS = CALLERS
    session: str
    message_seq: int
    reason: str
    call_ids: list[str] | None = None


class SettleSession(Message, frozen=True):
    """Host or client → dispatcher: record the results that are held for a reopened session (F2).

    ``unanswered`` is what the log lacks. Replied to by :class:`SessionSettled` once no body of the
    session runs and every held result was appended.
    """

    SENDERS = CALLERS
    rid: int
    session: str
    unanswered: list[UnansweredCall]


class ResolveCalls(Message, frozen=True):
    """Host or client → dispatcher: do about these calls what their tools' effects allow (R4).

    ``how`` is ``retry`` or ``reconcile``. Comes after :class:`SettleSession`. Replied to by
    :class:`CallsResolved` once everything that came of it is recorded.
    """

    SENDERS = CALLERS
    rid: int
    session: str
    created_at: int
    workspace: str
    how: str
    calls: list[DoubtfulCall]


class ResolvedCall(msgspec.Struct, frozen=True, array_like=True):
    """What came of one call: ``outcome`` is ``done``, ``failed``, ``not-done`` or ``unknown``.

    ``text`` is what the model is to be told of a call whose result was recorded before.
    """

    call_seq: int
    call_id: str
    outcome: str
    text: str | None = None


class CallsResolved(Message, frozen=True):
    """Dispatcher → requester: the calls about which something was done."""

    SENDERS = DISPATCHER
    rid: int
    session: str
    calls: list[ResolvedCall]


class SessionSettled(Message, frozen=True):
    """Dispatcher → requester: call ids whose results were recorded now."""

    SENDERS = DISPATCHER
    rid: int
    session: str
    recorded: list[str]


class CallProgress(Message, frozen=True):
    """Dispatcher → host or client: what a running body said or a command printed; not durable."""

    SENDERS = DISPATCHER
    session: str
    call_id: str
    kind: str
    data: bytes


class JudgeCall(Message, frozen=True):
    """Dispatcher → host: let your gates, guards or hooks judge a call. Replied to by
    :class:`Judged`.
    """

    SENDERS = DISPATCHER
    rid: int
    phase: str
    session: str
    message_seq: int
    call_id: str
    tool: str
    arguments: bytes
    argv: list[str] | None = None
    result: WireResult | None = None


class Judged(Message, frozen=True):
    """Host → dispatcher: ``allow``, ``deny``, ``ask`` or ``cancel``, and why."""

    SENDERS = HOSTS
    rid: int
    decision: str
    reason: str


# Bodies: workers and the host run them.


class WorkerReady(Message, frozen=True):
    """Worker → dispatcher: here I am, or (``loaded``) bodies may come; ``failed`` names broken
    tools.
    """

    SENDERS = WORKERS
    pid: int
    loaded: bool
    failed: dict[str, str]


class LoadTools(Message, frozen=True):
    """Dispatcher → worker: the pickled tools, by name."""

    SENDERS = DISPATCHER
    tools: dict[str, bytes]


class BuildCommand(Message, frozen=True):
    """Dispatcher → worker: run the pure builder of a ``sandbox`` tool; nothing is launched by this.

    Replied to by :class:`CommandBuilt` with the same ``number``.
    """

    SENDERS = DISPATCHER
    number: int
    session: str
    message_seq: int
    call_id: str
    tool: str
    arguments: bytes
    idempotency_key: str
    workspace: str = ""


class CommandBuilt(Message, frozen=True):
    """Worker → dispatcher: the command, or why there is none."""

    SENDERS = WORKERS
    number: int
    command: Command | None
    code: str | None
    message: str


class Release(Message, frozen=True):
    """Dispatcher → worker or host: run this body now, once.

    Only :func:`interlock.actors.release.release` builds one (K2). ``number`` grows with every
    message to one receiver, which runs nothing whose number it has passed (K6).
    """

    SENDERS = DISPATCHER
    number: int
    session: str
    message_seq: int
    call_id: str
    tool: str
    arguments: bytes
    idempotency_key: str
    timeout: float
    incarnation: str
    checkpoint_seq: int
    #: What a nested call of this body must show (K5).
    token: str
    #: The session's working directory; empty where it has none.
    workspace: str = ""
    #: 1, and one more for each retry (R4).
    attempt: int = 1


class Reconcile(Message, frozen=True):
    """Dispatcher → worker or host: ask the outside world what became of a call (R4).

    ``record`` is a :class:`~interlock.actors.tools.result.CallRecord` as JSON. Replied to by
    :class:`Reconciled`.
    """

    SENDERS = DISPATCHER
    number: int
    session: str
    call_id: str
    tool: str
    record: bytes
    idempotency_key: str
    timeout: float
    workspace: str = ""


class Reconciled(Message, frozen=True):
    """Worker or host → dispatcher: what a tool's ``reconcile`` found out."""

    SENDERS = BODIES
    number: int
    outcome: Outcome


class CancelBody(Message, frozen=True):
    """Dispatcher → worker, host or launcher: ask the body ``number`` to stop; ``kill`` ends a
    command.
    """

    SENDERS = DISPATCHER
    number: int
    reason: str
    kill: bool = False


class BodyFinished(Message, frozen=True):
    """Worker or host → dispatcher: how the body ``number`` ended."""

    SENDERS = BODIES
    number: int
    outcome: Outcome
    #: The body ended because it was asked to.
    cancelled: bool


class BodyProgress(Message, frozen=True):
    """Worker or host → dispatcher: something to show while the body runs (JSON)."""

    SENDERS = BODIES
    number: int
    data: bytes


class NestedCall(Message, frozen=True):
    """Worker or host → dispatcher: the running body ``number`` calls another tool (K5).

    Replied to by :class:`NestedResult` with the same ``sub``.
    """

    SENDERS = BODIES
    number: int
    token: str
    sub: int
    name: str
    arguments: bytes


class NestedResult(Message, frozen=True):
    """Dispatcher → worker or host."""

    SENDERS = DISPATCHER
    number: int
    sub: int
    result: WireResult


# The sandbox launcher.


class Launch(Message, frozen=True):
    """Dispatcher → launcher: run this command confined, once; built only by ``release`` (K2).

    Replied to by :class:`CommandEnded` with the same ``number``.
    """

    SENDERS = DISPATCHER
    number: int
    session: str
    message_seq: int
    call_id: str
    command: Command
    mode: str
    workspace: str
    idempotency_key: str
    timeout: float
    incarnation: str
    checkpoint_seq: int
    #: The life of the dispatcher that says so: nothing of one that has ended is launched (F3).
    dispatcher: str = ""


class CommandOutput(Message, frozen=True):
    """Launcher → dispatcher: bytes that a running command printed."""

    SENDERS = LAUNCHER
    number: int
    stream: str
    data: bytes


class CommandEnded(Message, frozen=True):
    """Launcher → dispatcher: how the command ended, by the status channel (S5)."""

    SENDERS = LAUNCHER
    number: int
    status: str
    exit_code: int | None
    signal: int | None
    stdout: str
    stderr: str
    stdout_bytes: int
    stderr_bytes: int
    cut_bytes: int
    duration: float
    backend: str
    enforcement: str
    gaps: list[str]
    evidence: str | None
    message: str
    risks: list[str]
    #: What the sandbox refused, known from its answers; and what the command's words suggest.
    refused: list[str] = []
    hint: str | None = None


# The approval broker.


class Widening(msgspec.Struct, frozen=True, array_like=True):
    """A strictly wider sandbox mode that one call asks for, and why (S4)."""

    mode_from: str
    mode_to: str
    justification: str


class AskApproval(Message, frozen=True):
    """Dispatcher → broker: get one decision on one call. Replied to by :class:`ApprovalSettled`.

    ``digest`` binds the answer to the call's identity, tool and raw argument string (A9);
    ``timeout`` is how long (s) the request stays open. A repeated one gets the same answer again.
    """

    SENDERS = DISPATCHER
    rid: int
    request: str
    session: str
    message_seq: int
    call_id: str
    tool: str
    reason: str
    digest: str
    timeout: float
    #: Where a body made the call: its path below the outermost one, as ``.1.2`` (K5).
    nested: str = ""
    #: S4: where the request is for a wider sandbox mode, for this call only.
    widening: Widening | None = None


class ApprovalSettled(Message, frozen=True):
    """Broker → dispatcher: the one answer, and who gave it (A2, A10)."""

    SENDERS = BROKER
    rid: int
    request: str
    digest: str
    outcome: str
    by: str
    note: str = ""


class WithdrawApproval(Message, frozen=True):
    """Dispatcher → broker: the call was cancelled; settle its request as ``cancelled``."""

    SENDERS = DISPATCHER
    request: str


class BecomeAnswerer(Message, frozen=True):
    """Host or answerer → broker: send me requests, also those that are open.

    One connection may have several answerers, by ``name``. ``sessions`` and ``tools`` are patterns
    (``*`` and ``?``) of which one must match; empty ones match everything. Replied to by
    :class:`AnswererJoined`, before any request.
    """

    SENDERS = ANSWERERS
    rid: int
    name: str
    sessions: list[str] = []
    tools: list[str] = []


class AnswererJoined(Message, frozen=True):
    """Broker → answerer: from here on requests come."""

    SENDERS = BROKER
    rid: int


class LeaveAnswering(Message, frozen=True):
    """Host or answerer → broker: send ``name`` no more; an empty one: nobody here any more."""

    SENDERS = ANSWERERS
    name: str = ""


class ApprovalAsked(Message, frozen=True):
    """Broker → answerer ``answerer``: please decide. The arguments are in the log, not here
    (A6).
    """

    SENDERS = BROKER
    request: str
    session: str
    message_seq: int
    call_id: str
    tool: str
    reason: str
    digest: str
    remaining: float
    nested: str = ""
    widening: Widening | None = None
    answerer: str = ""


class ApprovalGone(Message, frozen=True):
    """Broker → answerer: the request was settled; nothing more to decide."""

    SENDERS = BROKER
    request: str
    outcome: str


class AnswerApproval(Message, frozen=True):
    """Host or answerer → broker: ``allow`` or ``reject``; ``failed`` where answerer ``by`` broke.

    With a ``digest`` it holds only for the request that was shown with it (A9). Replied to by
    :class:`AnswerTaken`.
    """

    SENDERS = ANSWERERS
    rid: int
    request: str
    answer: str
    by: str
    note: str = ""
    digest: str = ""


class AnswerTaken(Message, frozen=True):
    """Broker → answerer: whether the answer settled the request, and if not why (A8)."""

    SENDERS = BROKER
    rid: int
    request: str
    taken: bool
    message: str


class ListApprovals(Message, frozen=True):
    """Host or answerer → broker. Replied to by :class:`ApprovalList`."""

    SENDERS = ANSWERERS
    rid: int


class ApprovalList(Message, frozen=True):
    """Broker → requester: the open requests, oldest first."""

    SENDERS = BROKER
    rid: int
    requests: list[ApprovalAsked]
