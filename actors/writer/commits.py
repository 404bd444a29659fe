"""When what was appended is written: windows, flushes, commits, and who is told.

With a journal all sessions that are due share one commit, and one commit is under way at a time:
what becomes due meanwhile is collected for the next. Without one each session is committed by
itself, one commit at a time for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from interlock.backends.backend import LogBackend
from interlock.backends.errors import InterlockError, LogError
from interlock.backends.event import Event
from interlock.backends.log import Batch

from ..fibers import Promise, resolved
from ..messages import WriteFailed
from ..port import Port
from .refusals import as_log_error
from .session import OpenSession, Waiter

#: The write-behind window in seconds (L3): a constant, not a setting.
WINDOW = 0.2


class Sessions(Protocol):
    """What commits need of the writer that owns the sessions."""

    def is_open(self, opened: OpenSession) -> bool:
        """Whether the session has not been let go."""

    def stream(self, opened: OpenSession, events: list[Event]) -> None:
        """Tell subscribers what was appended and what has become durable."""

    def let_go(self, opened: OpenSession, error: InterlockError) -> Promise[None]:
        """Close a session that cannot be written any more; holds once its lock is free."""

    def release(self, opened: OpenSession) -> None:
        """Close the log of a session that was let go while it was being written."""


#: A session, what of it is being written, and who waits for that.
_Part = tuple[OpenSession, Batch | None, list[Waiter]]


class Commits:
    """Decides what is written when. All methods run in the writer's thread."""

    def __init__(self, port: Port, backend: LogBackend, sessions: Sessions) -> None:
        self._port, self._backend, self._sessions = port, backend, sessions
        self._due: dict[str, OpenSession] = {}
        self._under_way = False
        self._tending = False
        self.writes = 0
        self.failed_writes = 0

    def open_window(self, opened: OpenSession) -> None:
        """L3: counted from the first event that enters an idle queue; later ones do not extend
        it.
        """
        if opened.window is None and not opened.due:
            opened.window = self._port.at(
                self._port.now() + WINDOW, lambda: self._window_over(opened)
            )

    def flush(self, opened: OpenSession, target: int | None = None) -> Promise[int]:
        """L4: durable up to ``target`` (default: all that was admitted), sharing writes."""
        target = opened.last_seq if target is None else target
        if opened.log.durable_seq >= target and opened.log.published:
            return resolved(opened.log.durable_seq)
        waiter = Waiter(target, Promise())
        opened.waiters.append(waiter)
        self._mark_due(opened)
        return waiter.promise

    def forget(self, opened: OpenSession) -> None:
        """Write no more of a session that is let go."""
        self._due.pop(opened.log.header.id, None)
        if opened.window is not None:
            opened.window.cancel()

    def start(self) -> None:
        """Start what is due: all that was drained shares a commit where there is a journal."""
        if not self._backend.group_commit:
            due, self._due = self._due, {}
            for opened in due.values():
                if not opened.writing:
                    self._commit([opened])
            return
        while self._due and not self._under_way:
            due, self._due = self._due, {}
            self._commit(list(due.values()))

    def _window_over(self, opened: OpenSession) -> None:
        opened.window = None
        self._mark_due(opened)

    def _mark_due(self, opened: OpenSession) -> None:
        opened.due = True
        self._due[opened.log.header.id] = opened

    def _commit(self, due: Sequence[OpenSession]) -> None:
        """Commit what is due, if there is anything to write after all.

        Small batches are written in this thread, on a disk that is quick: what a commit computes
        would take this thread's turns anyway, and what arrives meanwhile makes up the next one.
        """
        parts = [part for opened in due if (part := self._seal(opened)) is not None]
        if not parts:
            return
        brief = self._backend.group_commit and all(map(_is_brief, parts))
        self._under_way = True
        self.writes += len(parts)
        items = [(opened.log, batch) for opened, batch, _ in parts]
        promise: Promise[Sequence[int | InterlockError]]
        promise = self._port.work(lambda: self._backend.commit(items), brief=brief)
        promise.then(lambda: self._committed(parts, promise))

    def _seal(self, opened: OpenSession) -> _Part | None:
        opened.due = False
        if opened.window is not None:
            opened.window.cancel()
            opened.window = None
        batch = opened.log.seal()
        waiters, opened.waiters = opened.waiters, []
        if batch is None and opened.log.published:
            self._serve(opened, waiters)
            return None
        opened.writing = True
        return opened, batch, waiters

    def _committed(
        self, parts: list[_Part], promise: Promise[Sequence[int | InterlockError]]
    ) -> None:
        self._under_way = False
        outcomes: Sequence[int | InterlockError | OSError]
        try:
            outcomes = promise.result()
        except (InterlockError, OSError) as error:
            outcomes = [error] * len(parts)
        for (opened, batch, waiters), outcome in zip(parts, outcomes, strict=True):
            opened.writing = False
            left = not self._sessions.is_open(opened)
            if isinstance(outcome, int):
                opened.log.acknowledge(outcome)
                self._sessions.stream(opened, [])
                self._serve(opened, waiters + opened.waiters)
            else:
                refused = as_log_error(opened.log.header.id, outcome)
                self._failed(opened, batch, waiters, refused)
            if left:
                self._sessions.release(opened)
            elif opened.due:  # L3: a window may have run out meanwhile
                self._mark_due(opened)
        self._tend()

    def _serve(self, opened: OpenSession, waiters: list[Waiter]) -> None:
        """Resolve those whose target is durable; the rest wait for the next write."""
        durable = opened.log.durable_seq
        # Before the first is resolved: whoever waited may flush again at once.
        opened.waiters = [w for w in waiters if w.target > durable]
        for waiter in waiters:
            if waiter.target <= durable:
                waiter.promise.resolve(durable)

    def _failed(
        self, opened: OpenSession, batch: Batch | None, waiters: list[Waiter], error: LogError
    ) -> None:
        """L5: the events stay in order; every waiter of this write is told; no retry by itself."""
        self.failed_writes += 1
        if batch is not None:
            opened.log.unseal(batch)
        closed = bool(error.details.get("closed"))
        word = WriteFailed(
            opened.log.header.id, error.code, error.message, opened.log.durable_seq, closed
        )
        for identity in {opened.opener_identity, *opened.streams.subscribers}:
            self._port.send(identity, word)
        if closed:  # L6, L15: nothing more is written to it
            waiters = waiters + opened.waiters
            opened.waiters = []
            released = self._sessions.let_go(opened, error)
            # Whoever hears of it may open the session again at once.
            released.then(lambda: _fail(waiters, error))
        else:
            _fail(waiters, error)

    def _tend(self) -> None:
        """Free journal space beside the commits, a share at a time."""
        if self._tending or not self._backend.needs_tending:
            return
        self._tending = True
        promise: Promise[bool] = self._port.work(self._backend.tend)
        promise.then(lambda: self._tended(promise))

    def _tended(self, promise: Promise[bool]) -> None:
        self._tending = False
        try:
            more = promise.result()
        except OSError:
            # The journal keeps what the session's file does not take; the next commit goes on.
            self.failed_writes += 1
            return
        if more:
            self._tend()


def _is_brief(part: _Part) -> bool:
    opened, batch, _ = part
    return batch is not None and opened.log.published and batch.is_small


def _fail(waiters: list[Waiter], error: InterlockError) -> None:
    for waiter in waiters:
        waiter.promise.fail(error)
