"""The whole call: from ``execute`` to its result, with a body that does nothing.

The latency is that of ``execute`` with one call: its record made durable, the body released, run in
a worker, its result recorded. An agent's cycle is the whole step around it: the barrier before the
step (K1), the answer, the call, the end of the step. Throughput counts whole cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from itertools import count
from pathlib import Path
from time import perf_counter_ns

from interlock.backends.codes import Code

from ..errors import ToolError
from ..runtime.aio import AsyncSession
from ..runtime.sync import Session
from ..runtime.turn import ToolCall
from ..tools.result import ToolResult
from .clients import clients
from .empty import nothing
from .measure import Measurement, measure
from .slices import AsyncOperation, Operation

#: How many agents, each with one call outstanding.
AGENTS = (1, 16, 64, 256)


def bench_calls(root: Path, agents: Sequence[int] = AGENTS, seconds: float = 25.0) -> Measurement:
    """Measure whole calls for each number of agents, and the floor between them.

    :param root: an empty directory on the file system to measure; the logs are left in it.
    :param agents: how many agents call, one row each.
    :param seconds: time for measuring, without starting and ending (a few seconds more).
    :raises RuntimeFailureError: ``ACTOR_LOST``: the runtime could not be started.
    :raises ToolError: a call did not return what the body returns.
    """
    with clients(root, agents, [nothing], _one, _many) as loads:
        return measure(root, "agents", loads, seconds, cycle="step")


def _call(number: int) -> ToolCall:
    return ToolCall(f"call-{number}", nothing.name, {"command": f"ls -la {number}"})


def _check(session_id: str, results: Sequence[ToolResult]) -> None:
    """A benchmark of failing calls would say nothing."""
    [result] = results
    if result.value != "ok":
        raise ToolError(
            Code.TOOL_FAILED,
            f"session {session_id!r}: call {result.call_id!r} of the benchmark ended as "
            f"{result.code} ({result.text!r}) instead of returning 'ok'",
        )


def _one(session: Session, stack: ExitStack) -> Operation:
    numbers = count()
    turn = stack.enter_context(session.turn("Call a tool, again and again."))

    def call() -> int:
        with turn.step() as step:
            step.assistant(calls=[_call(next(numbers))])
            begin = perf_counter_ns()
            results = step.execute()
            took = perf_counter_ns() - begin
        _check(session.id, results)
        return took

    return call


async def _many(session: AsyncSession, stack: AsyncExitStack) -> AsyncOperation:
    numbers = count()
    turn = await stack.enter_async_context(session.turn("Call a tool, again and again."))

    async def call() -> int:
        async with turn.step() as step:
            await step.assistant(calls=[_call(next(numbers))])
            begin = perf_counter_ns()
            results = await step.execute()
            took = perf_counter_ns() - begin
        _check(session.id, results)
        return took

    return call
