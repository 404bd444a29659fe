"""The stable codes of everything that can go wrong, as they appear in logs, JSON and exceptions."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """One stable string per outcome a program may want to tell apart.

    The member's name and value are the same, so that a code read from a log can be compared with
    ``==`` to either.
    """

    # What became of a tool call.
    TOOL_NOT_STARTED = "TOOL_NOT_STARTED"
    TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
    ABORTED_BEFORE_DISPATCH = "ABORTED_BEFORE_DISPATCH"
    ABORTED = "ABORTED"
    TOOL_TIMEOUT = "TOOL_TIMEOUT"
    TOOL_FAILED = "TOOL_FAILED"
    UNKNOWN_TOOL = "UNKNOWN_TOOL"
    INVALID_ARGS = "INVALID_ARGS"
    TOOL_DENIED = "TOOL_DENIED"
    APPROVAL_REJECTED = "APPROVAL_REJECTED"
    APPROVAL_CANCELLED = "APPROVAL_CANCELLED"
    APPROVAL_UNAVAILABLE = "APPROVAL_UNAVAILABLE"
    CHECKPOINT_FAILED = "CHECKPOINT_FAILED"
    SANDBOX_UNAVAILABLE = "SANDBOX_UNAVAILABLE"
    SANDBOX_DENIED = "SANDBOX_DENIED"

    # What became of a session or its log.
    SESSION_LOCKED = "SESSION_LOCKED"
    SESSION_EXISTS = "SESSION_EXISTS"
    SESSION_NOT_FOUND = "SESSION_NOT_FOUND"
    SESSION_ID_INVALID = "SESSION_ID_INVALID"
    SESSION_CLOSED = "SESSION_CLOSED"
    SESSION_CORRUPT = "SESSION_CORRUPT"
    SESSION_FORMAT_UNSUPPORTED = "SESSION_FORMAT_UNSUPPORTED"
    SESSION_SOURCE_CHANGED = "SESSION_SOURCE_CHANGED"
    LOG_WRITE_FAILED = "LOG_WRITE_FAILED"
    EVENT_INVALID = "EVENT_INVALID"

    # What became of the runtime.
    ACTOR_LOST = "ACTOR_LOST"
    RUNTIME_CLOSED = "RUNTIME_CLOSED"
