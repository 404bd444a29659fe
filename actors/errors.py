"""Every exception a user of the runtime may meet, one class per family, all under
InterlockError.
"""

from __future__ import annotations

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, LogError, SessionError

__all__ = [
    "ApprovalError",
    "Code",
    "InterlockError",
    "LogError",
    "RuntimeFailureError",
    "SandboxError",
    "SessionError",
    "ToolError",
    "error_for",
]


class ToolError(InterlockError):
    """A call did not run, failed, or its outcome is unknown: every ``TOOL_*`` code and its kin."""

    codes = frozenset(
        {
            Code.TOOL_NOT_STARTED,
            Code.TOOL_OUTCOME_UNKNOWN,
            Code.ABORTED_BEFORE_DISPATCH,
            Code.ABORTED,
            Code.TOOL_TIMEOUT,
            Code.TOOL_FAILED,
            Code.UNKNOWN_TOOL,
            Code.INVALID_ARGS,
            Code.TOOL_DENIED,
            Code.CHECKPOINT_FAILED,
        }
    )


class ApprovalError(InterlockError):
    """A call was not allowed: ``APPROVAL_REJECTED``, ``_CANCELLED`` or ``_UNAVAILABLE``."""

    codes = frozenset(c for c in Code if c.startswith("APPROVAL_"))


class SandboxError(InterlockError):
    """Nothing here can confine the command, or the sandbox refused what it did."""

    codes = frozenset(c for c in Code if c.startswith("SANDBOX_"))


class RuntimeFailureError(InterlockError):
    """The runtime is closed (``RUNTIME_CLOSED``) or one of its actors was lost (``ACTOR_LOST``)."""

    codes = frozenset({Code.ACTOR_LOST, Code.RUNTIME_CLOSED})


_FAMILIES: tuple[type[InterlockError], ...] = (
    SessionError,
    LogError,
    ToolError,
    ApprovalError,
    SandboxError,
    RuntimeFailureError,
)


def error_for(code: str, message: str, **details: object) -> InterlockError:
    """Return the exception of the family that ``code`` belongs to (used for refusals off the
    wire).
    """
    known = Code(code)
    family = next(f for f in _FAMILIES if known in f.codes)
    return family(known, message, **details)
