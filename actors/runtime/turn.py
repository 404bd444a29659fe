"""Turns and steps: the logic under their sync and async objects.

A turn holds steps; a step is one model answer and its calls. Before a step starts everything
earlier is made durable (K1), and each call's record is durable before its body runs (K2).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, LogError, SessionError
from interlock.backends.event import Draft, Event, draft
from interlock.backends.fold import settled_message_id

from ..agent.answer import Answer
from ..errors import RuntimeFailureError
from ..messages import (
    Appended,
    CancelCalls,
    ExecuteStep,
    SessionOpened,
    SessionState,
    StepExecuted,
    WireCall,
    WireResult,
)
from ..port import PeerLostError
from ..roles import Role
from ..tools import jsontext
from ..tools.result import ToolResult
from .flow import Flow, in_thread
from .reply import Reply
from .session import SessionCore

#: What a body gets (s) to end by itself when the user presses Ctrl-C.
INTERRUPT_GRACE = 0.5
#: A step's calls may wait for people and run for long; each has its own deadline (s).
STEP_TIMEOUT = 7 * 24 * 3600.0


@dataclass(frozen=True)
class ToolCall:
    """A call as a model advertises it.

    ``arguments`` is a JSON object, or the raw string as the model wrote it, which is what the log
    keeps.
    """

    id: str
    name: str
    arguments: dict[str, Any] | str = ""

    @property
    def raw(self) -> str:
        if isinstance(self.arguments, str):
            return self.arguments
        try:
            return jsontext.encode(jsontext.normalise(self.arguments)).decode()
        except (TypeError, ValueError) as error:
            raise LogError(
                Code.EVENT_INVALID, f"the arguments of call {self.id!r} are not JSON: {error}"
            ) from None


def message_id(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex}"


def user_message(
    text: str, source: dict[str, Any] | None = None, *, name: str | None = None
) -> Draft:
    """A ``user/message`` event of one text block."""
    data = {
        "id": name or message_id("user"),
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": source or {"kind": "user"},
    }
    return draft("user/message", data, surface_op="append")


def tell_outcomes(session: SessionCore, news: Sequence[tuple[int, str]]) -> Flow[None]:
    """R4: what is known now of calls whose results said "unknown", in a turn of its own.

    ``news`` has the seq of each call's record and the words. Durable when it returns.
    """
    number = session.last_turn + 1
    source = {"kind": "plugin", "plugin": "interlock"}
    told = [
        user_message(text, source, name=settled_message_id(call_seq)) for call_seq, text in news
    ]
    start = draft("turn/start", {"turn": number})
    end = draft("turn/end", {"turn": number, "reason": {"kind": "completed"}})
    yield from session.append_drafts([start, *told, end], flush=True)
    session.last_turn = number


class TurnCore:
    """One turn. ``number`` counts from 1 in the session."""

    def __init__(self, session: SessionCore, prompt: str | None) -> None:
        self.session = session
        self.prompt = prompt
        self.number = session.last_turn + 1
        self.step: StepCore | None = None
        self.last_step = 0
        self.ended = False

    def start(self) -> Flow[None]:
        session = self.session
        session.check()
        if session.turn_open:
            raise SessionError(
                Code.SESSION_CLOSED,
                f"session {session.id!r} has an open turn already; turns follow one another",
                session=session.id,
            )
        drafts = [draft("turn/start", {"turn": self.number})]
        if self.prompt is not None:
            drafts.append(user_message(self.prompt))
        yield from session.append_drafts(drafts)
        session.last_turn, session.turn_open = self.number, True

    def new_step(self) -> StepCore:
        if self.ended:
            raise LogError(Code.EVENT_INVALID, f"turn {self.number} has ended; start another one")
        if self.step is not None and not self.step.ended:
            raise LogError(
                Code.EVENT_INVALID, f"step {self.step.number} of turn {self.number} is still open"
            )
        self.last_step += 1
        self.step = StepCore(self, self.last_step)
        return self.step

    def end(self, reason: dict[str, Any]) -> Flow[None]:
        """End the turn with the reason of its ``turn/end``, once its steps have ended."""
        if self.ended:
            raise LogError(Code.EVENT_INVALID, f"turn {self.number} has ended already")
        self.ended, self.session.turn_open = True, False
        end = {"turn": self.number, "reason": reason}
        yield from self.session.append_drafts([draft("turn/end", end)])

    def finish(self, error: BaseException | None) -> Flow[None]:
        """End the turn; what is left of an open step is recorded as cancelled (P4)."""
        if self.ended:
            return
        self.ended, self.session.turn_open = True, False
        if isinstance(error, KeyboardInterrupt | SystemExit) and self._unsettled():
            return  # the runtime ends and records what it can; the repair closes the turn (R2)
        try:
            if self.step is not None and not self.step.ended:
                yield from self.step.finish()
            end = {"turn": self.number, "reason": _reason(error)}
            yield from self.session.append_drafts([draft("turn/end", end)])
        except InterlockError:
            if error is None:
                raise
            # The log cannot be written; what the caller is told is what went wrong first.

    def _unsettled(self) -> bool:
        step = self.step
        return step is not None and not step.ended and bool(step.calls) and step.results is None


class StepCore:
    """One step: a barrier, a model answer, its calls and their results."""

    def __init__(self, turn: TurnCore, number: int) -> None:
        self.turn, self.session, self.number = turn, turn.session, number
        self.message_seq = -1
        self.calls: list[ToolCall] = []
        self.results: list[ToolResult] | None = None
        self.ended = False
        self._asked: Reply[StepExecuted] | None = None

    def start(self) -> Flow[None]:
        """K1: the earlier facts are durable before the step begins."""
        session = self.session
        yield from session.flush()
        drafts = [draft("step/start", {"turn": self.turn.number, "step": self.number})]
        policy = session.policy_in_force
        if policy != session.told_policy:
            source = {"kind": "plugin", "plugin": "interlock"}
            drafts.append(user_message(policy_statement(policy), source))
        yield from session.append_drafts(drafts)
        session.told_policy = policy

    def assistant(self, text: str, calls: Sequence[ToolCall] = ()) -> Flow[int]:
        """Append an answer that no model of ours gave; the ``seq`` of the message."""
        source = {"kind": "model", "provider": "external", "model": "external"}
        message = {
            "id": message_id("assistant"),
            "role": "assistant",
            "content": _blocks(text, calls),
            "source": source,
        }
        data: dict[str, Any] = {
            "turn": self.turn.number,
            "step": self.number,
            "message": message,
            "stream": [],
        }
        seq: int = yield from self._answered(data, calls)
        return seq

    def record(self, answer: Answer) -> Flow[int]:
        """Append a model's answer with its stream; the ``seq`` of the message."""
        data = answer.event_data(self.turn.number, self.number, message_id("assistant"))
        calls = [ToolCall(c["id"], c["name"], c["arguments"]) for c in answer.calls]
        seq: int = yield from self._answered(data, calls)
        return seq

    def attempt(self, stream: Sequence[dict[str, Any]]) -> Flow[None]:
        """Append an ``assistant/attempt``: chunks of a model that yielded no message."""
        data = {"turn": self.turn.number, "step": self.number, "stream": list(stream)}
        yield from self.session.append_drafts([draft("assistant/attempt", data)])

    def _answered(self, data: dict[str, Any], calls: Sequence[ToolCall]) -> Flow[int]:
        if self.message_seq >= 0:
            raise LogError(
                Code.EVENT_INVALID,
                f"step {self.number} has its answer already; a step is one model answer",
            )
        made = draft("assistant/message", data, surface_op="append")
        reply: Appended = yield from self.session.append_drafts([made])
        self.message_seq, self.calls = reply.first_seq, list(calls)
        return reply.first_seq

    def execute(self) -> Flow[list[ToolResult]]:
        """Run the calls; their results in model order. A second time it returns the same
        results.
        """
        if self.results is not None or not self.calls:
            return self.results or []
        try:
            results: list[ToolResult] = yield from self._executed(cancelled=False)
        except GeneratorExit:
            raise
        except InterlockError:
            raise
        except (KeyboardInterrupt, SystemExit):
            # The program ends: ask, wait for a moment only, and leave the rest to the runtime's
            # end.
            self.cancel("the program was interrupted")
            yield from self._recorded_within(INTERRUPT_GRACE)
            raise
        except BaseException:
            # A cancelled task: cancel, and wait for what is recorded of it (P4).
            self.cancel("the caller was cancelled")
            yield from self._recorded()
            raise
        self.results = results
        return results

    def cancel(self, reason: str = "", call_ids: Sequence[str] | None = None) -> None:
        """Ask for the step's calls to be cancelled; ``execute`` returns what became of them."""
        ids = None if call_ids is None else list(call_ids)
        message = CancelCalls(self.session.id, self.message_seq, reason, ids)
        self.session.host.tell(Role.DISPATCHER, message)

    def finish(self) -> Flow[None]:
        """Record calls that were never run as cancelled, and end the step."""
        if self.ended:
            return
        self.ended = True
        if self.calls and self.results is None:
            self.results = yield from self._executed(cancelled=True)
        end = {"turn": self.turn.number, "step": self.number}
        yield from self.session.append_drafts([draft("step/end", end)])

    # Executing, also across the end of a dispatcher.

    def _executed(self, *, cancelled: bool) -> Flow[list[ToolResult]]:
        known: dict[str, ToolResult] = {}
        calls = [WireCall(c.id, c.name, c.raw.encode("utf-8", "surrogatepass")) for c in self.calls]
        while True:
            try:
                reply = yield from self._ask_dispatcher(calls, cancelled=cancelled)
            except PeerLostError:
                # F3: a new dispatcher settles what the old one had begun and runs the rest.
                self.session.check()
                yield self.session.host.alive(Role.DISPATCHER)
                calls, known = yield from self._what_is_left()
                continue
            return self._in_model_order(known, reply.results)

    def _ask_dispatcher(self, calls: list[WireCall], *, cancelled: bool) -> Flow[StepExecuted]:
        session = self.session
        session.check()
        if not calls:
            return StepExecuted(0, [])

        def build(rid: int) -> ExecuteStep:
            return ExecuteStep(
                rid,
                session.id,
                session.created_at,
                session.cwd or "",
                self.turn.number,
                self.number,
                self.message_seq,
                calls,
                cancelled,
            )

        self._asked = session.host.request(Role.DISPATCHER, build, STEP_TIMEOUT)
        reply: StepExecuted = yield self._asked
        return reply

    def _recorded(self) -> Flow[None]:
        """After a cancellation: wait until every call has its result, if anybody still records."""
        try:
            self.results = yield from self._executed(cancelled=False)
        except (InterlockError, PeerLostError):
            return

    def _recorded_within(self, seconds: float) -> Flow[None]:
        asked = self._asked
        if asked is None:
            return
        yield in_thread(lambda: asked.wait(seconds))
        if asked.done() and asked.exception() is None:
            self.results = self._in_model_order({}, asked.result().results)

    def _what_is_left(self) -> Flow[tuple[list[WireCall], dict[str, ToolResult]]]:
        """From the log: the calls without a result, and the results of the others."""
        state: SessionOpened = yield from self.session.ask(
            Role.WRITER, lambda rid: SessionState(rid, self.session.id)
        )
        open_calls = {c.call_id: c for c in state.unanswered if c.message_seq == self.message_seq}
        events: list[Event] = yield from self.session.events(self.message_seq + 1)
        left = []
        for call in self.calls:
            if call.id in open_calls:
                started = open_calls[call.id].call_seq
                raw = call.raw.encode("utf-8", "surrogatepass")
                seq = -1 if started is None else started
                undecided, never_released = approvals_of(call.id, events)
                left.append(WireCall(call.id, call.name, raw, seq, undecided, never_released))
        names = {call.id: call.name for call in self.calls}
        known: dict[str, ToolResult] = {}
        for event in events:
            if event.type == "tool/result":
                call_id = event.data["message"]["source"]["callId"]
                if call_id in names and call_id not in open_calls:
                    known[call_id] = ToolResult.from_event(names[call_id], event.data)
        return left, known

    def _in_model_order(
        self, known: dict[str, ToolResult], results: list[WireResult]
    ) -> list[ToolResult]:
        by_id = dict(known)
        unrecorded = []
        for result in results:
            by_id[result.call_id] = ToolResult.of(result.call_id, result.name, result.outcome)
            if result.seq < 0:
                unrecorded.append(result.call_id)
        if unrecorded:
            # The results are held by the dispatcher and recorded when the session is reopened.
            self.ended = True
            self.session.lost_writer()
        missing = [call.id for call in self.calls if call.id not in by_id]
        if missing:
            raise RuntimeFailureError(
                Code.ACTOR_LOST,
                f"session {self.session.id!r}: no result came for {', '.join(missing)}",
                session=self.session.id,
            )
        return [by_id[call.id] for call in self.calls]


def _blocks(text: str, calls: Sequence[ToolCall]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    for call in calls:
        block = {"type": "tool-call", "id": call.id, "name": call.name, "arguments": call.raw}
        blocks.append(block)
    return blocks


def _reason(error: BaseException | None) -> dict[str, Any]:
    """How a turn ended, for its ``turn/end``."""
    import asyncio

    if error is None:
        return {"kind": "completed"}
    if isinstance(error, KeyboardInterrupt | asyncio.CancelledError | GeneratorExit):
        return {"kind": "aborted", "reason": {"kind": "user"}}
    code = str(error.code) if isinstance(error, InterlockError) else "ERROR"
    message = (
        error.message if isinstance(error, InterlockError) else f"{type(error).__name__}: {error}"
    )
    return {"kind": "error", "error": {"message": message or type(error).__name__, "code": code}}


def approvals_of(call_id: str, events: Iterable[Event]) -> tuple[list[str], bool]:
    """R6: which requests of a call are open, and whether the log proves that its body never ran.

    The proof is a request that was asked and not granted; one that a nested call may have asked
    proves nothing, since the body that made that call ran.
    """
    asked: dict[str, str | None] = {}
    nested = False
    for event in events:
        data = event.data
        if event.type == "approval/asked" and data["callId"] == call_id:
            asked[data["id"]] = None
        elif event.type == "approval/decided" and data["id"] in asked:
            asked[data["id"]] = data["outcome"]
        elif event.type == "tool/ptc-dispatch-start" and data["rootCallId"] == call_id:
            nested = True
    undecided = [request for request, outcome in asked.items() if outcome is None]
    granted = all(outcome == "allowed-once" for outcome in asked.values())
    return undecided, not nested and not granted


def policy_statement(policy: str) -> str:
    """A7: what the model is told when the approval policy changes."""
    if policy == "never":
        return (
            "The approval policy is now 'never': a call that would need an approval is rejected "
            "without anybody being asked. Choose calls that need none, or say what you cannot do."
        )
    return (
        "The approval policy is now 'ask': a call that needs an approval is shown to somebody, who "
        "allows or rejects that one call."
    )
