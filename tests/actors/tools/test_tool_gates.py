"""P2: gates, guards and post hooks fail closed and change nothing."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from interlock.actors.tools import Decision, GateCall, Outcome, ToolResult, ToolSpec
from interlock.actors.tools.gates import GateRunner, Verdict, fold

CALL = GateCall(
    session_id="s",
    message_seq=4,
    call_id="c1",
    tool=ToolSpec(name="pay", description="", schema=b"{}"),
    raw_arguments='{"cents":5,"to":["x"]}',
)
RESULT = ToolResult.of("c1", "pay", Outcome.success(1))


@pytest.fixture
def runner() -> Iterator[GateRunner]:
    runner = GateRunner()
    yield runner
    runner.close()


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """What a hanging gate waits for; set at the end so that its thread goes."""
    event = threading.Event()
    yield event
    event.set()


def test_P2_the_strictest_answer_wins_in_any_order() -> None:
    order = [Decision.allow(), Decision.ask("a"), Decision.cancel("c"), Decision.deny("d")]
    for size in range(1, 5):
        for chosen in itertools.combinations(order, size):
            for answers in itertools.permutations(chosen):
                assert fold([*answers, None]) == chosen[-1]
    assert fold([]) == fold([None]) == Decision.allow()


def test_P2_reasons_of_the_strictest_are_joined_and_bounded() -> None:
    assert fold([Decision.deny("a"), Decision.ask("q"), Decision.deny("b")]).reason == "a; b"
    assert len(fold([Decision.deny("x" * 10_000)]).reason) < 2100


def test_P2_a_gate_answers(runner: GateRunner) -> None:
    assert runner.gate(lambda call: Decision.deny(f"no {call.tool.name}"), CALL) == Decision.deny(
        "no pay"
    )
    assert runner.gate(lambda call: None, CALL) is None
    both = runner.gates([lambda call: Decision.allow(), lambda call: Decision.ask("sure?")], CALL)
    assert both == Decision.ask("sure?")


def raise_it(error: BaseException) -> Any:
    raise error


async def async_gate(call: GateCall) -> Decision:
    return Decision.allow()


@pytest.mark.parametrize(
    ("gate", "words"),
    [
        (lambda call: raise_it(ValueError("broken")), "failed: ValueError: broken"),
        (lambda call: raise_it(SystemExit(0)), "failed: SystemExit"),
        (lambda call: True, "answered with bool, not a Decision"),
        (lambda call: "allow", "answered with str"),
        (async_gate, "is async"),
    ],
)
def test_P2_what_is_not_an_answer_denies(runner: GateRunner, gate: Any, words: str) -> None:
    for decision in (
        runner.gate(gate, CALL),
        runner.gates([lambda call: Decision.allow(), gate], CALL),
        runner.guards([gate], CALL),
    ):
        assert decision is not None
        assert decision.verdict is Verdict.DENY
        assert words in decision.reason


def test_P2_a_gate_that_hangs_denies(stuck: threading.Event) -> None:
    runner = GateRunner(timeout=0.05)
    decision = runner.gate(lambda call: stuck.wait() and None, CALL)
    assert decision is not None
    assert decision.verdict is Verdict.DENY
    assert "no answer within 0.05 s" in decision.reason


def test_P2_gates_behind_hanging_ones_are_denied_and_never_run_late(
    stuck: threading.Event,
) -> None:
    runner = GateRunner(timeout=0.05, limit=1)
    runner.gate(lambda call: stuck.wait() and None, CALL)
    ran: list[int] = []
    waiting = runner.gate(lambda call: ran.append(1), CALL)
    assert waiting is not None
    assert waiting.verdict is Verdict.DENY
    stuck.set()
    # The pool has one thread: when this one has answered, the late one's turn has passed.
    assert GateRunner.gate(_patient(runner), lambda call: Decision.ask("me"), CALL) == Decision.ask(
        "me"
    )
    assert ran == []


def _patient(runner: GateRunner) -> GateRunner:
    runner._timeout = 30.0
    return runner


def test_P2_nothing_that_a_gate_does_to_the_arguments_reaches_the_call(runner: GateRunner) -> None:
    def gate(call: GateCall) -> None:
        call.arguments["to"].append("me")
        call.arguments["cents"] = 0

    assert runner.gate(gate, CALL) is None
    assert CALL.arguments == {"cents": 5, "to": ["x"]}
    with pytest.raises(AttributeError):
        CALL.raw_arguments = "{}"  # type: ignore[misc]


def test_P2_guards_stop_at_the_first_that_closes_and_cannot_ask(runner: GateRunner) -> None:
    asked: list[str] = []

    def allow(call: GateCall) -> Decision:
        asked.append("allow")
        return Decision.allow()

    def never(call: GateCall) -> Decision:
        asked.append("never")
        return Decision.allow()

    assert runner.guards([allow, lambda call: None], CALL) == Decision.allow()
    assert runner.guards([allow, lambda c: Decision.cancel("x"), never], CALL) == Decision.cancel(
        "x"
    )
    assert "never" not in asked
    late = runner.guards([lambda call: Decision.ask("unsure")], CALL)
    assert late.verdict is Verdict.DENY
    assert "unsure" in late.reason


def test_a_post_hook_adds_text_and_its_failure_is_told(stuck: threading.Event) -> None:
    runner = GateRunner(timeout=30)
    assert runner.post(lambda call, result: f"got {result.value}", CALL, RESULT) == "got 1"
    assert runner.post(lambda call, result: None, CALL, RESULT) is None
    failed = runner.post(lambda call, result: raise_it(ValueError("x")), CALL, RESULT)
    assert failed is not None
    assert "failed: ValueError: x" in failed
    hurried = GateRunner(timeout=0.05)
    late = hurried.post(lambda call, result: str(stuck.wait()), CALL, RESULT)
    assert late is not None
    assert "no answer within" in late
