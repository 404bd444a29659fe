"""What the writer answers where something could not be done, in words."""

from __future__ import annotations

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, LogError, SessionError


def closing_down(session: str) -> SessionError:
    return SessionError(
        Code.SESSION_CLOSED,
        f"session {session!r} was not opened: the runtime is closing",
        session=session,
    )


def not_opened(session: str, error: InterlockError | OSError | ValueError) -> InterlockError:
    """The refusal that stands for what went wrong on the way."""
    if isinstance(error, InterlockError):
        return error
    if isinstance(error, ValueError):  # a header that no reader would take
        return LogError(
            Code.EVENT_INVALID, f"session {session!r} was not opened: {error}", session=session
        )
    return SessionError(
        Code.SESSION_CLOSED,
        f"session {session!r} could not be opened: {error.strerror or error} "
        f"({error.filename or 'no file named'})",
        session=session,
    )


def as_log_error(session: str, error: InterlockError | OSError) -> LogError:
    if isinstance(error, LogError):
        return error
    if isinstance(error, InterlockError):
        changed = LogError(Code.LOG_WRITE_FAILED, error.message, **error.details)
        changed.code = error.code
        changed.details.setdefault("closed", True)
        return changed
    return LogError(
        Code.LOG_WRITE_FAILED,
        f"session {session!r}: {error.strerror or error}; its events are kept and the next flush "
        "tries again",
        session=session,
        closed=False,
    )
