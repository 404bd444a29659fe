"""What can go wrong between a tool's author and its body, as exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ToolFailure(Exception):  # noqa: N818 - a report, not a crash
    """Raised by a body to end its call with a clean error instead of a traceback.

    The call's code stays ``TOOL_FAILED``: the other codes are statements that only Interlock can
    make. A code of the tool's own goes into the result's ``meta`` as ``tool_code``.

    :param message: what the model and a person will read.
    :param code: the tool's own stable string, for programs (``"INSUFFICIENT_FUNDS"``).
    :param meta: more for programs: a JSON object, at most :data:`~.fit.META_LIMIT` bytes.
    """

    def __init__(
        self, message: str, code: str | None = None, meta: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.meta = dict(meta or {})


class CallCancelled(BaseException):
    """Raised by :meth:`ToolContext.raise_if_cancelled` in a body that was asked to stop.

    Not an ``Exception``, as with ``asyncio.CancelledError``: a body's ``except Exception`` must not
    take a cancellation for its own failure.
    """


class InvalidArgumentsError(ValueError):
    """Arguments that do not fit the tool; the message is written for the model that sent them."""


class ToolNotPortableError(TypeError):
    """A tool that cannot travel to a worker, refused when it is registered.

    ``tool`` is the tool's name, ``path`` the chain of names that leads to what cannot travel
    (``("helper", "db")``: the global ``db`` used by the function ``helper``).
    """

    def __init__(self, tool: str, path: tuple[str, ...], reason: str) -> None:
        super().__init__(reason)
        self.tool = tool
        self.path = path
