"""A reply that is awaited in another thread than the one it arrives in.

What :class:`concurrent.futures.Future` is for, without its condition: there are tens of thousands a
second, and most are awaited by an event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Reply(Generic[T]):
    """Done once, with a value or an error. Any thread may do anything with it."""

    __slots__ = ("_callbacks", "_done", "_error", "_lock", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Reply[T]], object]] = []

    def done(self) -> bool:
        """Tell whether it has arrived."""
        return self._done

    def set_result(self, value: T) -> bool:
        """Give the value; False where it was done already, which changes nothing."""
        return self._settle(value, None)

    def set_exception(self, error: BaseException) -> bool:
        """Give an error instead; False where it was done already."""
        return self._settle(None, error)

    def result(self, timeout: float | None = None) -> T:
        """Wait up to ``timeout`` seconds; the value, or the error raised, or ``TimeoutError``."""
        if not self._done and not self.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def exception(self) -> BaseException | None:
        """Return the error that it is done with, if any."""
        return self._error

    def wait(self, timeout: float | None = None) -> bool:
        """Wait up to ``timeout`` seconds; tell whether it is done."""
        gate = threading.Lock()
        gate.acquire()
        self.add_done_callback(lambda _: gate.release())
        gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        return self._done

    def add_done_callback(self, callback: Callable[[Reply[T]], object]) -> None:
        """Call ``callback`` with this once it is done, in that thread; at once if it is."""
        with self._lock:
            if not self._done:
                self._callbacks.append(callback)
                return
        callback(self)

    def _settle(self, value: T | None, error: BaseException | None) -> bool:
        with self._lock:
            if self._done:
                return False
            self._value, self._error = value, error
            self._done = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
        return True
