"""Coroutines without an event loop."""

from __future__ import annotations

import pytest
from interlock.actors.fibers import Promise, detach, first, gather, spawn
from interlock.actors.requests import Timers


def test_a_promise_is_kept_once():
    promise: Promise[int] = Promise()
    promise.resolve(1)
    promise.resolve(2)
    promise.fail(ValueError("late"))
    assert promise.result() == 1


def test_a_failed_promise_raises_where_it_is_awaited():
    promise: Promise[int] = Promise()

    async def wait() -> str:
        try:
            await promise
        except ValueError as error:
            return str(error)
        return "nothing"

    fiber = spawn(wait())
    promise.fail(ValueError("why"))
    assert fiber.result.result() == "why"


def test_a_fiber_runs_until_it_first_waits_and_on_when_that_is_there():
    promise: Promise[int] = Promise()
    trace = []

    async def work() -> int:
        trace.append("started")
        value = await promise
        trace.append("resumed")
        return value + 1

    fiber = spawn(work())
    assert trace == ["started"]
    promise.resolve(4)
    assert trace == ["started", "resumed"]
    assert fiber.result.result() == 5


def test_callbacks_run_in_order_and_at_once_where_the_promise_is_done():
    promise: Promise[int] = Promise()
    trace = []
    promise.then(lambda: trace.append(1))
    promise.then(lambda: trace.append(2))
    promise.resolve(0)
    promise.then(lambda: trace.append(3))
    assert trace == [1, 2, 3]


def test_gather_keeps_the_order_of_its_fibers_and_raises_the_first_error():
    one: Promise[int] = Promise()
    two: Promise[int] = Promise()

    async def wait(promise: Promise[int]) -> int:
        return await promise

    both = spawn(gather([spawn(wait(one)), spawn(wait(two))]))
    two.resolve(2)
    assert not both.result.done
    one.resolve(1)
    assert both.result.result() == [1, 2]
    bad: Promise[int] = Promise()
    failing = spawn(gather([spawn(wait(bad)), spawn(wait(one))]))
    bad.fail(ValueError("first"))
    with pytest.raises(ValueError, match="first"):
        failing.result.result()


def test_first_says_which_came_first_and_an_error_counts():
    one: Promise[int] = Promise()
    two: Promise[int] = Promise()
    winner = first(one, two)
    two.fail(ValueError("x"))
    one.resolve(1)
    assert winner.result() == 1


def test_what_a_detached_coroutine_raises_leaves_through_whoever_resumed_it():
    """An owner fails closed instead of going on without it."""
    promise: Promise[int] = Promise()

    async def broken() -> None:
        await promise
        raise RuntimeError("a bug")

    detach(broken())
    with pytest.raises(RuntimeError, match="a bug"):
        promise.resolve(1)


def test_timers_run_when_due_in_order_and_not_when_cancelled():
    timers = Timers()
    trace = []
    timers.at(2.0, lambda: trace.append("b"))
    timers.at(1.0, lambda: trace.append("a"))
    cancelled = timers.at(1.5, lambda: trace.append("never"))
    cancelled.cancel()
    assert timers.next() == 1.0
    timers.run(1.0)
    assert (trace, timers.next()) == (["a"], 2.0)
    timers.run(5.0)
    assert (trace, timers.next()) == (["a", "b"], None)


def test_cancelled_timers_do_not_pile_up():
    timers = Timers()
    for _ in range(10_000):
        timers.at(1e9, lambda: None).cancel()
    assert len(timers._heap) <= 1024
