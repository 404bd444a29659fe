"""The exceptions of the log: one class per family, each with a stable code."""

from __future__ import annotations

from typing import ClassVar

from .codes import Code


class InterlockError(Exception):
    """The root of every exception that Interlock raises on purpose.

    ``code`` is one of :class:`Code`; ``details`` holds JSON values that a program can use instead
    of parsing the message (a session id, an offset, the holder of a lock).
    """

    codes: ClassVar[frozenset[Code]] = frozenset(Code)

    def __init__(self, code: Code, message: str, **details: object) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class SessionError(InterlockError):
    """A session cannot be created, opened or used: every ``SESSION_*`` code."""

    codes = frozenset(c for c in Code if c.startswith("SESSION_"))


class LogError(InterlockError):
    """An event was refused (``EVENT_INVALID``) or was not made durable (``LOG_WRITE_FAILED``)."""

    codes = frozenset({Code.EVENT_INVALID, Code.LOG_WRITE_FAILED})
