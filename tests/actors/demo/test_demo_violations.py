"""Holding logs against the ledger: each contradiction is found, and nothing else."""

from typing import Any

import pytest
from interlock.actors.demo.ledger import Entry
from interlock.actors.demo.violations import violations
from interlock.backends.event import Event, draft

ACTING = frozenset({"write_note"})


def log(*events: tuple[str, dict[str, Any]]) -> list[Event]:
    return [
        Event(type_, seq, 1000 + seq, draft(type_, data).data)
        for seq, (type_, data) in enumerate(events)
    ]


def call(call_id: str = "c1", name: str = "write_note") -> tuple[str, dict[str, Any]]:
    return "tool/call", {
        "turn": 1,
        "step": 1,
        "callId": call_id,
        "name": name,
        "arguments": "{}",
    }


def result(call_id: str = "c1", code: str | None = None) -> tuple[str, dict[str, Any]]:
    message = {"source": {"kind": "tool", "callId": call_id}, "content": []}
    error = {} if code is None else {"error": {"name": "x", "code": code}}
    return "tool/result", {"turn": 1, "step": 1, "message": message, **error}


def asked(call_id: str = "c1") -> tuple[str, dict[str, Any]]:
    return "approval/asked", {"id": "r1", "toolName": "x", "callId": call_id, "reason": "y"}


def decided(outcome: str) -> tuple[str, dict[str, Any]]:
    return "approval/decided", {"id": "r1", "outcome": outcome}


def line(phase: Any, call_id: str = "c1", key: str = "k1", *, recorded: bool = True) -> Entry:
    return Entry("s", call_id, "write_note", key, phase, 1, 1, recorded)


def kinds(events: list[Event], *ledger: Entry) -> list[str]:
    return [found.kind for found in violations({"s": events}, ledger, ACTING)]


BEGIN, END = line("begin"), line("end")


def test_I3_a_call_recorded_before_its_effect_and_answered_after_it_is_no_violation() -> None:
    assert kinds(log(call(), result()), BEGIN, END) == []


@pytest.mark.parametrize("code", ["TOOL_OUTCOME_UNKNOWN", "TOOL_TIMEOUT", "ABORTED"])
def test_R1_an_effect_behind_an_honest_do_not_know_is_no_violation(code: str) -> None:
    assert kinds(log(call(), result(code=code)), BEGIN) == []
    assert kinds(log(call(), result(code=code)), BEGIN, END) == []


def test_A2_a_granted_effect_is_no_violation() -> None:
    assert kinds(log(call(), asked(), decided("allowed-once"), result()), BEGIN, END) == []


def test_K2_an_effect_whose_call_was_not_in_the_file_is_found() -> None:
    begin = line("begin", recorded=False)
    assert kinds(log(call(), result()), begin, END) == ["effect-before-record"]


def test_K2_an_effect_without_any_call_is_found() -> None:
    assert kinds(log(), BEGIN, END) == ["effect-without-call"]


def test_K2_an_effect_in_a_session_without_a_log_is_found() -> None:
    assert [v.kind for v in violations({}, [BEGIN, END], ACTING)] == ["effect-without-call"]


@pytest.mark.parametrize(
    "code", ["ABORTED_BEFORE_DISPATCH", "TOOL_NOT_STARTED", "TOOL_DENIED", "CHECKPOINT_FAILED"]
)
def test_P4_an_effect_of_a_call_that_is_said_not_to_have_started_is_found(code: str) -> None:
    assert kinds(log(call(), result(code=code)), BEGIN) == ["effect-of-unstarted-call"]


def test_A3_an_effect_without_a_grant_is_found() -> None:
    events = log(call(), asked(), decided("rejected"), result(code="APPROVAL_REJECTED"))
    assert kinds(events, BEGIN) == ["effect-of-unstarted-call", "effect-without-grant"]
    assert kinds(log(call(), asked(), result()), BEGIN, END) == ["effect-without-grant"]


def test_F1_an_effect_without_a_result_is_found() -> None:
    assert kinds(log(call()), BEGIN, END) == ["effect-without-result"]


def test_P9_a_body_that_ran_twice_is_found() -> None:
    assert kinds(log(call(), result()), BEGIN, BEGIN, END) == ["body-ran-twice"]


def test_I2_a_key_shared_by_two_calls_is_found() -> None:
    events = log(call(), result(), call("c2"), result("c2"))
    ledger = [BEGIN, END, line("begin", "c2"), line("end", "c2")]
    assert kinds(events, *ledger) == ["key-shared"]


def test_I3_a_success_without_an_effect_is_found() -> None:
    assert kinds(log(call(), result()), BEGIN) == ["success-without-effect"]
    assert kinds(log(call(), result())) == ["success-without-effect"]


def test_a_success_of_a_tool_that_does_not_act_needs_no_effect() -> None:
    assert kinds(log(call(name="read_file"), result())) == []


def test_a_finding_names_session_and_call() -> None:
    [found] = violations({"s": log(call(), result())}, [], ACTING)
    assert (found.session, found.call_id) == ("s", "c1")
    assert "write_note" in found.message
