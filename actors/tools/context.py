"""What a body is told about its call, and what it may ask for while it runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from typing import Any

from . import jsontext
from .failure import CallCancelled
from .result import ToolResult

#: One progress report must fit a message without crowding out results; bytes of JSON.
PROGRESS_LIMIT = 64 * 1024

#: Starts a nested call: takes the tool's name and its arguments as JSON, gives the result to come.
NestedCaller = Callable[[str, bytes], "Future[ToolResult]"]
#: Takes one progress value as JSON.
ProgressSink = Callable[[bytes], None]


class ToolContext:
    """The call that a body runs for. A tool gets one by having a parameter annotated with this
    class.

    It can be built by hand, so that a tool is tested as an ordinary function::

        transfer(ToolContext(call_id="c1"), account="x", cents=500)

    :param session_id: the session that made the call.
    :param call_id: the id that the model gave the call, the same everywhere (I1).
    :param tool: the tool's name.
    :param attempt: 1 for the first run of the call, one more for each retry (R4).
    :param idempotency_key: what to hand to outside systems so that a retry acts once (I2).
    :param deadline: when the call's time is up, on this process's ``time.monotonic()``; ``None``:
    never.
    :param cwd: the session's working directory; empty where it has none. The body's own process
        runs elsewhere: resolve relative paths against this.
    :param progress: where :meth:`progress` goes; ``None`` drops it.
    :param nested: how :meth:`call` starts a call; ``None`` refuses nested calls.

    Every attribute and method may be used from any thread of the body's process.
    """

    def __init__(
        self,
        session_id: str = "",
        call_id: str = "",
        tool: str = "",
        attempt: int = 1,
        idempotency_key: str = "",
        deadline: float | None = None,
        progress: ProgressSink | None = None,
        nested: NestedCaller | None = None,
        cwd: str = "",
    ) -> None:
        self.session_id = session_id
        self.call_id = call_id
        self.tool = tool
        self.attempt = attempt
        self.idempotency_key = idempotency_key
        self.deadline = deadline
        self.cwd = cwd
        self._progress = progress
        self._nested = nested
        self._cancelled = threading.Event()
        self._reason = ""
        self._ended = False

    def remaining(self) -> float:
        """Return the seconds left until the deadline, never below zero; infinity without one."""
        if self.deadline is None:
            return float("inf")
        return max(0.0, self.deadline - time.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the body was asked to stop: a cancellation, or its timeout (P4, P5)."""
        return self._cancelled.is_set()

    def wait_cancelled(self, timeout: float | None = None) -> bool:
        """Wait until the body is asked to stop, at most ``timeout`` seconds; return if it was."""
        return self._cancelled.wait(timeout)

    def raise_if_cancelled(self) -> None:
        """Raise :class:`CallCancelled` if the body was asked to stop."""
        if self._cancelled.is_set():
            raise CallCancelled(self._reason)

    def cancel(self, reason: str = "") -> None:
        """Ask the body to stop; for whoever runs it, and for tests. The first reason stays."""
        if not self._cancelled.is_set():
            self._reason = reason
            self._cancelled.set()

    def end(self) -> None:
        """The body has ended: what it left behind can neither report nor call any more."""
        self._ended = True

    def progress(self, value: Any) -> None:
        """Tell whoever watches how far the body is. Not durable, and no part of the result.

        :param value: JSON, at most :data:`PROGRESS_LIMIT` bytes.
        :raises TypeError: the value is not JSON.
        :raises ValueError: it is too large.
        """
        data = jsontext.encode(jsontext.normalise(value))
        if len(data) > PROGRESS_LIMIT:
            raise ValueError(
                f"progress of call {self.call_id} takes {len(data)} bytes, at most "
                f"{PROGRESS_LIMIT} fit; report a summary and return the rest as the result"
            )
        if self._progress is not None and not self._ended:
            self._progress(data)

    def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call another tool from a sync body and wait for its result, recorded under this call
        (K5).

        :raises RuntimeError: used on an event loop (use :meth:`acall`), or outside a running call.
        :raises CallCancelled: this body is asked to stop before the nested call has started.
        :raises TimeoutError: this body's deadline passes first.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("ctx.call would block the event loop; use `await ctx.acall(...)`")
        future = self._start(name, arguments)
        remaining = self.remaining()
        return future.result(None if remaining == float("inf") else remaining)

    async def acall(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call another tool from an async body; as :meth:`call`, without blocking the loop."""
        return await asyncio.wrap_future(self._start(name, arguments))

    def _start(self, name: str, arguments: Mapping[str, Any] | None) -> Future[ToolResult]:
        if self._nested is None:
            raise RuntimeError(
                f"tool {self.tool or '?'} called {name} outside a running call: nested calls need "
                "the context that a runtime gives to the body"
            )
        if self._ended:
            # K5: only a running parent has nested calls.
            raise RuntimeError(f"call {self.call_id} has ended and can call {name} no more")
        self.raise_if_cancelled()
        return self._nested(name, jsontext.encode(jsontext.normalise(dict(arguments or {}))))


#: The context of the body that runs in this thread or task; for log filters, ``None`` elsewhere.
current_call: ContextVar[ToolContext | None] = ContextVar("interlock_current_call", default=None)
