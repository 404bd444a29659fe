"""What an answerer is shown of a call (A6)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..messages import ApprovalAsked


@dataclass(frozen=True)
class ApprovalRequest:
    """What an answerer is shown (A6). The arguments are in the session's log, by ``call_id``.

    ``request`` names it; ``nested`` is the path below the call ``call_id`` where a body made it
    (``.1.2``, empty otherwise). Where ``mode_to`` is given the request is for that strictly wider
    sandbox mode instead of ``mode_from``, for this one call, and ``justification`` says why (S4).
    """

    request: str
    session_id: str
    message_seq: int
    call_id: str
    tool: str
    reason: str
    #: What a grant is bound to: the call's identity, tool and raw arguments (A9).
    digest: str
    #: Monotonic time (s) of this process at which it is no longer open.
    deadline: float = field(repr=False)
    nested: str = ""
    mode_from: str | None = None
    mode_to: str | None = None
    justification: str | None = None

    @property
    def remaining(self) -> float:
        """Seconds that are left to decide."""
        return max(0.0, self.deadline - time.monotonic())

    @classmethod
    def of(cls, asked: ApprovalAsked) -> ApprovalRequest:
        """What a message that has just arrived shows."""
        wide = asked.widening
        return cls(
            asked.request,
            asked.session,
            asked.message_seq,
            asked.call_id,
            asked.tool,
            asked.reason,
            asked.digest,
            time.monotonic() + asked.remaining,
            asked.nested,
            wide.mode_from if wide is not None else None,
            wide.mode_to if wide is not None else None,
            wide.justification if wide is not None else None,
        )
