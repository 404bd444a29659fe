"""What an interrupted log lacks, and how it is completed.

Nothing here touches a disk or runs a tool (R3). Repair derives everything from the log each time,
so it may itself be interrupted and run again (R7), and a repaired log needs none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from .codes import Code
from .event import Draft, Event, draft
from .fold import CallState, Compaction, LogFold
from .grammar import NOT_STARTED_TEXT, repair_message_id

#: The harness's own words, letter for letter: its validators compare the first of them.
OUTCOME_UNKNOWN_TEXT = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. "
    "Its outcome is unknown. Decide whether to retry from the tool semantics: retry only if the "
    "operation is read-only or idempotent; if it may have side effects, first verify external "
    "state or ask the user. Do not retry blindly."
)

RECORDS_LOST_TEXT = (
    "The end of the session's log was damaged and records that may have been there are gone. "
    "Whether this tool call was started, and what it did, is unknown. " + OUTCOME_UNKNOWN_TEXT
)

NEVER_RELEASED_TEXT = (
    "The tool call was interrupted while it waited for approval. Its approval was asked for and no "
    "grant was recorded, so it was never released and did not run. Retry it if it is still needed."
)

NO_RESULT_TEXT = (
    "The turn ended before this tool call got a result, and none was recorded. It was recorded as "
    "started, so its outcome is unknown: if it may have side effects, first verify external state "
    "or ask the user. Do not retry blindly."
)


class Missing(msgspec.Struct, frozen=True):
    """The result that derived history supplies for a call of an old turn (R1)."""

    call_id: str
    message_seq: int
    code: Code
    text: str


def closers(
    fold: LogFold, *, dropped_acknowledged: bool = False, first_seq: int | None = None
) -> list[Draft]:
    """Return the events that complete what a log left open, in order; none if nothing is (R2).

    ``fold`` is the log's state; append the result at ``fold.last_time`` and before anything else,
    since message ids hold their own seq (``first_seq``, by default ``fold.next_seq``).
    ``dropped_acknowledged`` says that records were lost which may have been acknowledged
    (``Dropped.may_be_acknowledged``): then the absence of a record proves nothing (R1).
    """
    if fold.balanced:
        return []
    seq = fold.next_seq if first_seq is None else first_seq
    drafts: list[Draft] = []
    for approval in fold.open_approvals:
        # R2: only Interlock owes each request a decision; the harness's logs leave them open.
        if fold.written_by_interlock(approval.seq):
            decided = {"id": approval.id, "outcome": "cancelled"}
            drafts.append(draft("approval/decided", decided))
    for call in fold.calls:
        if call.result_seq is None:
            drafts += _answer(fold, call, seq + len(drafts), dropped_acknowledged)
    if fold.compaction is not None:
        # Neither this turn's end nor a next turn may cross it, and it cannot be finished any more.
        drafts.append(_end_compaction(fold, fold.compaction))
    if fold.step is not None:
        drafts.append(draft("step/end", {"turn": fold.turn, "step": fold.step}))
    if fold.turn is not None:
        end = {"turn": fold.turn, "reason": {"kind": "interrupted"}}
        drafts.append(draft("turn/end", end))
    return drafts


def missing_results(events: Iterable[Event]) -> dict[tuple[int, str], Missing]:
    """Return what to answer for calls of closed turns that never got a result (R1).

    The key is the call's identity within its log: (seq of its message, call id). The past is not
    rewritten: the answer stands in the history that a model gets, not in the log. Calls of a turn
    that is still open are left out; :func:`closers` is for them.
    """
    open_calls: dict[str, tuple[int, bool]] = {}
    missing: dict[tuple[int, str], Missing] = {}

    def give_up() -> None:
        for call_id, (message_seq, started) in open_calls.items():
            code = Code.TOOL_OUTCOME_UNKNOWN if started else Code.TOOL_NOT_STARTED
            text = NO_RESULT_TEXT if started else NOT_STARTED_TEXT
            missing[message_seq, call_id] = Missing(call_id, message_seq, code, text)
        open_calls.clear()

    for event in events:
        if event.type in ("step/start", "step/end", "turn/start", "turn/end"):
            give_up()
        elif event.type == "assistant/message":
            for block in event.data["message"]["content"]:
                if isinstance(block, dict) and block.get("type") == "tool-call":
                    open_calls[block["id"]] = (event.seq, False)
        elif event.type == "tool/call":
            call_id = event.data.get("callId")
            if isinstance(call_id, str) and call_id in open_calls:
                open_calls[call_id] = (open_calls[call_id][0], True)
        elif event.type == "tool/result" and event.surface_op == "append":
            open_calls.pop(event.data["message"]["source"]["callId"], None)
    return missing


def _end_compaction(fold: LogFold, compaction: Compaction) -> Draft:
    data: dict[str, Any] = {"compactionId": compaction.id, "turn": fold.turn}
    if compaction.command_id is not None:
        data["sourceCommandId"] = compaction.command_id
    return draft("compaction/end", data | {"error": "interrupted"})


def _answer(fold: LogFold, call: CallState, seq: int, dropped_acknowledged: bool) -> list[Draft]:
    """Return what answers one unanswered call (R1); the first event of it gets ``seq``."""
    ours = fold.written_by_interlock(call.message_seq)
    if call.call_seq is None:
        if not (dropped_acknowledged and ours):
            return [_result(fold, call, seq, Code.TOOL_NOT_STARTED, NOT_STARTED_TEXT, None)]
        # R1: the lost records may have held its tool/call, and its body may have run. A result of
        # a call that is not recorded may only say "not started", so the call is recorded first.
        recorded = draft(
            "tool/call",
            {
                "turn": fold.turn,
                "step": fold.step,
                "callId": call.call_id,
                "name": call.name,
                "arguments": call.arguments,
            },
        )
        code = Code.TOOL_OUTCOME_UNKNOWN
        return [recorded, _result(fold, call, seq + 1, code, RECORDS_LOST_TEXT, seq)]
    if dropped_acknowledged and ours:
        code = Code.TOOL_OUTCOME_UNKNOWN
        return [_result(fold, call, seq, code, RECORDS_LOST_TEXT, call.call_seq)]
    if fold.written_by_interlock(call.call_seq) and never_released(call):
        # R6. The harness's restorer asks for the canonical text only where there is no tool/call;
        # a result that cites its call may have this code and words of its own.
        code = Code.TOOL_NOT_STARTED
        return [_result(fold, call, seq, code, NEVER_RELEASED_TEXT, call.call_seq)]
    code = Code.TOOL_OUTCOME_UNKNOWN
    return [_result(fold, call, seq, code, OUTCOME_UNKNOWN_TEXT, call.call_seq)]


def never_released(call: CallState) -> bool:
    """Tell whether the log proves that the call's body cannot have run (R6)."""
    return not call.nested and any(approval not in call.granted for approval in call.asked)


def _result(
    fold: LogFold, call: CallState, seq: int, code: Code, text: str, call_seq: int | None
) -> Draft:
    names = {
        Code.TOOL_NOT_STARTED: "ToolNotStartedError",
        Code.TOOL_OUTCOME_UNKNOWN: "ToolOutcomeUnknownError",
    }
    data: dict[str, Any] = {
        "turn": fold.turn,
        "step": fold.step,
        "message": {
            "id": repair_message_id(call.call_id, seq),
            "role": "user",
            "source": {"kind": "tool", "callId": call.call_id},
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": call.call_id,
                    "isError": True,
                    "content": [{"type": "text", "text": text}],
                }
            ],
        },
        "error": {"name": names[code], "code": str(code)},
    }
    sources = None if call_seq is None else (call_seq,)
    return draft("tool/result", data, surface_op="append", sources=sources)
