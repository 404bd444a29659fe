"""Bugs to plant: what a run must notice. Each changes the product for as long as it is planted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import msgspec
from interlock.actors.dispatcher import resolving
from interlock.actors.dispatcher.approvals import Approvals
from interlock.actors.dispatcher.bodies import Bodies
from interlock.actors.dispatcher.call import CallRun
from interlock.actors.dispatcher.core import DispatcherCore
from interlock.actors.dispatcher.log import LogClient
from interlock.actors.dispatcher.step import StepRun
from interlock.actors.fibers import Promise, resolved
from interlock.actors.messages import Appended
from interlock.actors.release import Checkpoint
from interlock.actors.writer.commits import Commits
from interlock.backends.fold import LogFold

Plant = Callable[[], AbstractContextManager[Any]]


def _patched(owner: Any, name: str, made: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    return mock.patch.object(owner, name, made(getattr(owner, name)))


def released_before_acknowledgement() -> AbstractContextManager[Any]:
    """The flush that a release waits for is said to be done when it is asked for."""

    def early(self: Commits, opened: Any, target: int | None = None) -> Promise[int]:
        opened.log.durable_seq = opened.last_seq
        del self, target
        return resolved(opened.last_seq)

    return mock.patch.object(Commits, "flush", early)


def write_retried() -> AbstractContextManager[Any]:
    """A retry does not ask for the declared effect."""
    return mock.patch.object(resolving, "RETRIED", frozenset({"read", "idempotent", "write"}))


def result_lost_on_host_death() -> AbstractContextManager[Any]:
    """F1: the dispatcher does not wait for what runs when the host is gone."""

    def made(original: Any) -> Any:
        def host_lost(self: DispatcherCore) -> None:
            self._bodies.kill_all()
            self._workers.close()
            original(self)

        return host_lost

    return _patched(DispatcherCore, "host_lost", made)


def released_again_after_restart() -> AbstractContextManager[Any]:
    """F3: a new dispatcher takes a call that is recorded for one that is not."""

    def made(original: Any) -> Any:
        def execute(self: DispatcherCore, peer: Any, message: Any) -> None:
            calls = [msgspec.structs.replace(call, started_seq=-1) for call in message.calls]
            original(self, peer, msgspec.structs.replace(message, calls=calls))

        return execute

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        # The log takes a second record of it too, or nothing would come of it.
        with (
            _patched(DispatcherCore, "_execute", made),
            mock.patch("interlock.backends.fold.RULES", _without("tool/call", "tool/result")),
        ):
            yield

    return both()


def _without(*kinds: str) -> dict[str, Any]:
    from interlock.backends.fold import RULES

    return {kind: rule for kind, rule in RULES.items() if kind not in kinds}


def grant_used_for_another() -> AbstractContextManager[Any]:
    """A2: a call that is asked about uses the grant that an earlier one was given."""
    granted: list[str] = []

    def made(original: Any) -> Any:
        async def decide(self: Approvals, call: CallRun, *rest: Any) -> Any:
            if granted:
                return "allowed-once", granted[0], ""
            outcome, by, note = await original(self, call, *rest)
            if outcome == "allowed-once":
                granted.append(by)
            return outcome, by, note

        return decide

    return _patched(Approvals, "_decide", made)


def checkpoint_of_another_life() -> AbstractContextManager[Any]:
    """K6: a checkpoint of a writer that has ended counts under its successor."""

    def made(original: Any) -> Any:
        def check(self: Checkpoint, call: Any, covers: int, incarnation: str) -> None:
            del incarnation
            original(self, call, min(covers, self.durable_seq), self.incarnation)

        return check

    async def anyway(self: LogClient, call: CallRun) -> Checkpoint:
        try:
            acknowledged = await call.unless_cancelled(self.flushed(call.session))
        except Exception:
            last = self.__dict__.setdefault("_last", {}).get(call.session)
            acknowledged = last or Appended(0, call.session, -1, 0, 10**6, "", None, None)
        self.__dict__.setdefault("_last", {})[call.session] = acknowledged
        return Checkpoint(acknowledged)

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        with (
            _patched(Checkpoint, "check", made),
            mock.patch.object(LogClient, "checkpoint", anyway),
        ):
            yield

    return both()


def checkpoint_before_grant() -> AbstractContextManager[Any]:
    """K2: the checkpoint is taken with the record of the call, before it was asked about."""

    async def early(self: LogClient, call: CallRun) -> Checkpoint:
        call.covers = call.call_seq
        reply = Appended(0, call.session, -1, call.call_seq, call.call_seq, call.writer, None, None)
        del self
        return Checkpoint(reply)

    def flushing(original: Any) -> Any:
        def append(self: LogClient, *rest: Any, **more: Any) -> Any:
            return original(self, *rest, **(more | {"flush": more.get("flush", False)}))

        return append

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        with (
            mock.patch.object(LogClient, "checkpoint", early),
            _patched(LogClient, "append", flushing),
        ):
            yield

    return both()


def results_out_of_model_order() -> AbstractContextManager[Any]:
    """P3: results are told in the order in which they came."""

    def made(original: Any) -> Any:
        async def run(self: StepRun) -> Any:
            results = await original(self)
            return sorted(results, key=lambda result: result.seq)[::-1]

        return run

    return _patched(StepRun, "_run", made)


def late_answer_accepted() -> AbstractContextManager[Any]:
    """A8: an answer counts that comes after the request was settled."""

    def made(original: Any) -> Any:
        async def decide(self: Approvals, call: CallRun, *rest: Any) -> Any:
            outcome, by, note = await original(self, call, *rest)
            if outcome == "unavailable":
                return "allowed-once", "late", note
            return outcome, by, note

        return decide

    return _patched(Approvals, "_decide", made)


def nested_without_its_parent() -> AbstractContextManager[Any]:
    """K5: a body that has ended is still found, and may call."""

    @contextlib.contextmanager
    def both() -> Iterator[None]:
        with (
            mock.patch.object(DispatcherCore, "_parent_ended", return_value=None),
            mock.patch.object(Bodies, "_forget", return_value=None),
        ):
            yield

    return both()


def event_numbered_twice() -> AbstractContextManager[Any]:
    """L1: after a refused append of several the next event gets a number that is taken."""

    def made(original: Any) -> Any:
        def apply(self: LogFold, event: Any) -> None:
            original(self, event)
            if event.type == "tool/result":
                self.next_seq = event.seq

        return apply

    return _patched(LogFold, "_apply", made)


def result_not_kept_for_its_session() -> AbstractContextManager[Any]:
    """F2: what a writer had taken in and lost is not recorded again."""
    return mock.patch.object(LogClient, "appended", return_value=None)


def request_left_open() -> AbstractContextManager[Any]:
    """A4: a request whose record was acknowledged too late is not decided."""
    return mock.patch.object(Approvals, "_decide_unseen", return_value=None)


#: The bugs that every change to the commit path is measured by, by name.
PLANTED: dict[str, Plant] = {
    "release before acknowledgement": released_before_acknowledgement,
    "retry of a write": write_retried,
    "result lost on host death": result_lost_on_host_death,
    "double release after a dispatcher restart": released_again_after_restart,
    "grant used twice": grant_used_for_another,
    "checkpoint of the wrong incarnation": checkpoint_of_another_life,
    "checkpoint taken before the grant": checkpoint_before_grant,
    "history out of model order": results_out_of_model_order,
    "late answer accepted": late_answer_accepted,
    "nested call without parent": nested_without_its_parent,
    "event numbered twice": event_numbered_twice,
    "result lost with its writer": result_not_kept_for_its_session,
    "request left open": request_left_open,
}
