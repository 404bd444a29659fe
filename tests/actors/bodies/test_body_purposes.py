"""Builders of sandbox tools (S10) and reconcile functions (R4) run like bodies."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Any

import pytest
from interlock.actors.bodies import BodyDone, BodyJob, BodyRunner
from interlock.actors.bodies.builder import (
    Purpose,
    encode_record,
    read_command,
    read_reconciliation,
)
from interlock.actors.tools import (
    CallRecord,
    Command,
    Done,
    NotDone,
    Outcome,
    Tool,
    ToolContext,
    Unknown,
    tool,
)
from interlock.backends.codes import Code

RECORD = CallRecord(
    session_id="s",
    created_at=5,
    message_seq=9,
    call_id="half \ud83d",
    tool="pay",
    arguments={"cents": 5},
    raw_arguments='{"cents":5}',
    idempotency_key="k",
    attempts=2,
)


def run(declared: Tool[..., Any], arguments: bytes, purpose: Purpose) -> Outcome:
    runner = BodyRunner()
    ended: queue.Queue[BodyDone] = queue.Queue()
    runner.start(
        BodyJob(number=1, tool=declared, arguments=arguments, purpose=purpose, call_id="c1"),
        ended.put,
    )
    outcome = ended.get(timeout=30).outcome
    runner.close()
    return outcome


def test_a_builder_gives_the_command_to_show_and_launch() -> None:
    @tool(place="sandbox")
    def grep(ctx: ToolContext, pattern: str) -> Command:
        return Command(["grep", "-r", pattern], env={"CALL": ctx.call_id}, stdin=b"\xff")

    outcome = run(grep, b'{"pattern":"x y"}', Purpose.BUILD)
    assert read_command(outcome) == Command(
        ["grep", "-r", "x y"], env={"CALL": "c1"}, stdin=b"\xff"
    )


def test_a_builder_that_returns_no_command_ran_nothing() -> None:
    outcome = run(tool(lambda: "ls -l", name="ls", place="sandbox"), b"{}", Purpose.BUILD)
    assert outcome.code is Code.TOOL_FAILED
    assert "returned str, not a Command" in outcome.message
    assert "nothing was run" in outcome.message


def test_a_bad_command_is_the_builders_failure() -> None:
    outcome = run(tool(lambda: Command([]), name="ls", place="sandbox"), b"{}", Purpose.BUILD)
    assert outcome.message.startswith("ValueError: a command needs a program")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "answer", [Done({"id": 3}), Done("text"), Done(), NotDone("no such"), Unknown("bank is down")]
)
def test_R4_reconcile_sees_the_record_and_settles_the_call(answer: Any, asynchronous: bool) -> None:
    @tool
    def pay(cents: int) -> None: ...

    seen: list[CallRecord] = []
    answers: list[Callable[[CallRecord], Any]] = []

    def look_up(call: CallRecord) -> Any:
        seen.append(call)
        return answer

    async def ask(call: CallRecord) -> Any:
        return look_up(call)

    answers += [ask] if asynchronous else [look_up]
    pay.reconcile(answers[0])
    outcome = run(pay, encode_record(RECORD), Purpose.RECONCILE)
    assert seen == [RECORD]
    assert read_reconciliation(outcome) == answer


def test_R4_a_reconcile_that_fails_has_found_out_nothing() -> None:
    @tool
    def pay(cents: int) -> None: ...

    @pay.reconcile
    def look_up(call: CallRecord) -> Any:
        if call.attempts == 2:
            raise ConnectionError("bank is down")
        return True

    outcome = run(pay, encode_record(RECORD), Purpose.RECONCILE)
    assert read_reconciliation(outcome) == Unknown("ConnectionError: bank is down")


@pytest.mark.parametrize(("answer", "words"), [(True, "returned bool"), (Done({1}), "type set")])
def test_R4_an_answer_that_is_none_is_not_taken_for_done(answer: Any, words: str) -> None:
    @tool
    def pay(cents: int) -> None: ...

    pay.reconcile(lambda call: answer)
    found = read_reconciliation(run(pay, encode_record(RECORD), Purpose.RECONCILE))
    assert isinstance(found, Unknown)
    assert words in found.reason
