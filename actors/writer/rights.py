"""Which events each role may append (design, "Who may append what"; X4)."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.backends.codes import Code
from interlock.backends.errors import LogError
from interlock.backends.event import Draft

from ..roles import Role

#: What only the dispatcher records: the life of calls and the audit of approvals.
DISPATCHER_TYPES = frozenset(
    {
        "tool/call",
        "tool/result",
        "tool/ptc-dispatch-start",
        "tool/ptc-dispatch",
        "approval/asked",
        "approval/decided",
        "interlock/approval",
        "interlock/settled",
        "interlock/notice",
    }
)


def check_rights(role: Role, drafts: Iterable[Draft], session: str) -> None:
    """Raise ``EVENT_INVALID`` where ``role`` may not append one of ``drafts``."""
    for draft in drafts:
        reserved = draft.type in DISPATCHER_TYPES or draft.type.startswith("interlock/")
        # P7: only results have bytes of their own beside the log.
        plain = not reserved and draft.spill is None
        allowed = draft.type in DISPATCHER_TYPES if role is Role.DISPATCHER else plain
        if not allowed:
            raise LogError(
                Code.EVENT_INVALID,
                f"session {session!r}: a {role} may not append {draft.type!r} events",
                session=session,
                type=draft.type,
            )
