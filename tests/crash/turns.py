"""Threads that take turns: one runs at a time, and a seed says which one at each file operation.

So two commits, or a commit and a retirement, interleave in every order that real threads could
have, and the same seed gives the same order again. The product's locks are replaced by ones that
give the turn away instead of waiting for it.
"""

from __future__ import annotations

import random
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace, TracebackType

from .machine import Killed


class Turns:
    """Runs bodies together. :meth:`switch` is called wherever another one may go on instead."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._ready: list[_Body] = []
        self._running: _Body | None = None
        self._done = threading.Semaphore(0)
        self._error: BaseException | None = None

    def run(self, *bodies: Callable[[], None]) -> None:
        """Run the bodies to their ends. A killed process ends its body; what else one raises is
        raised here."""
        self._ready = [_Body(self, body) for body in bodies]
        everyone = list(self._ready)
        self._running = self._draw.choice(self._ready)
        self._running.go.release()
        self._done.acquire()
        for body in everyone:
            body.thread.join()
        self._running = None
        if self._error is not None:
            raise self._error

    def switch(self) -> None:
        """Let any body that is ready go on, this one or another."""
        me = self._running
        if me is not None and me.thread is threading.current_thread():
            self._hand_over(self._draw.choice(self._ready))

    def wait(self, until: Callable[[], bool]) -> None:
        """Give the turn away until something another body does has come true."""
        me = self._running
        assert me is not None or until(), "a lock is held and nobody is there to free it"
        while not until():
            assert me is not None
            self._ready.remove(me)
            if not self._ready:
                self._ready.append(me)
                raise RuntimeError("every body waits for another one's lock")
            other = self._draw.choice(self._ready)
            # It is looked at again whenever it is drawn: whoever frees the lock names nobody.
            self._ready.append(me)
            self._hand_over(other)

    def _hand_over(self, other: _Body) -> None:
        me = self._running
        if other is me:
            return
        assert me is not None
        self._running = other
        other.go.release()
        me.go.acquire()

    def _end(self, body: _Body, error: BaseException | None) -> None:
        self._ready.remove(body)
        if error is not None and self._error is None:
            self._error = error
        if self._ready:
            self._running = self._draw.choice(self._ready)
            self._running.go.release()
        else:
            self._done.release()


class _Body:
    def __init__(self, turns: Turns, body: Callable[[], None]) -> None:
        self.go = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, args=(turns, body), daemon=True)
        self.thread.start()

    def _run(self, turns: Turns, body: Callable[[], None]) -> None:
        self.go.acquire()
        error: BaseException | None = None
        try:
            body()
        except Killed:
            pass
        except BaseException as raised:
            error = raised
        turns._end(self, error)


class _Lock:
    """A mutex, reentrant or not, that gives the turn away while another body has it."""

    def __init__(self, turns: Turns, *, reentrant: bool) -> None:
        self._turns = turns
        self._reentrant = reentrant
        self._owner: threading.Thread | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.current_thread()
        if self._owner is me:
            assert self._reentrant, "a lock is taken twice"
        else:
            self._turns.wait(lambda: self._owner is None)
            self._owner = me
        self._depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None


@contextmanager
def taking_turns(turns: Turns) -> Iterator[None]:
    """Have the product make its locks of this kind as long as this lasts."""
    shim = SimpleNamespace(
        Lock=lambda: _Lock(turns, reentrant=False),
        RLock=lambda: _Lock(turns, reentrant=True),
        local=threading.local,
    )
    with instead("threading", threading, shim):
        yield


@contextmanager
def steady_names(seed: str) -> Iterator[None]:
    """Have the product draw the same names in the same order as long as this lasts."""
    draw = random.Random(seed)
    with instead("secrets", secrets, SimpleNamespace(token_hex=lambda n: draw.randbytes(n).hex())):
        yield


class _InOneThread:
    """A pool of threads that does it at once: threads cost more than what they would wait for."""

    def __init__(self, threads: int) -> None:
        self.map = map

    def __enter__(self) -> _InOneThread:
        return self

    def __exit__(self, *_: object) -> None:
        return


@contextmanager
def in_one_thread() -> Iterator[None]:
    """Have the product read headers one after the other as long as this lasts."""
    with instead("ThreadPoolExecutor", ThreadPoolExecutor, _InOneThread):
        yield


@contextmanager
def instead(name: str, thing: object, shim: object) -> Iterator[None]:
    """Put something in the place of what the product's modules have imported."""
    users = [
        vars(user)
        for where, user in list(sys.modules.items())
        if where.startswith("interlock.backends") and vars(user).get(name) is thing
    ]
    for user in users:
        user[name] = shim
    try:
        yield
    finally:
        for user in users:
            user[name] = thing
