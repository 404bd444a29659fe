"""The rules that join events to each other (L1): one function for each event type that has some.

Each takes the fold as it is before the event and raises :class:`GrammarError` with the broken
rule. None changes anything. They are the "checks on the target" of the harness's restorer; where
that says nothing and the contract does (A4, P9), the contract's rule stands here too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .event import Event, Replace

if TYPE_CHECKING:
    from .fold import LogFold

NOT_STARTED_TEXT = (
    "The tool call was interrupted before the Harness recorded it as started. "
    "Retry it if it is still needed."
)

_CANONICAL_INTEGER = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)


class GrammarError(ValueError):
    """The event breaks a rule between events; the text says which."""


Data = dict[str, Any]


def repair_message_id(call_id: str, seq: int) -> str:
    """Return the message id that marks a result written by repair at ``seq``."""
    return f"interrupted-tool-result-{call_id}-{seq}"


def is_repair_message_id(message_id: str, call_id: str) -> bool:
    """Tell whether a message id marks a result written by repair, at whatever seq."""
    # Any canonical integer: migration renumbers events and keeps their message ids.
    prefix = repair_message_id(call_id, 0)[:-1]
    number = message_id.removeprefix(prefix)
    return message_id.startswith(prefix) and _CANONICAL_INTEGER.fullmatch(number) is not None


def _turn_start(fold: LogFold, _event: Event, data: Data) -> None:
    if fold.turn is not None:
        _refuse(f"turn {fold.turn} is still open")
    if data["turn"] != fold.last_turn + 1:
        _refuse(f"the next turn is {fold.last_turn + 1}, not {data['turn']}")
    _no_compaction(fold)


def _turn_end(fold: LogFold, _event: Event, data: Data) -> None:
    _in_turn(fold, data["turn"])
    _no_compaction(fold)
    if fold.step is not None:
        _refuse(f"step {fold.step} is still open")
    undecided = _undecided(fold)
    if undecided is not None:
        _refuse(f"approval request {undecided!r} is not decided")


def _step_start(fold: LogFold, _event: Event, data: Data) -> None:
    _in_turn(fold, data["turn"])
    if fold.step is not None:
        _refuse(f"step {fold.step} is still open")
    if data["step"] != fold.last_step + 1:
        _refuse(f"the next step of turn {fold.turn} is {fold.last_step + 1}, not {data['step']}")


def _step_end(fold: LogFold, _event: Event, data: Data) -> None:
    _in_step(fold, data)
    for call in fold.open_calls.values():
        if call.result_seq is None:
            _refuse(f"call {call.call_id!r} has no result yet")


def _in_open_step(fold: LogFold, _event: Event, data: Data) -> None:
    _in_step(fold, data)


def _in_open_turn(fold: LogFold, _event: Event, _data: Data) -> None:
    if fold.turn is None:
        _refuse("no turn is open")


def _assistant_message(fold: LogFold, _event: Event, data: Data) -> None:
    _in_step(fold, data)
    seen = set(fold.open_calls)
    for block in data["message"]["content"]:
        if block.get("type") != "tool-call":
            continue
        # P9: one id twice in one message; the restorer refuses it in one step as well.
        if block["id"] in seen:
            _refuse(f"call id {block['id']!r} is advertised twice in this step")
        seen.add(block["id"])


def _tool_call(fold: LogFold, _event: Event, data: Data) -> None:
    _in_step(fold, data)
    call = fold.open_calls.get(data["callId"])
    if call is None:
        _refuse(f"no message of this step advertised call {data['callId']!r}")
    if call.call_seq is not None or call.result_seq is not None:
        _refuse(f"call {call.call_id!r} was already recorded")
    if call.name != data["name"] or call.arguments != data["arguments"]:
        _refuse(f"call {call.call_id!r} was advertised with another name or other arguments")


def _tool_result(fold: LogFold, event: Event, data: Data) -> None:
    if isinstance(event.surface_op, Replace):
        _in_open_turn(fold, event, data)
        return
    _in_step(fold, data)
    call_id = data["message"]["source"]["callId"]
    call = fold.open_calls.get(call_id)
    if call is None:
        _refuse(f"no message of this step advertised call {call_id!r}")
    if call.result_seq is not None:
        _refuse(f"call {call_id!r} already has its result, at seq {call.result_seq}")
    if call.call_seq is None:
        if not _is_not_started_repair(event, data, call_id):
            _refuse(f"call {call_id!r} was not recorded as started")
    elif event.sources != (call.call_seq,):
        _refuse(f"the result must cite its tool/call: sourceEventSeqs [{call.call_seq}]")


def _is_not_started_repair(event: Event, data: Data, call_id: str) -> bool:
    message = data["message"]
    content = message["content"][0].get("content")
    return (
        data.get("error") == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
        and event.sources is None
        and is_repair_message_id(message["id"], call_id)
        and content == [{"type": "text", "text": NOT_STARTED_TEXT}]
    )


def _approval_asked(fold: LogFold, event: Event, data: Data) -> None:
    _in_open_turn(fold, event, data)  # A4
    if data["id"] in fold.approvals:
        _refuse(f"approval request {data['id']!r} is already open")
    if "callId" in data:
        call = fold.open_calls.get(data["callId"])
        if call is not None and call.result_seq is not None:
            _refuse(f"call {call.call_id!r} already has its result")


def _approval_decided(fold: LogFold, event: Event, data: Data) -> None:
    _in_open_turn(fold, event, data)
    if data["id"] not in fold.approvals:
        _refuse(f"no open approval request has the id {data['id']!r}")


def _title(fold: LogFold, _event: Event, data: Data) -> None:
    seqs = data.get("messageSeqs")
    for seq in seqs if isinstance(seqs, list) else ():
        if not isinstance(seq, int) or not fold.is_user_message(seq):
            _refuse(f"messageSeqs cite {seq}, which is no message of a person")


def _user_message(fold: LogFold, event: Event, data: Data) -> None:
    source = data["source"]
    checkpoint = source.get("kind") == "plugin" and source.get("plugin") == "compact"
    if checkpoint and isinstance(event.surface_op, Replace):
        _owns_compaction(fold, source)


def _compaction_start(fold: LogFold, _event: Event, data: Data) -> None:
    _no_compaction(fold)
    if data["turn"] != fold.turn:
        _refuse(f"its turn is {data['turn']}, the open one {fold.turn}")


def _compaction_summary(fold: LogFold, _event: Event, data: Data) -> None:
    _owns_compaction(fold, data)
    if fold.compaction is not None and fold.compaction.summarized:
        _refuse("the open compaction already has its summary")
    _exact_span(fold, data)


def _compaction_end(fold: LogFold, _event: Event, data: Data) -> None:
    _owns_compaction(fold, data)
    if data["turn"] != fold.turn:
        _refuse(f"its turn is {data['turn']}, the open one {fold.turn}")
    if "error" not in data and fold.compaction is not None and not fold.compaction.summarized:
        _refuse("a successful compaction needs its summary first")


def _compaction_prune(fold: LogFold, _event: Event, data: Data) -> None:
    _exact_span(fold, data)


def _retry(fold: LogFold, _event: Event, data: Data) -> None:
    _in_step(fold, data)
    if data["provider"] != fold.provider:
        _refuse(f"its provider is {data['provider']!r}, the last request's {fold.provider!r}")
    chain = fold.retry_chains.get((data["provider"], data["policyKey"]))
    expected = 1 if chain is None else chain.retry + 1
    if data["retry"] != expected:
        _refuse(f"the next retry of this policy is {expected}, not {data['retry']}")
    if chain is not None and chain.retry_id != data["retryId"]:
        _refuse("a policy's retries in one step share one retryId")
    if chain is None and data["retryId"] in fold.retry_ids:
        _refuse(f"retryId {data['retryId']!r} was used before")


def _retry_started(fold: LogFold, _event: Event, data: Data) -> None:
    scheduled = fold.retries_waiting.get((data["retryId"], data["retry"]))
    if scheduled is None:
        _refuse("no scheduled retry waits to be started")
    if scheduled != (data["turn"], data["step"]):
        _refuse("it names another turn or step than the scheduled retry")


def _command_run(fold: LogFold, _event: Event, data: Data) -> None:
    if data["commandId"] in fold.command_ids:
        _refuse(f"commandId {data['commandId']!r} was used before")


def _command_done(fold: LogFold, event: Event, data: Data) -> None:
    if data["commandId"] not in fold.commands:
        _refuse(f"no command {data['commandId']!r} is running")
    source = data.get("sourceEventSeq")
    if source is not None and (data["kind"] != "success" or source >= event.seq):
        _refuse("sourceEventSeq must be an earlier event of a command that succeeded")


def _dispatch_start(fold: LogFold, event: Event, data: Data) -> None:
    _in_open_turn(fold, event, data)
    _dispatch_family(fold, data)
    if data["subCallId"] in fold.dispatch_roots:
        _refuse(f"subCallId {data['subCallId']!r} was used before")


def _dispatch_end(fold: LogFold, event: Event, data: Data) -> None:
    _in_open_turn(fold, event, data)
    _dispatch_family(fold, data)
    start = fold.dispatches.get(data["subCallId"])
    members = (data["rootCallId"], data["parentCallId"], data["name"], data["arguments"])
    if start is None:
        _refuse(f"no open dispatch has the subCallId {data['subCallId']!r}")
    if start != members:
        _refuse("the dispatch differs from its start")


def _dispatch_family(fold: LogFold, data: Data) -> None:
    root, parent = data["rootCallId"], data["parentCallId"]
    if fold.dispatch_roots.get(data["subCallId"], root) != root:
        _refuse("the dispatch changes its rootCallId")
    if parent != root and fold.dispatch_roots.get(parent) != root:
        _refuse("parentCallId does not belong to rootCallId")


def _in_turn(fold: LogFold, turn: int) -> None:
    if fold.turn != turn:
        _refuse(f"turn {turn} is not open" + (f" (turn {fold.turn} is)" if fold.turn else ""))


def _in_step(fold: LogFold, data: Data) -> None:
    _in_turn(fold, data["turn"])
    if fold.step != data["step"]:
        opened = f" (step {fold.step} is)" if fold.step else ""
        _refuse(f"step {data['step']} of turn {fold.turn} is not open{opened}")


def _undecided(fold: LogFold) -> str | None:
    """Return an open request that Interlock asked: it owes it a decision (A4)."""
    for approval in fold.approvals.values():
        if fold.written_by_interlock(approval.seq):
            return approval.id
    return None


def _no_compaction(fold: LogFold) -> None:
    if fold.compaction is not None:
        _refuse(f"compaction {fold.compaction.id!r} is still open")


def _owns_compaction(fold: LogFold, data: Data) -> None:
    compaction = fold.compaction
    if (
        compaction is None
        or compaction.id != data.get("compactionId")
        or compaction.command_id != data.get("sourceCommandId")
    ):
        _refuse("it belongs to no open compaction")


def _exact_span(fold: LogFold, data: Data) -> None:
    bounds = data["shadowedRange"]
    span = fold.surface.span(bounds["start"], bounds["end"])
    if not data["shadowedSeqs"] or span != data["shadowedSeqs"]:
        _refuse("shadowedSeqs name no exact span of the current surface")
    if fold.surface.head in data["shadowedSeqs"]:
        _refuse("a compaction may not hide the system head")


def _refuse(rule: str) -> NoReturn:
    raise GrammarError(rule)


RULES: dict[str, Callable[[LogFold, Event, Data], None]] = {
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "step/start": _step_start,
    "step/end": _step_end,
    "system/message": _in_open_step,
    "user/message": _user_message,
    "assistant/message": _assistant_message,
    "assistant/attempt": _in_open_step,
    "tool/call": _tool_call,
    "tool/result": _tool_result,
    "approval/asked": _approval_asked,
    "approval/decided": _approval_decided,
    "request/header": _in_open_turn,
    "request/context": _in_open_turn,
    "session/title": _title,
    "session/title-llm-request": _title,
    "compaction/start": _compaction_start,
    "compaction/summary": _compaction_summary,
    "compaction/end": _compaction_end,
    "compaction/prune": _compaction_prune,
    "llm/retry": _retry,
    "llm/retry-started": _retry_started,
    "command/run": _command_run,
    "command/done": _command_done,
    "tool/ptc-dispatch-start": _dispatch_start,
    "tool/ptc-dispatch": _dispatch_end,
}
