"""What appends need to know about a log, and the grammar that every append must keep (L1).

:class:`LogFold` takes a log's events one by one. ``admit`` is for new ones: it enforces the whole
grammar that the harness's own restorer enforces, so that it accepts our logs, and gives out seqs.
``replay`` is for events that are already on disk: there only the surface must hold together, since
turns, steps and calls that do not pair are something that reading must survive.

Only the open step's calls and a few folds are kept; everything else is in the log.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from . import schema
from .codes import Code
from .errors import LogError
from .event import Draft, Event, Replace
from .grammar import RULES, GrammarError
from .surface import Surface, SurfaceError

SANDBOX_MODES = ("read-only", "workspace-write", "danger-full-access")


class CallState(msgspec.Struct, frozen=True):
    """A call of the open step: advertised in event ``message_seq``, then started, then answered.

    ``asked`` and ``granted`` are ids of approval requests that name this call. ``nested`` says that
    its body was seen making calls of its own, so it surely ran. ``attempts`` counts its releases as
    far as they are recorded (R4).
    """

    call_id: str
    name: str
    arguments: str
    message_seq: int
    call_seq: int | None = None
    result_seq: int | None = None
    asked: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()
    nested: bool = False
    attempts: int = 1


def _moved(call: CallState, call_seq: int | None, result_seq: int | None) -> CallState:
    # Twice for each call of a log: written out, for structs.replace takes three times as long.
    return CallState(
        call.call_id,
        call.name,
        call.arguments,
        call.message_seq,
        call_seq,
        result_seq,
        call.asked,
        call.granted,
        call.nested,
        call.attempts,
    )


class UnknownCall(msgspec.Struct, frozen=True):
    """A call whose recorded result says that its outcome is unknown (R4).

    ``turn`` and ``step`` are those it was made in. ``outcome`` is what has been found out since, in
    words for the model that it has not been told yet, or None.
    """

    call: CallState
    turn: int
    step: int
    outcome: str | None = None


class ApprovalState(msgspec.Struct, frozen=True):
    """An approval request that nobody has settled yet."""

    id: str
    seq: int
    tool_name: str
    call_id: str | None


class Compaction(msgspec.Struct, frozen=True):
    """The compaction that is under way."""

    id: str
    command_id: str | None
    summarized: bool = False


class RetryChain(msgspec.Struct, frozen=True):
    """The retries scheduled so far in the current step under one policy."""

    retry_id: str
    retry: int


#: Fields that hold a plain value: an undo mark copies them by reference.
_SCALARS = (
    "next_seq",
    "last_time",
    "turn",
    "step",
    "last_turn",
    "last_step",
    "approval_policy",
    "sandbox_mode",
    "interlock_since",
    "inherited_cut",
    "provider",
    "compaction",
)
#: Small dictionaries that both grow and shrink: an undo mark copies them.
_OPEN = (
    "open_calls",
    "unknown",
    "approvals",
    "dispatches",
    "retry_chains",
    "retries_waiting",
    "commands",
)
#: Dictionaries that only grow, in order: an undo mark keeps their length.
_GROWING = ("dispatch_roots", "retry_ids", "command_ids")


class LogFold:
    """The state of one log after its last event.

    ``next_seq`` is the seq of the next event and ``last_time`` the last one's time (ms, 0 in an
    empty log). ``turn`` and ``step`` are the open ones or None; ``last_turn`` and ``last_step`` the
    highest so far. ``approval_policy`` and ``sandbox_mode`` are the last ones recorded, or None.
    ``interlock_since`` is the seq from which on Interlock wrote this log (its first
    ``interlock/writer`` since another program last took the log up), or None.
    """

    __slots__ = (*_SCALARS, *_OPEN, *_GROWING, "surface", "user_seqs")

    def __init__(self) -> None:
        self.next_seq = 0
        self.last_time = 0
        self.turn: int | None = None
        self.step: int | None = None
        self.last_turn = 0
        self.last_step = 0
        self.approval_policy: Literal["ask", "never"] | None = None
        self.sandbox_mode: str | None = None
        self.interlock_since: int | None = None
        self.inherited_cut: int | None = None
        self.provider: str | None = None
        self.compaction: Compaction | None = None
        self.open_calls: dict[str, CallState] = {}
        #: By the seq of their ``tool/call``.
        self.unknown: dict[int, UnknownCall] = {}
        self.approvals: dict[str, ApprovalState] = {}
        self.dispatches: dict[str, tuple[str, str, str, Any]] = {}
        self.retry_chains: dict[tuple[str, str], RetryChain] = {}
        self.retries_waiting: dict[tuple[str, int], tuple[int, int]] = {}
        self.commands: dict[str, None] = {}
        self.dispatch_roots: dict[str, str] = {}
        self.retry_ids: dict[str, None] = {}
        self.command_ids: dict[str, None] = {}
        self.surface = Surface()
        # Seqs of messages that a person wrote: what a title may cite.
        self.user_seqs = array("q")

    @property
    def calls(self) -> list[CallState]:
        """The open step's calls, in model order."""
        return list(self.open_calls.values())

    @property
    def open_approvals(self) -> list[ApprovalState]:
        """The requests that nobody has settled, oldest first."""
        return list(self.approvals.values())

    @property
    def balanced(self) -> bool:
        """True where neither a turn nor a compaction is open: nothing to repair."""
        return self.turn is None and self.compaction is None

    @property
    def head(self) -> int | None:
        """The seq of the protected system message at the head of the surface, or None."""
        return self.surface.head

    @property
    def first_surface_type(self) -> str | None:
        """The type of the first event that entered the surface, or None."""
        return self.surface.first_type

    def is_user_message(self, seq: int) -> bool:
        """Tell whether event ``seq`` is a message that a person wrote."""
        at = bisect_left(self.user_seqs, seq)
        return at < len(self.user_seqs) and self.user_seqs[at] == seq

    def written_by_interlock(self, seq: int | None) -> bool:
        """Tell whether event ``seq`` was written by Interlock, as far as the log can say."""
        return seq is not None and self.interlock_since is not None and seq > self.interlock_since

    def admit(self, drafts: Sequence[Draft], time: int) -> list[Event]:
        """Take in new events, all or none, and return them with their seqs.

        ``time`` is the writer's wall clock in ms. Raises ``LogError`` (``EVENT_INVALID``) naming
        type, seq and the broken rule; the fold is then as it was.
        """
        undo = self._mark(drafts) if len(drafts) > 1 else None
        events: list[Event] = []
        for draft in drafts:
            try:
                events.append(self._admit(draft, time))
            except (schema.SchemaError, SurfaceError, GrammarError) as error:
                seq = self.next_seq
                if undo is not None:
                    self._undo(undo)
                raise LogError(
                    Code.EVENT_INVALID,
                    f"{draft.type} at seq {seq} was refused: {error}. Nothing was appended",
                    type=draft.type,
                    seq=seq,
                    rule=str(error),
                ) from error
        return events

    def replay(self, event: Event) -> None:
        """Take in an event that is already in the log.

        Raises ``SurfaceError`` (a ``ValueError``) if it breaks the surface; nothing else is asked.
        """
        kind = event.type
        if kind in schema.SURFACE_TYPES:
            self.surface.enter(event)
        change = _CHANGES.get(kind)
        if change is not None:
            change(self, event, event.data)
        self.next_seq = event.seq + 1
        self.last_time = event.time

    def admit_events(self, events: Iterable[Event]) -> None:
        """Take in events of a log whose seqs are given, with the whole grammar enforced.

        Raises ``LogError`` (``EVENT_INVALID``) as :meth:`admit` does; events before it stay.
        """
        for event in events:
            try:
                self._check(event)
            except (SurfaceError, GrammarError) as error:
                raise LogError(
                    Code.EVENT_INVALID,
                    f"{event.type} at seq {event.seq} breaks the log's grammar: {error}",
                    type=event.type,
                    seq=event.seq,
                    rule=str(error),
                ) from error
            self._apply(event)

    def _admit(self, draft: Draft, time: int) -> Event:
        schema.check_time(time)
        event = schema.check_draft(draft, self.next_seq, time)
        self._check(event)
        self._apply(event)
        return event

    def _check(self, event: Event) -> None:
        """Check the grammar. Every check comes before any change: a refusal leaves no trace."""
        if event.type in schema.SURFACE_TYPES:
            self.surface.check(event)
        rule = RULES.get(event.type)
        if rule is not None:
            rule(self, event, event.data)

    def _apply(self, event: Event) -> None:
        if event.type in schema.SURFACE_TYPES:
            self.surface.apply(event)
        change = _CHANGES.get(event.type)
        if change is not None:
            change(self, event, event.data)
        self.next_seq = event.seq + 1
        self.last_time = event.time

    def _mark(self, drafts: Sequence[Draft]) -> Mapping[str, Any]:
        # Copying the surface is only needed where something may be cut out of it.
        replaces = any(isinstance(draft.surface_op, Replace) for draft in drafts)
        surface = self.surface
        mark: dict[str, Any] = {name: getattr(self, name) for name in _SCALARS}
        mark.update((name, getattr(self, name).copy()) for name in _OPEN)
        mark["surface"] = surface.copy() if replaces else None
        mark["lengths"] = [len(getattr(self, name)) for name in _GROWING]
        mark["ends"] = (len(surface), surface.first_type, surface.head, len(self.user_seqs))
        return mark

    def _undo(self, mark: Mapping[str, Any]) -> None:
        for name in (*_SCALARS, *_OPEN):
            setattr(self, name, mark[name])
        for name, length in zip(_GROWING, mark["lengths"], strict=True):
            grown = getattr(self, name)
            while len(grown) > length:
                grown.popitem()
        length, first_type, head, users = mark["ends"]
        if mark["surface"] is not None:
            self.surface = mark["surface"]
        else:
            self.surface.cut(length, first_type, head)
        del self.user_seqs[users:]

    # What each type changes. Written so that an event of a log whose turns, steps or calls do not
    # pair changes what it can and raises nothing.

    def _turn_start(self, _event: Event, data: dict[str, Any]) -> None:
        self.turn = self.last_turn = _number(data.get("turn"), self.last_turn + 1)
        self.step, self.last_step = None, 0
        self.open_calls = {}

    def _turn_end(self, _event: Event, _data: dict[str, Any]) -> None:
        self.turn = self.step = None
        self.open_calls = {}
        self.approvals = {}
        self.dispatches = {}

    def _step_start(self, _event: Event, data: dict[str, Any]) -> None:
        if self.turn is not None:
            self.step = self.last_step = _number(data.get("step"), self.last_step + 1)
        self.open_calls = {}
        self.retry_chains = {}

    def _step_end(self, _event: Event, _data: dict[str, Any]) -> None:
        self.step = None
        self.open_calls = {}

    def _assistant_message(self, event: Event, data: dict[str, Any]) -> None:
        if self.step is None:
            return
        for block in data["message"]["content"]:
            if isinstance(block, dict) and block.get("type") == "tool-call":
                call_id = block["id"]
                known = self.open_calls.pop(call_id, None)
                if known is not None and known.result_seq is None:
                    # Only in a log that broke the rule: what may have started stays known.
                    self.open_calls[call_id] = known
                    continue
                self.open_calls[call_id] = CallState(
                    call_id, block["name"], block["arguments"], event.seq
                )

    def _tool_call(self, event: Event, data: dict[str, Any]) -> None:
        call_id = data.get("callId")
        if isinstance(call_id, str):
            self.call_started(call_id, event.seq)

    def call_started(self, call_id: str, seq: int) -> None:
        """Note that event ``seq`` starts a call, if it is one of the open step's."""
        call = self.open_calls.get(call_id)
        if call is not None:
            self.open_calls[call_id] = _moved(call, seq, call.result_seq)

    def _tool_result(self, event: Event, data: dict[str, Any]) -> None:
        if event.surface_op != "append":
            return
        call = self.call_answered(data["message"]["source"]["callId"], event.seq)
        if call is not None and "error" in data:
            self._failed(call, data["error"])

    def call_answered(self, call_id: str, seq: int) -> CallState | None:
        """Note that event ``seq`` answers a call of the open step; return it as it was, or None."""
        call = self.open_calls.get(call_id)
        if call is None or call.result_seq is not None:
            return None
        self.open_calls[call_id] = _moved(call, call.call_seq, seq)
        return call

    def _failed(self, call: CallState, error: Any) -> None:
        unknown = isinstance(error, dict) and error.get("code") == Code.TOOL_OUTCOME_UNKNOWN
        if unknown and call.call_seq is not None and self.turn is not None:
            self.unknown[call.call_seq] = UnknownCall(call, self.turn, self.step or 0)

    def _settled(self, _event: Event, data: dict[str, Any]) -> None:
        """R4: what was decided about an unknown outcome, or found out."""
        call_seq = _number(data.get("callSeq"), -1)
        attempts = _number(data.get("attempt"), 1)
        for call in self.open_calls.values():
            if call.call_seq == call_seq and call.result_seq is None:
                changed = msgspec.structs.replace(call, attempts=max(attempts, call.attempts))
                self.open_calls[call.call_id] = changed
                return
        known = self.unknown.get(call_seq)
        if known is not None:
            call = known.call
            call = msgspec.structs.replace(call, attempts=max(attempts, call.attempts))
            text = data.get("text")
            self.unknown[call_seq] = msgspec.structs.replace(
                known, call=call, outcome=text if isinstance(text, str) else known.outcome
            )

    def _approval_asked(self, event: Event, data: dict[str, Any]) -> None:
        approval_id, call_id = data.get("id"), data.get("callId")
        # A4: outside a turn there is no request, whatever a foreign log says.
        if self.turn is None or not isinstance(approval_id, str):
            return
        call_id = call_id if isinstance(call_id, str) else None
        self.approvals[approval_id] = ApprovalState(
            approval_id, event.seq, str(data.get("toolName", "")), call_id
        )
        call = self.open_calls.get(call_id) if call_id is not None else None
        if call is not None:
            self.open_calls[call.call_id] = msgspec.structs.replace(
                call, asked=(*call.asked, approval_id)
            )

    def _approval_decided(self, _event: Event, data: dict[str, Any]) -> None:
        approval_id = data.get("id")
        approval = self.approvals.pop(approval_id, None) if isinstance(approval_id, str) else None
        if approval is None or data.get("outcome") != "allowed-once" or approval.call_id is None:
            return
        call = self.open_calls.get(approval.call_id)
        if call is not None:
            self.open_calls[call.call_id] = msgspec.structs.replace(
                call, granted=(*call.granted, approval.id)
            )

    def _approval_policy(self, _event: Event, data: dict[str, Any]) -> None:
        policy = data.get("policy")
        if policy in ("ask", "never"):
            self.approval_policy = policy

    def _sandbox_mode(self, _event: Event, data: dict[str, Any]) -> None:
        mode = data.get("mode")
        if mode in SANDBOX_MODES:
            self.sandbox_mode = mode

    def _user_message(self, event: Event, data: dict[str, Any]) -> None:
        if data["source"]["kind"] == "user":
            self.user_seqs.append(event.seq)
        elif self.unknown:
            self._told(data["id"])

    def _told(self, name: str) -> None:
        for call_seq in list(self.unknown):
            if name == settled_message_id(call_seq):
                del self.unknown[call_seq]

    def _request_header(self, _event: Event, data: dict[str, Any]) -> None:
        config = data["header"].get("config")
        provider = config.get("provider") if isinstance(config, dict) else None
        self.provider = provider if isinstance(provider, str) else None

    def _end_seed(self, event: Event, data: dict[str, Any]) -> None:
        # Another program took the log up here (a fork's seed, or the harness resuming it), and what
        # compaction its predecessor left open ended with that.
        self.interlock_since = None
        self.compaction = None
        if data.get("inherited") is True:
            self.inherited_cut = event.seq

    def _writer(self, event: Event, _data: dict[str, Any]) -> None:
        if self.interlock_since is None:
            self.interlock_since = event.seq

    def _compaction_start(self, _event: Event, data: dict[str, Any]) -> None:
        command_id = data.get("sourceCommandId")
        self.compaction = Compaction(
            str(data.get("compactionId")), command_id if isinstance(command_id, str) else None
        )

    def _compaction_summary(self, _event: Event, _data: dict[str, Any]) -> None:
        if self.compaction is not None:
            self.compaction = msgspec.structs.replace(self.compaction, summarized=True)

    def _compaction_end(self, _event: Event, _data: dict[str, Any]) -> None:
        self.compaction = None

    def _retry(self, _event: Event, data: dict[str, Any]) -> None:
        retry_id, retry = str(data.get("retryId")), _number(data.get("retry"), 1)
        key = (str(data.get("provider")), str(data.get("policyKey")))
        self.retry_chains[key] = RetryChain(retry_id, retry)
        self.retry_ids.setdefault(retry_id)
        position = (_number(data.get("turn"), 0), _number(data.get("step"), 0))
        self.retries_waiting[retry_id, retry] = position

    def _retry_started(self, _event: Event, data: dict[str, Any]) -> None:
        key = (str(data.get("retryId")), _number(data.get("retry"), 1))
        self.retries_waiting.pop(key, None)

    def _command_run(self, _event: Event, data: dict[str, Any]) -> None:
        command_id = str(data.get("commandId"))
        self.commands[command_id] = None
        self.command_ids.setdefault(command_id)

    def _command_done(self, _event: Event, data: dict[str, Any]) -> None:
        self.commands.pop(str(data.get("commandId")), None)

    def _dispatch_start(self, _event: Event, data: dict[str, Any]) -> None:
        root, sub = str(data.get("rootCallId")), str(data.get("subCallId"))
        parent, name = str(data.get("parentCallId")), str(data.get("name"))
        self.dispatches[sub] = (root, parent, name, data.get("arguments"))
        self.dispatch_roots.setdefault(sub, root)
        call = self.open_calls.get(root)
        if call is not None and not call.nested:
            self.open_calls[root] = msgspec.structs.replace(call, nested=True)

    def _dispatch_end(self, _event: Event, data: dict[str, Any]) -> None:
        self.dispatches.pop(str(data.get("subCallId")), None)


_CHANGES = {
    "turn/start": LogFold._turn_start,
    "turn/end": LogFold._turn_end,
    "step/start": LogFold._step_start,
    "step/end": LogFold._step_end,
    "user/message": LogFold._user_message,
    "assistant/message": LogFold._assistant_message,
    "tool/call": LogFold._tool_call,
    "tool/result": LogFold._tool_result,
    "approval/asked": LogFold._approval_asked,
    "approval/decided": LogFold._approval_decided,
    "approval/policy": LogFold._approval_policy,
    "sandbox/mode": LogFold._sandbox_mode,
    "request/header": LogFold._request_header,
    "session/end-seed": LogFold._end_seed,
    "interlock/writer": LogFold._writer,
    "interlock/settled": LogFold._settled,
    "compaction/start": LogFold._compaction_start,
    "compaction/summary": LogFold._compaction_summary,
    "compaction/end": LogFold._compaction_end,
    "llm/retry": LogFold._retry,
    "llm/retry-started": LogFold._retry_started,
    "command/run": LogFold._command_run,
    "command/done": LogFold._command_done,
    "tool/ptc-dispatch-start": LogFold._dispatch_start,
    "tool/ptc-dispatch": LogFold._dispatch_end,
}


def settled_message_id(call_seq: int) -> str:
    """Return the id of the message that tells the model what became of an unknown call (R4)."""
    return f"settled-{call_seq}"


def _number(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
