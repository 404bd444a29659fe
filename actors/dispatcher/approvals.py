"""Approval of one call: asked, answered, recorded, spent (A1–A10)."""

from __future__ import annotations

import contextlib
import uuid

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError
from interlock.backends.event import Draft, draft

from ..fibers import Promise, first
from ..messages import ApprovalSettled, AskApproval, Widening, WithdrawApproval
from ..port import PeerLostError, Port, ReplyTimeoutError
from ..roles import Role
from .call import CallRun, Ended
from .log import LogClient

#: What the broker may take beyond a request's own deadline (s).
SLACK = 5.0

_CODES = {
    "rejected": Code.APPROVAL_REJECTED,
    "cancelled": Code.APPROVAL_CANCELLED,
    "unavailable": Code.APPROVAL_UNAVAILABLE,
}


class Approvals:
    """Gets one decision for one call. Runs in the dispatcher's thread."""

    def __init__(self, port: Port, log: LogClient, default_policy: str, timeout: float) -> None:
        self._port, self._log = port, log
        self._default, self._timeout = default_policy, timeout
        self.asked = 0

    async def approve(self, call: CallRun, reason: str, widening: Widening | None = None) -> None:
        """Return once the call is allowed and that is recorded; end the call otherwise (A3, A5).

        :param widening: what the request is for, where it is for a wider sandbox mode (S4).
        """
        request = uuid.uuid4().hex
        self.asked += 1
        call.asks += 1
        policy = await self._record(call, self._asked(call, request, reason, widening))
        if (policy or self._default) == "never":  # A1: nobody is asked
            outcome, by, note = "rejected", "policy", "the approval policy is 'never'"
        else:
            outcome, by, note = await self._decide(call, request, reason, widening)
        await self._record(call, self._decided(call, request, outcome, by, note))
        call.stop_if_cancelled()
        if outcome != "allowed-once":
            raise Ended(_CODES[outcome], _words(outcome, by, note), decided_by=by)
        call.approved_by = by

    async def close(self, call: CallRun) -> None:
        """F3, A4: decide what an earlier life of the dispatcher asked and left open."""
        why = "cancelled", "runtime", "the dispatcher that asked has ended"
        for request in call.undecided:
            # Where it cannot be recorded, neither can the call's result: it is held (F2).
            with contextlib.suppress(InterlockError, PeerLostError, ReplyTimeoutError):
                await self._log.note(call, self._decided(call, request, *why))

    async def _record(self, call: CallRun, drafts: list[Draft]) -> str | None:
        """A4, A5: what cannot be recorded is not allowed. Returns the policy in force after it."""
        try:
            return (await self._log.note(call, drafts)).approval_policy
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            raise Ended(
                Code.APPROVAL_UNAVAILABLE,
                f"The call was not allowed: its approval could not be recorded ({error}).",
            ) from None

    async def _decide(
        self, call: CallRun, request: str, reason: str, widening: Widening | None
    ) -> tuple[str, str, str]:
        digest = call.digest()
        promise: Promise[ApprovalSettled] = self._port.ask(
            Role.BROKER,
            lambda rid: AskApproval(
                rid,
                request,
                call.session,
                call.identity.message_seq,
                call.call_id,
                call.name,
                reason,
                digest,
                self._timeout,
                call.sub_path,
                widening,
            ),
            self._timeout + SLACK,
        )
        await first(call.cancelled, promise)
        if call.cancelled.done:
            self._port.tell(Role.BROKER, WithdrawApproval(request))
            return "cancelled", "caller", "the call was cancelled"
        try:
            settled = promise.result()
        except (InterlockError, PeerLostError, ReplyTimeoutError) as error:
            return "unavailable", "runtime", str(error)
        if settled.request != request or settled.digest != digest:  # A9
            return "unavailable", "runtime", "the answer was for another call"
        return settled.outcome, settled.by, settled.note

    def _asked(
        self, call: CallRun, request: str, reason: str, widening: Widening | None
    ) -> list[Draft]:
        data = {"id": request, "toolName": call.name, "callId": call.call_id, "reason": reason}
        shown: dict[str, object] = {
            "id": request,
            "callId": call.shown_id,
            "digest": call.digest(),
            "state": "asked",
        }
        if widening is not None:
            shown["sandbox"] = {
                "from": widening.mode_from,
                "to": widening.mode_to,
                "justification": widening.justification,
            }
        return [draft("approval/asked", data), draft("interlock/approval", shown, ignorable=True)]

    def _decided(
        self, call: CallRun, request: str, outcome: str, by: str, note: str
    ) -> list[Draft]:
        audit = {
            "id": request,
            "callId": call.shown_id,
            "digest": call.digest(),
            "state": "decided",
            "outcome": outcome,
            "by": by,
        }
        if note:
            audit["note"] = note
        return [
            draft("approval/decided", {"id": request, "outcome": outcome}),
            draft("interlock/approval", audit, ignorable=True),
        ]


def _words(outcome: str, by: str, note: str) -> str:
    why = f": {note}" if note else ""
    match outcome:
        case "rejected":
            return f"The call was not allowed: {by} rejected it{why}. Nothing of it ran."
        case "cancelled":
            return f"The request for approval was cancelled{why}. Nothing of the call ran."
        case _:
            return f"The call was not allowed: nobody could decide{why}. Nothing of it ran."
