"""F3, A4, R6: a dispatcher that dies while a request is open leaves no request and no turn open."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest
from interlock.actors import Answering, Runtime, ToolCall
from interlock.actors.runtime.turn import approvals_of
from interlock.backends.codes import Code
from interlock.backends.event import Event
from spine_support import InThread


@pytest.mark.slow
def test_F3_A4_R6_the_dispatcher_dies_while_somebody_thinks_and_the_turn_goes_on(
    start: Callable[..., Runtime],
) -> None:
    runtime = start(answerer="external")
    session = runtime.create("s")

    def work() -> list[object]:
        results: list[object] = []
        with session.turn("work") as turn:
            for name in ("c1", "c2"):
                with turn.step() as step:
                    step.assistant("", [ToolCall(name, "pay", {"cents": 5})])
                    results += step.execute()
        return results

    running = InThread(work)
    with Answering.connect(runtime.directory, name="ada") as desk:
        first = desk.next(60)
        os.kill(runtime.processes["dispatcher"], signal.SIGKILL)
        second = desk.next(60)
        late = desk.allow(first)
        assert not late.settled, "it was answered for nobody"
        assert desk.allow(second).settled
        lost, paid = running.result()
    assert lost.code == Code.TOOL_NOT_STARTED
    assert paid.value == "paid 5"
    types = [event.type for event in session.events]
    assert types.count("approval/asked") == types.count("approval/decided") == 2
    assert types[-1] == "turn/end"
    outcomes = [e.data["outcome"] for e in session.events if e.type == "approval/decided"]
    assert outcomes == ["cancelled", "allowed-once"]
    session.close()
    assert runtime.open("s")._core.repaired_events == 0


def event(seq: int, kind: str, **data: object) -> Event:
    return Event(kind, seq, 1, json.dumps(data).encode())


ASKED = event(1, "approval/asked", id="r1", callId="c1")
GRANTED = event(2, "approval/decided", id="r1", outcome="allowed-once")
REJECTED = event(2, "approval/decided", id="r1", outcome="rejected")
WIDER = event(3, "approval/asked", id="r2", callId="c1")
NESTED = event(1, "tool/ptc-dispatch-start", rootCallId="c1", subCallId="c1.1")
OTHER = event(1, "approval/asked", id="r9", callId="c9")


@pytest.mark.parametrize(
    ("events", "undecided", "never_released"),
    [
        ([], [], False),
        ([OTHER], [], False),
        ([ASKED], ["r1"], True),
        ([ASKED, GRANTED], [], False),
        ([ASKED, REJECTED], [], True),
        ([ASKED, GRANTED, WIDER], ["r2"], True),
        ([NESTED, ASKED], ["r1"], False),
    ],
)
def test_R6_a_request_that_was_not_granted_proves_that_nothing_ran(
    events: list[Event], undecided: list[str], never_released: bool
) -> None:
    assert approvals_of("c1", events) == (undecided, never_released)
