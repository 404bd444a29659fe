"""A complete session in memory, sync and async, for the agent loop's tests.

It keeps the rules that the loop depends on (turns, steps, who answers what) and refuses what breaks
them, so that a loop that passes here appends what the log's grammar asks for.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from interlock.actors.agent import Answer
from interlock.actors.tools import Outcome, ToolResult, ToolSpec
from interlock.backends.codes import Code


@dataclass(frozen=True)
class Ends:
    start_seq: int
    end_seq: int


@dataclass(frozen=True)
class Row:
    type: str
    seq: int
    data: dict[str, Any]
    surface_op: Any = None
    sources: Sequence[int] | None = None


Body = Callable[[str, dict[str, Any]], Any]


@dataclass
class MemorySession:
    """``body`` is run for each call with the tool's name and arguments."""

    body: Body = lambda name, arguments: f"{name} ok"
    tools: Sequence[ToolSpec] = ()
    rows: list[Row] = field(default_factory=list)
    durable: int = 0
    fail_flush: BaseException | None = None
    #: Told of everything that happens, in order; tests look here.
    trace: list[str] = field(default_factory=list)
    turns: int = 0

    def read(self, from_seq: int) -> Iterable[Row]:
        return self.rows[from_seq:]

    def append(
        self,
        type: str,  # noqa: A002 - as SessionLog has it
        data: dict[str, Any],
        *,
        surface_op: Any = None,
        sources: Any = None,
    ) -> int:
        if isinstance(surface_op, tuple):
            surface_op = Ends(*surface_op)
        data = json.loads(json.dumps(data))  # it is JSON, and nobody else's object
        self.rows.append(Row(type, len(self.rows), data, surface_op, sources))
        self.trace.append(type)
        return len(self.rows) - 1

    def flush(self) -> None:
        if self.fail_flush is not None:
            raise self.fail_flush
        self.durable = len(self.rows)
        self.trace.append("flush")

    @contextmanager
    def turn(self) -> Iterator[MemoryTurn]:
        self.turns += 1
        self.append("turn/start", {"turn": self.turns})
        turn = MemoryTurn(self, self.turns)
        try:
            yield turn
        except BaseException:
            if not turn.ended:
                turn.end({"kind": "aborted", "reason": {"kind": "user"}})
            raise
        assert turn.ended, "the loop left a turn without its reason"

    def types(self) -> list[str]:
        return [row.type for row in self.rows]


@dataclass
class MemoryTurn:
    session: MemorySession
    number: int
    ended: bool = False
    steps: int = 0

    @contextmanager
    def step(self) -> Iterator[MemoryStep]:
        assert not self.ended
        self.steps += 1
        self.session.flush()
        self.session.append("step/start", {"turn": self.number, "step": self.steps})
        step = MemoryStep(self, self.steps)
        try:
            yield step
        finally:
            step.close()
            self.session.append("step/end", {"turn": self.number, "step": self.steps})

    def end(self, reason: dict[str, Any]) -> None:
        assert not self.ended
        self.ended = True
        self.session.append("turn/end", {"turn": self.number, "reason": reason})


@dataclass
class MemoryStep:
    turn: MemoryTurn
    number: int
    calls: list[dict[str, Any]] = field(default_factory=list)
    cancelled: str = ""

    def record(self, answer: Answer) -> int:
        assert not self.calls
        self.calls = list(answer.calls)
        data = answer.event_data(self.turn.number, self.number, f"m{len(self.turn.session.rows)}")
        return self.turn.session.append("assistant/message", data, surface_op="append")

    def attempt(self, stream: list[dict[str, Any]]) -> int:
        data = {"turn": self.turn.number, "step": self.number, "stream": stream}
        return self.turn.session.append("assistant/attempt", data)

    def execute(self) -> list[ToolResult]:
        results = {call["id"]: self._run(call) for call in reversed(self.calls)}
        ordered = [results[call["id"]] for call in self.calls]
        self.calls = []
        return ordered

    def cancel(self, reason: str) -> None:
        self.cancelled = reason

    def close(self) -> None:
        """A step that is left answers what it advertised."""
        for call in self.calls:
            self._result(call, Outcome.failure(Code.TOOL_NOT_STARTED, "not started"))

    def _run(self, call: dict[str, Any]) -> ToolResult:
        if self.cancelled:
            outcome = Outcome.failure(Code.ABORTED_BEFORE_DISPATCH, self.cancelled)
        else:
            value = self.turn.session.body(call["name"], json.loads(call["arguments"]))
            outcome = Outcome.success(value)
        return self._result(call, outcome)

    def _result(self, call: dict[str, Any], outcome: Outcome) -> ToolResult:
        result = ToolResult.of(call["id"], call["name"], outcome)
        session = self.turn.session
        data = result.event_data(self.turn.number, self.number, f"r{len(session.rows)}")
        session.append("tool/result", data, surface_op="append")
        return result


class AsyncMemorySession:
    """The same session, with coroutines."""

    def __init__(self, inner: MemorySession) -> None:
        self.inner = inner
        self.tools = inner.tools

    async def read(self, from_seq: int) -> Iterable[Row]:
        return self.inner.read(from_seq)

    async def append(
        self,
        type: str,  # noqa: A002 - as SessionLog has it
        data: dict[str, Any],
        *,
        surface_op: Any = None,
        sources: Any = None,
    ) -> int:
        return self.inner.append(type, data, surface_op=surface_op, sources=sources)

    async def flush(self) -> None:
        self.inner.flush()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[AsyncMemoryTurn]:
        with self.inner.turn() as turn:
            yield AsyncMemoryTurn(turn)


class AsyncMemoryTurn:
    def __init__(self, inner: MemoryTurn) -> None:
        self.inner = inner
        self.number = inner.number

    @asynccontextmanager
    async def step(self) -> AsyncIterator[AsyncMemoryStep]:
        with self.inner.step() as step:
            yield AsyncMemoryStep(step)

    async def end(self, reason: dict[str, Any]) -> None:
        self.inner.end(reason)


class AsyncMemoryStep:
    def __init__(self, inner: MemoryStep) -> None:
        self.inner = inner
        self.number = inner.number

    async def record(self, answer: Answer) -> int:
        return self.inner.record(answer)

    async def attempt(self, stream: list[dict[str, Any]]) -> int:
        return self.inner.attempt(stream)

    async def execute(self) -> list[ToolResult]:
        return self.inner.execute()

    async def cancel(self, reason: str) -> None:
        self.inner.cancel(reason)
