"""What the agent loop needs of a session: the runtime's have it, and anything else may."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from interlock.actors.tools.spec import ToolSpec

from .answer import Answer
from .history import HistoryEvent


class StepLog(Protocol):
    """An open step of a session, as the loop needs it; the async one has coroutines."""

    @property
    def number(self) -> int:
        """The step's number within its turn, from 1."""
        ...

    def record(self, answer: Answer) -> Any:
        """Append the ``assistant/message``; its calls are what :meth:`execute` runs."""
        ...

    def attempt(self, stream: list[dict[str, Any]]) -> Any:
        """Append an ``assistant/attempt``: chunks that yielded no message."""
        ...

    def execute(self) -> Any:
        """Run the recorded calls; return their :class:`ToolResult` list in model order."""
        ...

    def cancel(self, reason: str) -> Any:
        """Cancel the step's calls (P4). May be called from any thread."""
        ...


class TurnLog(Protocol):
    """An open turn. Leaving it by an exception ends it; the loop's own ends come by :meth:`end`."""

    @property
    def number(self) -> int:
        """The turn's number within its session, from 1."""
        ...

    def step(self) -> Any:
        """Open a step behind its barrier (K1); a context manager that gives a :class:`StepLog`."""
        ...

    def end(self, reason: dict[str, Any]) -> Any:
        """End the turn with the reason of its ``turn/end``."""
        ...


class SessionLog(Protocol):
    """A session as the agent loop needs it."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """The tools that the session's calls may name."""
        ...

    def read(self, from_seq: int) -> Iterable[HistoryEvent]:
        """Return the events from ``from_seq`` on."""
        ...

    def append(
        self,
        type: str,  # noqa: A002 - the event's own word
        data: dict[str, Any],
        *,
        surface_op: Any = None,
        sources: Sequence[int] | None = None,
    ) -> Any:
        """Append an event; ``surface_op`` is ``"append"`` or a pair of the ends to replace."""
        ...

    def flush(self) -> Any:
        """Make everything appended durable, or raise (K3)."""
        ...

    def turn(self) -> AbstractContextManager[TurnLog]:
        """Open a turn without a message."""
        ...


class AsyncSessionLog(Protocol):
    """As :class:`SessionLog`, for an event loop: every method but ``turn`` is a coroutine."""

    @property
    def tools(self) -> Sequence[ToolSpec]: ...
    async def read(self, from_seq: int) -> Iterable[HistoryEvent]: ...
    async def append(
        self,
        type: str,  # noqa: A002 - the event's own word
        data: dict[str, Any],
        *,
        surface_op: Any = None,
        sources: Sequence[int] | None = None,
    ) -> Any: ...
    async def flush(self) -> Any: ...
    def turn(self) -> AbstractAsyncContextManager[TurnLog]: ...
