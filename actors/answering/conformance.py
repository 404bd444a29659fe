"""Clauses A as tests for an answerer of somebody else.

Subclass :class:`AnswererConformance` in a test module, say how your answerer is attached, and let
pytest collect it. Every test starts a real runtime with one tool, ``decide``, that asks for
approval of each call. A session's id says what your answerer is to do with the request, so that one
in another process knows it too:

=============  =====================================================
id begins with your answerer
=============  =====================================================
``allow``      allows the call
``reject``     rejects it
``silent``     does nothing (a person who has not looked yet)
``broken``     fails in the way it would fail (raises, crashes inside)
=============  =====================================================
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from interlock.backends.codes import Code

from ..runtime.sync import Runtime, Session
from ..runtime.turn import ToolCall
from ..tools import ToolResult, tool
from .desk import Answering
from .route import EXTERNAL

#: Seconds within which something that must happen has to.
PATIENCE = 60.0
#: Seconds that a request stays open where nobody is to answer it.
SHORT = 1.0


@tool(effect="write", approval="ask")
def decide(number: int) -> int:
    """Something that is to be decided."""
    return number


class AnswererConformance:
    """See the module's docstring. Override :meth:`answerer`, :meth:`joined`, or both.

    >>> class TestMine(AnswererConformance):
    ...     def answerer(self):
    ...         return lambda request: my_ui.decide(request)
    """

    def answerer(self) -> Any:
        """What ``Runtime(answerer=…)`` is given: your function, or ``"external"`` (default)."""
        return EXTERNAL

    def joined(self, runtime: Runtime) -> AbstractContextManager[Any]:
        """Your answerer, attached to ``runtime`` while inside; at the end it is gone.

        Entered before anything is asked; it may return before it has joined. A function that is
        given to the runtime needs none.
        """
        return contextlib.nullcontext()

    # A2: one request, one answer.

    def test_A2_what_it_allows_runs_once_and_the_log_says_who_allowed_it(
        self, tmp_path: Path
    ) -> None:
        with self._runtime(tmp_path) as runtime, self._joined(runtime):
            session = runtime.create("allow-1")
            assert _call(session, 7).value == 7, "an allowed call did not run"
            assert _decided(session)["outcome"] == "allowed-once"
            assert _decided(session)["by"], "nobody is named"
            assert runtime.stats()["dispatcher"]["releases"] == 1

    def test_A2_what_it_rejects_does_not_run(self, tmp_path: Path) -> None:
        with self._runtime(tmp_path) as runtime, self._joined(runtime):
            session = runtime.create("reject-1")
            assert _call(session, 7).code == Code.APPROVAL_REJECTED
            assert _decided(session)["outcome"] == "rejected"
            assert runtime.stats()["dispatcher"]["releases"] == 0

    def test_A2_of_many_at_once_each_gets_its_own_answer(self, tmp_path: Path) -> None:
        with self._runtime(tmp_path) as runtime, self._joined(runtime):
            names = [f"{'allow' if n % 3 else 'reject'}-{n}" for n in range(12)]
            running = [_Running(runtime.create(name), n) for n, name in enumerate(names)]
            for number, one in enumerate(running):
                result = one.result()
                if number % 3:
                    assert result.value == number, f"{names[number]} got another's answer"
                else:
                    assert result.code == Code.APPROVAL_REJECTED, names[number]
            broker = runtime.stats()["broker"]
            assert broker["late_answers"] == 0, "it answered a request twice"
            assert broker["refused_answers"] == 0, "it answered what it was not asked"

    # A3: no answer is no permission.

    def test_A3_while_it_says_nothing_nothing_is_allowed(self, tmp_path: Path) -> None:
        self._not_allowed(tmp_path, "silent-1")

    def test_A3_where_it_breaks_nothing_is_allowed_and_it_goes_on(self, tmp_path: Path) -> None:
        self._not_allowed(tmp_path, "broken-1")
        with self._runtime(tmp_path) as runtime, self._joined(runtime):
            assert _call(runtime.create("allow-1"), 2).value == 2

    # A8, A10: others answer too.

    def test_A8_what_somebody_else_settled_is_no_concern_of_it(self, tmp_path: Path) -> None:
        with self._runtime(tmp_path) as runtime, self._joined(runtime):
            running = _Running(runtime.create("silent-1"), 1)
            with Answering.connect(runtime.directory, name="conformance") as other:
                assert other.reject(_next(other)).settled
            assert running.result().code == Code.APPROVAL_REJECTED
            assert _call(runtime.create("allow-1"), 2).value == 2, "it did not go on"

    def test_A10_when_it_goes_away_its_requests_stay_open_for_others(self, tmp_path: Path) -> None:
        with self._runtime(tmp_path) as runtime:
            with self._joined(runtime):
                running = _Running(runtime.create("silent-1"), 1)
                _wait(lambda: runtime.stats()["broker"]["open_approvals"] == 1)
            assert running.runs, "its end was taken for an answer"
            with Answering.connect(runtime.directory, name="conformance") as other:
                assert other.allow(_next(other)).settled
            assert running.result().value == 1

    # F4: another life of the broker.

    def test_F4_after_the_broker_was_replaced_it_is_asked_again(self, tmp_path: Path) -> None:
        with self._runtime(tmp_path) as runtime, self._joined(runtime):
            assert _call(runtime.create("allow-1"), 1).value == 1
            joined = runtime.stats()["broker"]["answerers"]
            os.kill(runtime.processes["broker"], signal.SIGKILL)
            _wait(lambda: runtime.stats()["broker"].get("answerers", 0) >= joined)
            assert _call(runtime.create("allow-2"), 2).value == 2

    # Parts of the tests.

    def _runtime(self, where: Path, timeout: float = PATIENCE) -> Runtime:
        return Runtime(
            where / "logs",
            tools=[decide],
            answerer=self.answerer(),
            approval_timeout=timeout,
            workers=1,
        )

    @contextlib.contextmanager
    def _joined(self, runtime: Runtime) -> Any:
        with self.joined(runtime):
            _wait(lambda: runtime.stats()["broker"]["answerers"] > 0)
            yield

    def _not_allowed(self, where: Path, name: str) -> None:
        with self._runtime(where, SHORT) as runtime, self._joined(runtime):
            session = runtime.create(name)
            assert _call(session, 1).code == Code.APPROVAL_UNAVAILABLE
            assert _decided(session)["outcome"] == "unavailable"


class _Running:
    """A call that waits for its approval, in a thread."""

    def __init__(self, session: Session, number: int) -> None:
        self._result: ToolResult | None = None
        self._thread = threading.Thread(target=self._run, args=(session, number), daemon=True)
        self._thread.start()

    def _run(self, session: Session, number: int) -> None:
        self._result = _call(session, number)

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> ToolResult:
        self._thread.join(PATIENCE)
        assert self._result is not None, "the call has not ended"
        return self._result


def _call(session: Session, number: int) -> ToolResult:
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "decide", {"number": number})])
        [result] = step.execute()
    return result


def _decided(session: Session) -> dict[str, Any]:
    """Who decided, and what, as the log says it."""
    decisions = [
        event.data
        for event in session.events
        if event.type == "interlock/approval" and event.data["state"] == "decided"
    ]
    assert len(decisions) == 1, "the request was not settled once"
    return decisions[0]


def _next(desk: Answering) -> Any:
    request = desk.next(PATIENCE)
    assert request is not None, "the request is not open any more"
    return request


def _wait(condition: Callable[[], bool]) -> None:
    """Wait until another process has done something; its time is not ours to know."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
