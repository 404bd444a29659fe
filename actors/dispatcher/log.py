"""What the dispatcher says to the log writer: appends, checkpoints, results."""

from __future__ import annotations

import contextlib
import logging
import uuid
from typing import Any

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError
from interlock.backends.event import Draft, draft

from ..fibers import Promise
from ..messages import Append, Appended, Flush, SessionOpened, SessionState, WireResult
from ..port import PeerLostError, Port, ReplyTimeoutError
from ..release import Checkpoint
from ..roles import Role
from ..tools.fit import INLINE_LIMIT, fit
from ..tools.outcome import Outcome, unrecorded
from ..tools.result import ToolResult
from .call import CallRun, Ended

_log = logging.getLogger(__name__)

#: K3: an acknowledgement that takes longer than this (s) releases nothing.
CHECKPOINT_TIMEOUT = 30.0
#: A result is not given up that soon: nothing is lost by waiting for a slow disk.
RESULT_TIMEOUT = 300.0


class LogClient:
    """The dispatcher's side of the log. Runs in the dispatcher's thread."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._flushes: dict[str, Promise[Appended]] = {}
        #: Results whose session was lost, by session and call: recorded when it is reopened (F2).
        self.held: dict[str, dict[tuple[int, str], Draft]] = {}

    def append(
        self,
        session: str,
        drafts: list[Draft],
        *,
        after: int = -1,
        flush: bool = False,
        behalf: bytes = b"",
        timeout: float = CHECKPOINT_TIMEOUT,
    ) -> Promise[Appended]:
        """Append; with ``flush`` the reply is an acknowledgement that they are durable."""
        return self._port.ask(
            Role.WRITER, lambda rid: Append(rid, session, drafts, after, flush, behalf), timeout
        )

    def flushed(self, session: str) -> Promise[Appended]:
        """A flush that everyone who asks for it in the same batch shares (P3: one checkpoint)."""
        promise = self._flushes.get(session)
        if promise is None:
            promise = self._flushes[session] = Promise()
        return promise

    def batch_done(self) -> None:
        """Send the flushes that were asked for; each covers what was appended before it."""
        flushes, self._flushes = self._flushes, {}
        for session, promise in flushes.items():
            self._flush(session, promise)

    def _flush(self, session: str, promise: Promise[Appended]) -> None:
        asked = self._port.ask(Role.WRITER, lambda rid: Flush(rid, session), CHECKPOINT_TIMEOUT)
        asked.then(lambda: _pass_on(asked, promise))

    async def checkpoint(self, call: CallRun) -> Checkpoint:
        """K2, K3: wait for the acknowledgement that covers the call's events, or end the call."""
        try:
            acknowledged = await call.unless_cancelled(self.flushed(call.session))
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            raise checkpoint_failed(call, error) from None
        return Checkpoint(acknowledged)

    async def recorded_at(self, call: CallRun) -> int:
        """The seq of the call's ``tool/call`` where the reply to its append did not come in time.

        It may have been appended all the same: the disk is slow, not the writer. -1 if it was not.
        """
        asked: Promise[SessionOpened] = self._port.ask(
            Role.WRITER, lambda rid: SessionState(rid, call.session), CHECKPOINT_TIMEOUT
        )
        try:
            unanswered = (await asked).unanswered
        except (InterlockError, PeerLostError, ReplyTimeoutError):
            return -1
        for known in unanswered:
            if (known.message_seq, known.call_id) == (call.identity.message_seq, call.call_id):
                return -1 if known.call_seq is None else known.call_seq
        return -1

    async def note(self, call: CallRun, drafts: list[Draft]) -> Appended:
        """Append events about ``call``; its next checkpoint must cover them."""
        reply = await self.append(
            call.session, drafts, after=call.call_seq, behalf=call.requester_key
        )
        call.covers = max(call.covers, reply.last_seq)
        return reply

    async def decided(self, call: CallRun, event: Draft) -> Checkpoint:
        """R4: make durable what is decided about a call that is recorded already, or end it (K3).

        The acknowledgement covers everything that the log has of the call.
        """
        try:
            acknowledged = await self.append(
                call.session, [event], after=call.covers, flush=True, behalf=call.requester_key
            )
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            raise checkpoint_failed(call, error) from None
        call.covers, call.writer = acknowledged.last_seq, acknowledged.incarnation
        return Checkpoint(acknowledged)

    async def record(self, call: CallRun, outcome: Outcome) -> WireResult:
        """Append the call's ``tool/result``, or hold it where the log is gone."""
        outcome, event = _result_event(call, outcome)
        try:
            return await self._append_result(call, outcome, event)
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            problem = error
        if _refuses_content(problem):  # P7: no result may leave its call without one
            instead = _result_event(call, unrecorded(str(problem)))
            with contextlib.suppress(InterlockError, PeerLostError, ReplyTimeoutError):
                return await self._append_result(call, *instead)
        if call.refused:  # no log has the call, so none will ever want its result
            return WireResult(call.call_id, call.name, -1, outcome)
        _log.warning("the result of %s is held: %s", call.label, problem)
        # F2: kept until the session is open again, where the log will lack just this result.
        key = (call.identity.message_seq, call.call_id)
        self.held.setdefault(call.session, {})[key] = event
        return WireResult(call.call_id, call.name, -1, outcome)

    async def _append_result(self, call: CallRun, outcome: Outcome, event: Draft) -> WireResult:
        reply = await self.append(
            call.session,
            [*call.notices, event],
            after=call.call_seq,
            behalf=call.requester_key,
            timeout=RESULT_TIMEOUT,
        )
        return WireResult(call.call_id, call.name, reply.last_seq, outcome)


def _result_event(call: CallRun, outcome: Outcome) -> tuple[Outcome, Draft]:
    """The ``tool/result`` event, and the outcome as it stands there."""
    fitted = fit(outcome, limit=call.inline_limit or INLINE_LIMIT)
    result = ToolResult.of(call.call_id, call.name, fitted.outcome)
    data = result.event_data(call.turn, call.step, f"tool-result-{uuid.uuid4().hex}")
    event = draft(
        "tool/result",
        data,
        surface_op="append",
        sources=(call.call_seq,) if call.call_seq >= 0 else None,
        spill=fitted.spill,
    )
    return fitted.outcome, event


def _refuses_content(error: Exception) -> bool:
    """The log stands, and does not take this event."""
    return isinstance(error, InterlockError) and error.code == Code.EVENT_INVALID


def call_event(call: CallRun) -> Draft:
    """The ``tool/call`` event: the raw argument string as the model wrote it (P1)."""
    data: dict[str, Any] = {
        "turn": call.turn,
        "step": call.step,
        "callId": call.call_id,
        "name": call.name,
        "arguments": call.arguments.decode("utf-8", "surrogatepass"),
    }
    return draft("tool/call", data)


def checkpoint_failed(call: CallRun, error: Exception) -> Ended:
    """K3: why the body did not run."""
    why = error.message if isinstance(error, InterlockError) else str(error)
    return Ended(
        Code.CHECKPOINT_FAILED,
        "The call was not started: that it was about to start could not be made durable "
        f"({why}). Nothing of it ran; it can be tried again once the log can be written.",
        reason=str(getattr(error, "code", type(error).__name__)),
    )


def appended_anyway(error: Exception, index: int) -> int:
    """The seq of an event that was appended although it could not be made durable; else -1."""
    first = error.details.get("first_seq") if isinstance(error, InterlockError) else None
    return first + index if isinstance(first, int) and first >= 0 else -1


def _pass_on(asked: Promise[Any], promise: Promise[Any]) -> None:
    try:
        promise.resolve(asked.result())
    except Exception as error:
        promise.fail(error)
