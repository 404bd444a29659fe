"""Coroutines without an event loop: the life of a call, written top to bottom.

An owner's decisions that wait for others (a checkpoint, an answer, a result) are ``async``
functions that run inside the actor's own thread, one step at a time, whenever what they wait for
arrives. There is no scheduler and no I/O here: a :class:`Promise` is resolved by the message that
answers it, and that runs whatever waited for it. The same code runs under the simulation's seeded
clock.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A value that arrives later, once. Awaited by at most one fiber; callbacks in any number."""

    __slots__ = ("_callbacks", "_error", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def resolve(self, value: T) -> None:
        """Give the value; a second one, or one after :meth:`fail`, changes nothing."""
        if not self.done:
            self.done, self._value = True, value
            self._run()

    def fail(self, error: BaseException) -> None:
        """Give an error instead, raised where the promise is awaited."""
        if not self.done:
            self.done, self._error = True, error
            self._run()

    def then(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once the promise is done, at once if it is."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """The value, or the error raised. Only once done."""
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _run(self) -> None:
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self.done:
            yield self
        return self.result()


def resolved(value: T) -> Promise[T]:
    """Return a promise that holds already."""
    promise: Promise[T] = Promise()
    promise.resolve(value)
    return promise


def attempt(job: Callable[[], T]) -> Promise[T]:
    """Run ``job`` now; return a promise that holds what it returned or raised."""
    promise: Promise[T] = Promise()
    try:
        promise.resolve(job())
    except Exception as error:
        promise.fail(error)
    return promise


class Fiber(Generic[T]):
    """A running coroutine. ``result`` is a promise of what it returns."""

    __slots__ = ("_coroutine", "result")

    def __init__(self, coroutine: Coroutine[Any, None, T]) -> None:
        self._coroutine = coroutine
        self.result: Promise[T] = Promise()

    def step(self) -> None:
        """Run until the next unfinished promise."""
        try:
            waiting: Promise[Any] = self._coroutine.send(None)
        except StopIteration as stop:
            self.result.resolve(stop.value)
        except BaseException as error:
            self.result.fail(error)
        else:
            waiting.then(self.step)


def spawn(coroutine: Coroutine[Any, None, T]) -> Fiber[T]:
    """Start ``coroutine`` now and run it until it first waits."""
    fiber = Fiber(coroutine)
    fiber.step()
    return fiber


def detach(coroutine: Coroutine[Any, None, Any]) -> None:
    """Start ``coroutine`` with nobody waiting for it. What it raises is a bug and leaves the core
    through whatever resumed it, so that its owner fails closed instead of going on without it.
    """
    result = spawn(coroutine).result
    result.then(result.result)


async def gather(fibers: list[Fiber[T]]) -> list[T]:
    """Wait for all; the results in the order of ``fibers``. The first error is raised at the
    end.
    """
    return [await fiber.result for fiber in fibers]


def first(*promises: Promise[Any]) -> Promise[int]:
    """A promise of the index of whichever of ``promises`` is done first; errors count as done."""
    winner: Promise[int] = Promise()
    for index, promise in enumerate(promises):
        promise.then(lambda index=index: winner.resolve(index))  # type: ignore[misc]
    return winner
