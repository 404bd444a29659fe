"""The short way for what nearly every old log is made of: taken in without any edge's rewriting.

Turns, steps, messages, calls, results and chunks whose payloads are already those of the current
format only get another seq on their way. Where nothing else can happen to such an event, its effect
on the edges and on the log's state is written down here at once; wherever anything might (a stream
cut short, a replacement, another source, a broken rule), the event takes the long way, which knows
what to do or why not. So this module decides nothing: each method says False before it changes
anything, and ``tests/backends/generations/test_shortcut.py`` compares both ways.

It belongs to the edges as much as to the log's state, and so it reaches into both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from ..fold import CallState, LogFold
from ..payload_rules import request_fault
from ..payloads import ToolCallBlock, ToolResultBlock
from .attempt import Attempt
from .inventory import stream_fault
from .lean_rows import (
    AssistantMessage,
    Chunks,
    Finish,
    Lean,
    RequestContext,
    RequestHeader,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from .references import GONE
from .relationships import Relationships
from .rows import Run
from .v0_to_v1 import V0ToV1
from .v1_to_v2 import V1ToV2
from .v2_to_v3 import V2ToV3, looks_made

_PLAIN_ENDS = [{"kind": kind} for kind in ("completed", "blocked", "max-tokens", "interrupted")]
_BY_USER = {"kind": "user"}


class Shortcut:
    """Takes events in for a log that no other begins; ``first`` is None in one of v1."""

    def __init__(
        self,
        first: V0ToV1 | None,
        second: V1ToV2,
        third: V2ToV3,
        relationships: Relationships,
        fold: LogFold,
    ) -> None:
        self._second = second
        self._third = third
        self._rules = relationships
        self._fold = fold
        self._results = {} if first is None else first.results
        self._note_results = first is not None
        #: For each type of item, what takes one in or says False and changes nothing.
        self.ways: dict[type, Callable[[Any], bool]] = {
            TurnStart: self._turn_start,
            TurnEnd: self._turn_end,
            StepStart: self._step_start,
            StepEnd: self._step_end,
            UserMessage: self._user_message,
            AssistantMessage: self._assistant_message,
            ToolCall: self._tool_call,
            ToolResult: self._tool_result,
            RequestHeader: self._request_header,
            RequestContext: self._request_context,
            Chunks: self._chunks,
            Run: self._run,
        }

    def _place(self, row: Lean) -> int:
        """Give an event that stays as it is its place in every generation; return the last."""
        second, third, fold = self._second, self._third, self._fold
        second._map.append(second._next)
        second._next += 1
        second._previous = None
        second._last_time = fold.last_time = row.time
        seq = third._next
        third._map.append(seq)
        third._next = fold.next_seq = seq + 1
        return seq

    def _turn_start(self, row: TurnStart) -> bool:
        second, rules, fold, turn = self._second, self._rules, self._fold, row.data.turn
        if (
            second._attempt is not None
            or second._turn is not None
            or rules._turn is not None
            or rules._compaction is not None
            or turn != rules._next_turn
            or not _is_bare(row)
        ):
            return False
        self._place(row)
        second._turn = rules._turn = fold.turn = fold.last_turn = turn
        second._step = rules._step = fold.step = None
        rules._next_step, fold.last_step = 1, 0
        rules._calls.clear()
        fold.open_calls = {}
        return True

    def _turn_end(self, row: TurnEnd) -> bool:
        second, rules, fold, reason = self._second, self._rules, self._fold, row.data.reason
        if (
            second._attempt is not None
            or rules._turn != row.data.turn
            or rules._step is not None
            or rules._compaction is not None
            or reason not in _PLAIN_ENDS
            or not _is_bare(row)
        ):
            return False
        self._place(row)
        second._turn = second._step = self._third._turn_step = None
        rules._turn = fold.turn = fold.step = None
        rules._next_turn += 1
        fold.open_calls, fold.approvals, fold.dispatches = {}, {}, {}
        return True

    def _step_start(self, row: StepStart) -> bool:
        second, third, rules, fold = self._second, self._third, self._rules, self._fold
        turn, step = row.data.turn, row.data.step
        if (
            second._attempt is not None
            or third._head is None
            or rules._step is not None
            or rules._turn != turn
            or rules._next_step != step
            or not _is_bare(row)
        ):
            return False
        self._place(row)
        third._turn_step = turn, step
        second._step = rules._step = fold.step = fold.last_step = step
        fold.open_calls, fold.retry_chains = {}, {}
        return True

    def _step_end(self, row: StepEnd) -> bool:
        second, rules, fold, data = self._second, self._rules, self._fold, row.data
        if (
            second._attempt is not None
            or rules._step != data.step
            or rules._turn != data.turn
            or rules._calls
            or not _is_bare(row)
        ):
            return False
        self._place(row)
        second._step = self._third._turn_step = rules._step = fold.step = None
        rules._next_step += 1
        fold.open_calls = {}
        return True

    def _user_message(self, row: UserMessage) -> bool:
        message = row.data
        if (
            self._second._attempt is not None
            or self._third._head is None
            or row.surfaceOp != "append"
            or row.sourceEventSeqs is not UNSET
            or message.source != _BY_USER
            or looks_made(message.id)
        ):
            return False
        seq = self._place(row)
        self._fold.surface.append("user/message", seq)
        self._fold.user_seqs.append(seq)
        return True

    def _assistant_message(self, row: AssistantMessage) -> bool:
        rules, data = self._rules, row.data
        message = data.message
        if (
            row.surfaceOp != "append"
            or rules._step != data.step
            or rules._turn != data.turn
            or looks_made(message.id)
            or not self._concludes(row)
        ):
            return False
        calls = [block for block in message.content if type(block) is ToolCallBlock]
        names = {block.id for block in calls}
        if len(names) != len(calls) or not names.isdisjoint(rules._calls):
            return False
        self._second._attempt = None
        seq = self._place(row)
        fold = self._fold
        fold.surface.append("assistant/message", seq)
        for block in calls:
            call_id, name, arguments = block.id, block.name, block.arguments
            rules._calls[call_id] = name, arguments, False
            fold.open_calls[call_id] = CallState(call_id, name, arguments, seq)
        return True

    def _concludes(self, row: AssistantMessage) -> bool:
        """Tell whether an answer cites exactly the stream before it, or there is none."""
        attempt, sources = self._second._attempt, row.sourceEventSeqs
        if attempt is None:
            return sources is UNSET or not sources
        return (
            sources is not UNSET
            and not attempt.between
            and (attempt.turn, attempt.step) == (row.data.turn, row.data.step)
            and attempt.is_cited_by(sources)
            and stream_fault(attempt.stream) is None
        )

    def _tool_call(self, row: ToolCall) -> bool:
        rules, data = self._rules, row.data
        call_id = data.call_id
        if (
            self._second._attempt is not None
            or rules._step != data.step
            or rules._turn != data.turn
            or rules._calls.get(call_id) != (data.name, data.arguments, False)
            or not _is_bare(row)
        ):
            return False
        rules._calls[call_id] = data.name, data.arguments, True
        self._fold.call_started(call_id, self._place(row))
        return True

    def _tool_result(self, row: ToolResult) -> bool:
        second, rules, fold, data = self._second, self._rules, self._fold, row.data
        message, sources = data.message, row.sourceEventSeqs
        call_id, block = message.source.call_id, message.content[0]
        call = rules._calls.get(call_id)
        if (
            call is None
            or not call[2]
            or second._attempt is not None
            or row.surfaceOp != "append"
            or rules._step != data.step
            or rules._turn != data.turn
            or data.error is not UNSET
            or type(block) is not ToolResultBlock
            or block.tool_call_id != call_id
            or looks_made(message.id)
            or not (sources is UNSET or self._all_stay(sources))
        ):
            return False
        del rules._calls[call_id]
        if self._note_results:
            self._results[row.seq] = message.id
        seq = self._place(row)
        fold.surface.append("tool/result", seq, call_id)
        fold.call_answered(call_id, seq)
        return True

    def _all_stay(self, sources: list[int]) -> bool:
        """Tell whether events that are earlier than the one at hand have all a place in v2."""
        went = self._second._map.went
        if len(sources) == 1:
            return went(sources[0]) != GONE
        return all(went(source) != GONE for source in sources)

    def _request_header(self, row: RequestHeader) -> bool:
        header = row.data.header
        config = header.config
        if (
            self._second._attempt is not None
            or self._rules._turn is None
            or header.system != self._third._prompt
            or config.reasoning_effort == ""
            or request_fault(header) is not None
            or not _is_bare(row)
        ):
            return False
        self._place(row)
        self._rules._provider = self._fold.provider = config.provider
        return True

    def _request_context(self, row: RequestContext) -> bool:
        attempt, turn = self._second._attempt, self._rules._turn
        if attempt is not None or turn is None or not _is_bare(row):
            return False
        self._place(row)
        return True

    def _chunks(self, item: Chunks) -> bool:
        second, chunks = self._second, item.chunks
        attempt, last = second._attempt, item.chunks[-1]
        if attempt is None:
            attempt = second._attempt = Attempt(item.turn, item.step)
        elif not _goes_on(attempt, item.turn, item.step):
            return False
        count = len(chunks)
        attempt.pass_over(chunks[0].seq, count, last.time)
        attempt.terminal = type(last.data.chunk) is Finish
        second._map.skip(count)
        second._previous = None
        second._last_time = last.time
        return True

    def _run(self, run: Run) -> bool:
        second = self._second
        attempt = second._attempt
        if attempt is None:
            attempt = second._attempt = Attempt(run.turn, run.step)
        elif not _goes_on(attempt, run.turn, run.step):
            return False
        attempt.add_run(run)
        second._map.skip(run.count)
        second._previous = None
        second._last_time = run.time
        return True


def _goes_on(attempt: Attempt, turn: int, step: int) -> bool:
    """Tell whether a chunk simply is a stream's next one."""
    return not (attempt.between or attempt.terminal or attempt.turn != turn or attempt.step != step)


def _is_bare(row: Lean) -> bool:
    """Tell whether an event keeps away from the surface."""
    return row.surfaceOp is UNSET and row.sourceEventSeqs is UNSET
