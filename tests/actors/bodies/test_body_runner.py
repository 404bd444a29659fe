"""The body runner: many bodies at once, asked to stop but never killed, each told of once."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Annotated, Any

import pydantic
import pytest
from interlock.actors.bodies import BodyDone, BodyJob, BodyRunner
from interlock.actors.tools import CallCancelled, Tool, ToolContext, current_call, tool
from interlock.backends.codes import Code

WAIT = 30  # seconds; only a failing test waits so long


class Ended:
    """Collects what the runner tells."""

    def __init__(self) -> None:
        self.queue: queue.Queue[BodyDone] = queue.Queue()

    def __call__(self, done: BodyDone) -> None:
        self.queue.put(done)

    def next(self) -> BodyDone:
        return self.queue.get(timeout=WAIT)


@pytest.fixture
def runner() -> Iterator[BodyRunner]:
    runner = BodyRunner()
    yield runner
    runner.close()


@pytest.fixture
def ended() -> Ended:
    return Ended()


def job(number: int, declared: Tool[..., Any], arguments: bytes = b"{}", **more: Any) -> BodyJob:
    return BodyJob(number=number, tool=declared, arguments=arguments, **more)


def both(fn: Callable[..., Any]) -> list[Tool[..., Any]]:
    """The same body as a sync and as an async tool."""

    async def run(ctx: ToolContext) -> Any:
        return fn(ctx)

    def call(ctx: ToolContext) -> Any:
        return fn(ctx)

    return [tool(call), tool(run)]


def test_a_body_gets_its_arguments_and_its_context(runner: BodyRunner, ended: Ended) -> None:
    @tool
    def look(ctx: ToolContext, n: int, m: int = 2) -> dict[str, Any]:
        own = current_call.get()
        return {
            "n": n,
            "m": m,
            "ids": [ctx.session_id, ctx.call_id, ctx.tool, ctx.attempt, ctx.idempotency_key],
            "left": 0 < ctx.remaining() <= 1000,
            "current": own is ctx,
        }

    runner.start(
        job(
            1,
            look,
            b'{"n":1}',
            session_id="s",
            call_id="c",
            attempt=2,
            idempotency_key="k",
            timeout=1000.0,
        ),
        ended,
    )
    done = ended.next()
    assert done.outcome.value_object() == {
        "n": 1,
        "m": 2,
        "ids": ["s", "c", "look", 2, "k"],
        "left": True,
        "current": True,
    }
    assert (done.number, done.cancelled, done.entered) == (1, False, True)
    assert done.started <= done.ended
    assert current_call.get() is None


def test_sync_and_async_bodies_run_at_the_same_time(runner: BodyRunner, ended: Ended) -> None:
    # Nobody passes the barrier unless all five sync bodies and the async one are inside at once.
    barrier = threading.Barrier(6)

    @tool
    def sync(n: int) -> int:
        barrier.wait(WAIT)
        return n

    @tool
    async def coroutine(n: int) -> int:
        await asyncio.get_running_loop().run_in_executor(None, barrier.wait, WAIT)
        return n

    for n in range(5):
        runner.start(job(n, sync, b'{"n":%d}' % n), ended)
    runner.start(job(5, coroutine, b'{"n":5}'), ended)
    got = [ended.next() for _ in range(6)]
    assert sorted(d.outcome.value_object() for d in got) == [0, 1, 2, 3, 4, 5]
    assert all(d.number == d.outcome.value_object() for d in got)


def test_thousands_of_bodies_are_each_told_of_once(runner: BodyRunner, ended: Ended) -> None:
    sync, coroutine = both(lambda ctx: ctx.call_id)
    for n in range(2000):
        runner.start(job(n, coroutine if n % 2 else sync, call_id=str(n)), ended)
    got = [ended.next() for _ in range(2000)]
    assert {d.number for d in got} == set(range(2000))
    assert all(d.outcome.value_object() == str(d.number) for d in got)
    assert runner.close() == []
    assert ended.queue.empty()


def test_P1_arguments_that_do_not_coerce_end_before_the_function(
    runner: BodyRunner, ended: Ended
) -> None:
    ran: list[int] = []

    @tool
    def count(n: int) -> None:
        ran.append(n)

    runner.start(job(1, count, b'{"n":"many","x":1}'), ended)
    done = ended.next()
    assert done.outcome.code is Code.INVALID_ARGS
    assert "n: Input should be a valid integer" in done.outcome.message
    assert "x: Extra inputs are not permitted" in done.outcome.message
    assert not done.entered
    assert ran == []


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        asyncio.CancelledError(),
        CallCancelled("mine"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_P4_what_a_body_raises_by_itself_is_its_own_failure(
    runner: BodyRunner, ended: Ended, error: BaseException
) -> None:
    def body(ctx: ToolContext) -> None:
        raise error

    for number, declared in enumerate(both(body)):
        runner.start(job(number, declared), ended)
        done = ended.next()
        assert done.outcome.code is Code.TOOL_FAILED, done
        assert done.outcome.message.startswith(type(error).__name__)
        assert not done.cancelled
    # Neither the thread pool nor the loop was brought down.
    for number, declared in enumerate(both(lambda ctx: "alive")):
        runner.start(job(number, declared), ended)
        assert ended.next().outcome.value_object() == "alive"


def test_the_traceback_begins_in_the_tool(runner: BodyRunner, ended: Ended) -> None:
    @tool
    def fail() -> None:
        raise ValueError("x")

    runner.start(job(1, fail), ended)
    trace = ended.next().outcome.meta_object()["traceback"]
    assert "in fail" in trace
    assert "bodies/runner.py" not in trace
    assert trace.count("File") == 1


def test_P4_a_sync_body_is_asked_to_stop_and_its_answer_counts(
    runner: BodyRunner, ended: Ended
) -> None:
    inside = threading.Semaphore(0)

    @tool
    def stops(ctx: ToolContext) -> None:
        inside.release()
        ctx.wait_cancelled(WAIT)
        ctx.raise_if_cancelled()

    @tool
    def finishes(ctx: ToolContext) -> str:
        inside.release()
        ctx.wait_cancelled(WAIT)
        return "done all the same"

    @tool
    def fails(ctx: ToolContext) -> str:
        inside.release()
        ctx.wait_cancelled(WAIT)
        raise ValueError("specific")

    for number, declared in enumerate([stops, finishes, fails]):
        runner.start(job(number, declared), ended)
        assert inside.acquire(timeout=WAIT)
        assert runner.cancel(number, "the user asked")
    got = {d.number: d for d in [ended.next() for _ in range(3)]}
    assert all(d.cancelled and d.entered for d in got.values())
    assert got[0].outcome.code is Code.ABORTED
    assert got[0].outcome.message == "the body stopped when asked to: the user asked"
    assert got[1].outcome.value_object() == "done all the same"
    assert (got[2].outcome.code, got[2].outcome.message) == (
        Code.TOOL_FAILED,
        "ValueError: specific",
    )


def test_P4_an_async_body_gets_cancelled_error_and_may_clean_up(
    runner: BodyRunner, ended: Ended
) -> None:
    inside = threading.Event()
    cleaned: list[bool] = []

    @tool
    async def slow(ctx: ToolContext) -> None:
        try:
            inside.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append(ctx.cancelled)

    runner.start(job(1, slow), ended)
    assert inside.wait(WAIT)
    runner.cancel(1)
    done = ended.next()
    assert (done.outcome.code, done.cancelled) == (Code.ABORTED, True)
    assert cleaned == [True]


def test_P5_a_body_that_does_not_listen_is_reported_as_running(
    runner: BodyRunner, ended: Ended
) -> None:
    inside = threading.Semaphore(0)
    swallowed = threading.Event()
    leave = threading.Event()

    @tool
    def deaf() -> str:
        inside.release()
        leave.wait(WAIT)
        return "late"

    @tool
    async def stubborn() -> str:
        inside.release()
        while not leave.is_set():
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                swallowed.set()
        return "late"

    runner.start(job(1, deaf), ended)
    runner.start(job(2, stubborn), ended)
    assert inside.acquire(timeout=WAIT)
    assert inside.acquire(timeout=WAIT)
    assert [(r.number, r.cancelled_since) for r in runner.running()] == [(1, None), (2, None)]
    runner.cancel(1)
    runner.cancel(2)
    assert swallowed.wait(WAIT)
    swallowed.clear()
    runner.cancel(2)  # asking again tells it again
    assert swallowed.wait(WAIT)
    stuck = runner.running()
    assert [r.number for r in stuck] == [1, 2]
    assert all(r.cancelled_since is not None and r.cancelled_since >= r.since for r in stuck)
    leave.set()
    got = [ended.next(), ended.next()]
    assert all(d.outcome.value_object() == "late" and d.cancelled for d in got)
    assert runner.running() == []


def test_a_body_asked_before_it_begins_does_not_begin(ended: Ended) -> None:
    loop = asyncio.new_event_loop()
    runner = BodyRunner(loop)
    ran: list[int] = []

    @tool
    async def body() -> None:
        ran.append(1)

    runner.start(job(1, body), ended)  # the loop does not run yet
    runner.cancel(1, "too late")
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.close()
    done = ended.next()
    assert (done.outcome.code, done.entered, ran) == (Code.ABORTED, False, [])


def test_a_body_asked_while_its_arguments_are_read_does_not_begin(
    runner: BodyRunner, ended: Ended
) -> None:
    reading, go_on = threading.Event(), threading.Event()
    ran: list[int] = []

    def wait(value: int) -> int:
        reading.set()
        go_on.wait(WAIT)
        return value

    @tool
    def body(n: Annotated[int, pydantic.AfterValidator(wait)]) -> None:
        ran.append(n)

    runner.start(job(1, body, b'{"n":1}'), ended)
    assert reading.wait(WAIT)
    runner.cancel(1)
    go_on.set()
    done = ended.next()
    assert (done.outcome.code, done.entered, ran) == (Code.ABORTED, False, [])


def test_a_body_whose_task_the_host_cancels_before_it_begins_is_told_of(ended: Ended) -> None:
    loop = asyncio.new_event_loop()
    runner = BodyRunner(loop)

    @tool
    async def body() -> None: ...

    tasks: list[asyncio.Task[Any]] = []

    def cancel_all() -> None:
        tasks.extend(asyncio.all_tasks(loop))
        for task in tasks:
            task.cancel()
        loop.stop()

    runner.start(job(1, body), ended)
    loop.call_soon(cancel_all)  # runs after the task is made and before its first step
    loop.run_forever()
    assert len(tasks) == 1
    loop.run_until_complete(asyncio.wait(tasks))  # as asyncio.run does at its end
    loop.close()
    done = ended.next()
    assert "ended before the body began" in done.outcome.message
    assert not done.entered


def test_cancelling_what_does_not_run_says_so(runner: BodyRunner, ended: Ended) -> None:
    assert not runner.cancel(7)
    runner.start(job(7, tool(lambda: 1, name="one")), ended)
    ended.next()
    assert not runner.cancel(7)


def test_P9_a_number_is_never_running_twice(runner: BodyRunner, ended: Ended) -> None:
    leave = threading.Event()
    wait = tool(lambda: leave.wait(WAIT), name="wait")
    runner.start(job(1, wait), ended)
    with pytest.raises(ValueError, match="body 1 is already running"):
        runner.start(job(1, wait), ended)
    leave.set()
    assert ended.next().outcome.ok
    runner.start(job(1, wait), ended)
    assert ended.next().outcome.ok


def test_one_bodys_context_variables_are_not_the_next_ones(
    runner: BodyRunner, ended: Ended
) -> None:
    variable: ContextVar[str] = ContextVar("variable", default="clean")

    def body(ctx: ToolContext) -> str:
        before = variable.get()
        variable.set("dirty")
        return before

    variable.set("of whoever starts it")
    for declared in both(body):
        for _ in range(3):
            runner.start(job(1, declared), ended)
            assert ended.next().outcome.value_object() == "clean"


def test_I1_the_call_id_is_there_for_log_records(
    runner: BodyRunner, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    class CallId(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            context = current_call.get()
            record.call_id = context.call_id if context else None
            return True

    caplog.handler.addFilter(CallId())
    for number, declared in enumerate(both(lambda ctx: logging.getLogger("bank").warning("x"))):
        runner.start(job(number, declared, call_id=f"c{number}"), ended)
        ended.next()
    found = [r.call_id for r in caplog.records if r.name == "bank"]  # type: ignore[attr-defined]
    assert found == ["c0", "c1"]


def test_a_coroutine_that_nobody_awaits_is_an_error(runner: BodyRunner, ended: Ended) -> None:
    async def inner() -> int:
        return 1

    runner.start(job(1, tool(lambda: inner(), name="lazy")), ended)
    assert "use `async def`" in ended.next().outcome.message


def test_a_failing_receiver_does_not_stop_the_runner(
    runner: BodyRunner, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    one = tool(lambda: 1, name="one")
    reached = threading.Event()

    def failing(done: BodyDone) -> None:
        reached.set()
        raise RuntimeError("receiver")

    runner.start(job(1, one, call_id="c7"), failing)
    assert reached.wait(WAIT)
    runner.start(job(2, one), ended)
    assert ended.next().outcome.ok
    assert runner.close() == []
    assert "call c7 was not taken" in caplog.text


def test_host_bodies_run_on_the_hosts_own_loop() -> None:
    async def main() -> tuple[bool, Any]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[BodyDone] = loop.create_future()

        @tool(place="host")
        async def where() -> bool:
            return asyncio.get_running_loop() is loop

        runner = BodyRunner(loop)
        runner.start(job(1, where), future.set_result)
        done = await asyncio.wait_for(future, WAIT)
        return done.outcome.value_object(), await asyncio.to_thread(runner.close)

    assert asyncio.run(main()) == (True, [])


def test_a_closed_host_loop_is_an_error_of_the_call(ended: Ended) -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    runner = BodyRunner(loop)

    @tool
    async def body() -> None: ...

    runner.start(job(1, body), ended)
    done = ended.next()
    assert done.outcome.code is Code.TOOL_FAILED
    assert "could not be started" in done.outcome.message
    assert not done.entered
    assert runner.running() == []


def test_a_host_that_ends_its_loop_ends_its_bodies_too(ended: Ended) -> None:
    @tool
    async def forever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        runner = BodyRunner(asyncio.get_running_loop())
        runner.start(job(1, forever), ended)
        await asyncio.sleep(0)
        runner.start(job(2, forever), ended)
        await asyncio.sleep(0)

    asyncio.run(main())  # cancels what is left
    got = {d.number: d for d in [ended.next(), ended.next()]}
    assert all(d.outcome.code is Code.TOOL_FAILED and not d.cancelled for d in got.values())


def test_a_task_left_behind_cannot_bring_down_the_loop(
    runner: BodyRunner, ended: Ended, caplog: pytest.LogCaptureFixture
) -> None:
    keep: list[asyncio.Task[None]] = []

    async def leave_the_process() -> None:
        raise SystemExit(9)

    @tool
    async def leaves_a_task() -> str:
        keep.append(asyncio.ensure_future(leave_the_process()))
        return "ok"

    @tool
    async def after() -> str:
        await asyncio.sleep(0)
        return "alive"

    runner.start(job(1, leaves_a_task), ended)
    assert ended.next().outcome.ok
    runner.start(job(2, after), ended)
    assert ended.next().outcome.value_object() == "alive"
    assert isinstance(keep[0].exception(), SystemExit)


def test_close_asks_everybody_waits_and_names_who_stayed(ended: Ended) -> None:
    runner = BodyRunner()
    leave = threading.Event()
    inside = threading.Semaphore(0)

    @tool
    def polite(ctx: ToolContext) -> None:
        inside.release()
        ctx.wait_cancelled(WAIT)
        ctx.raise_if_cancelled()

    @tool
    async def polite_too() -> None:
        inside.release()
        await asyncio.Event().wait()

    @tool
    def deaf() -> None:
        inside.release()
        leave.wait(WAIT)

    for number, declared in enumerate([polite, polite_too]):
        runner.start(job(number, declared), ended)
        assert inside.acquire(timeout=WAIT)
    assert runner.close(WAIT) == []
    assert {ended.queue.get_nowait().outcome.code for _ in range(2)} == {Code.ABORTED}
    with pytest.raises(RuntimeError, match="closed"):
        runner.start(job(9, polite), ended)

    runner = BodyRunner()
    runner.start(job(3, deaf), ended)
    assert inside.acquire(timeout=WAIT)
    assert [r.number for r in runner.close(0.01)] == [3]
    leave.set()
    assert ended.next().number == 3


def test_K5_what_a_body_leaves_behind_can_call_no_more(runner: BodyRunner, ended: Ended) -> None:
    kept: list[ToolContext] = []
    calls: list[str] = []

    @tool
    def keep(ctx: ToolContext) -> None:
        kept.append(ctx)

    def nested(name: str, arguments: bytes) -> Any:
        calls.append(name)

    runner.start(job(1, keep, call_id="c1", nested=nested), ended)
    ended.next()
    with pytest.raises(RuntimeError, match="call c1 has ended"):
        kept[0].call("other")
    assert calls == []
