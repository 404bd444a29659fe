"""A1 to A9, S4: who is asked, what is recorded, and that nothing unrecorded is ever allowed."""

from __future__ import annotations

import pytest
from dispatcher_world import ended
from interlock.actors.dispatcher.call import CallRun
from interlock.actors.messages import (
    Append,
    ApprovalAsked,
    ApprovalSettled,
    AskApproval,
    Judged,
    Launch,
    Release,
)
from interlock.actors.roles import Role
from interlock.actors.tools.command import Command
from interlock.actors.tools.identity import CallIdentity
from interlock.backends.codes import Code
from log_words import approval_policy, sandbox_mode, step_end


def outcomes(world) -> list[str]:
    return [event.data["outcome"] for event in world.of("approval/decided")]


def audit(world) -> list[dict]:
    return [event.data for event in world.of("interlock/approval")]


# A1: the policy.


def test_A1_never_rejects_before_anybody_is_asked(make):
    world = make(approval="never")
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    assert world.result(rid).code == Code.APPROVAL_REJECTED
    assert person.got(ApprovalAsked) == []
    assert world.recorded(AskApproval) == []
    assert outcomes(world) == ["rejected"]
    assert audit(world)[-1]["by"] == "policy"


@pytest.mark.parametrize(("default", "session"), [("ask", "never"), ("never", "ask")])
def test_A1_the_sessions_policy_overrides_the_default_and_the_last_one_wins(make, default, session):
    world = make(approval=default)
    person = world.answerer()
    world.append(approval_policy(default), approval_policy(session))
    world.execute(("c1", "ask"))
    assert len(person.got(ApprovalAsked)) == (1 if session == "ask" else 0)


def test_A1_a_policy_also_decides_what_a_gate_asks_for(make):
    world = make(approval="never", gates=True)
    world.judge = lambda m: Judged(m.rid, "ask", "odd")
    rid = world.execute(("c1", "act"))
    assert world.result(rid).code == Code.APPROVAL_REJECTED


# A2: one request, one answer.


@pytest.mark.parametrize(
    ("word", "outcome", "code"),
    [("allow", "allowed-once", None), ("reject", "rejected", Code.APPROVAL_REJECTED)],
)
def test_A2_one_answer_decides_one_call(world, word, outcome, code):
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    world.answer(person, word, "my reason")
    if code is None:
        world.running("c1").finish()
    assert world.result(rid).code == code
    assert outcomes(world) == [outcome]
    assert audit(world)[-1]["by"] == "answerer:person"


def test_A2_a_grant_is_spent_by_the_one_call_it_names(world):
    person = world.answerer()
    world.execute(("c1", "ask"), ("c2", "ask"))
    world.answer(person)
    world.running("c1").finish()
    assert world.bodies["c2"] == []
    assert len(person.got(ApprovalAsked)) == 2
    first, second = person.got(ApprovalAsked)
    assert first.request != second.request


def test_A2_the_tool_and_a_gate_asking_are_one_request_with_both_reasons(make):
    world = make(gates=True)
    world.judge = lambda m: Judged(m.rid, "ask", "a large amount")
    person = world.answerer()
    world.execute(("c1", "ask"))
    [asked] = person.got(ApprovalAsked)
    assert "a large amount" in asked.reason
    assert "asks for approval of every call" in asked.reason


# A3: nobody who could decide.


def test_A3_without_an_answerer_it_is_not_allowed(world):
    rid = world.execute(("c1", "ask"))
    assert world.result(rid).code == Code.APPROVAL_UNAVAILABLE
    assert outcomes(world) == ["unavailable"]
    assert world.bodies["c1"] == []


def test_A3_a_failing_answerer_does_not_allow(world):
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    world.answer(person, "failed")
    assert world.result(rid).code == Code.APPROVAL_UNAVAILABLE


def test_A3_a_deadline_that_passed_does_not_allow(make):
    world = make(approval_timeout=60.0)
    world.answerer()
    rid = world.execute(("c1", "ask"))
    world.network.advance(59.0)
    assert world.reply(rid) is None
    world.network.advance(2.0)
    assert world.result(rid).code == Code.APPROVAL_UNAVAILABLE
    assert outcomes(world) == ["unavailable"]


def test_A3_F4_a_lost_broker_does_not_allow_and_a_new_one_works(world):
    world.answerer()
    rid = world.execute(("c1", "ask"), ("c2", "ask"))
    world.network.kill(Role.BROKER)
    world.network.run()
    assert [r.outcome.code for r in world.results(rid)] == [Code.APPROVAL_UNAVAILABLE] * 2
    world.start_broker()
    person = world.answerer("another")
    world.append(step_end(world.step))
    world.next_step()
    rid = world.execute(("c3", "ask"))
    world.answer(person)
    world.running("c3").finish()
    assert world.result(rid).ok


# A4: recorded before it is seen, settled once.


def test_A4_the_request_is_appended_before_any_answerer_sees_it(world):
    person = world.answerer()
    world.network.hold = lambda m: (
        isinstance(m, Append) and any(d.type == "approval/asked" for d in m.drafts)
    )
    world.execute(("c1", "ask"))
    assert person.got(ApprovalAsked) == []
    world.network.let_go()
    assert len(person.got(ApprovalAsked)) == 1


def test_A4_exactly_one_request_and_one_decision_are_recorded(world):
    person = world.answerer()
    world.execute(("c1", "ask"))
    world.answer(person)
    world.answer(person, "reject")
    assert world.types() == ["tool/call", "approval/asked", "approval/decided"]
    asked, decided = world.of("approval/asked")[0], world.of("approval/decided")[0]
    assert asked.data["id"] == decided.data["id"]
    assert asked.data["callId"] == "c1"


# A5: no unrecorded permission.


@pytest.mark.parametrize("lost", ["approval/asked", "approval/decided"])
def test_A5_what_cannot_be_recorded_is_not_allowed(world, lost):
    person = world.answerer()
    world.network.hold = lambda m: isinstance(m, Append) and any(d.type == lost for d in m.drafts)
    rid = world.execute(("c1", "ask"))
    if lost == "approval/decided":
        world.answer(person)
    world.network.held.clear()
    world.network.advance(31.0)
    assert world.result(rid).code == Code.APPROVAL_UNAVAILABLE
    assert "could not be recorded" in world.result(rid).message
    assert world.bodies["c1"] == []
    if lost == "approval/asked":
        assert person.got(ApprovalAsked) == []


# A6, A9: what is shown, and what a grant is bound to.


def test_A6_the_request_names_tool_reason_and_call_but_not_the_arguments(world):
    person = world.answerer()
    world.execute(("c1", "ask", '{"x": 424242}'))
    [asked] = person.got(ApprovalAsked)
    assert (asked.tool, asked.call_id, asked.session) == ("ask", "c1", "s")
    assert "424242" not in repr(asked)
    assert world.of("tool/call")[0].data["callId"] == asked.call_id


def test_A6_of_a_command_what_is_shown_is_the_argv(make):
    world = make(gates=True)
    world.judge = lambda m: Judged(m.rid, "ask", "look")
    world.commands["c1"] = Command(["rm", "-rf", "a b"])
    person = world.answerer()
    world.execute(("c1", "run"))
    [asked] = person.got(ApprovalAsked)
    assert "rm -rf 'a b'" in asked.reason


@pytest.mark.parametrize("change", ["digest", "request"])
def test_A9_an_answer_for_something_else_does_not_allow(world, change):
    world.answerer()
    rid = world.execute(("c1", "ask"))
    [asked] = world.recorded(AskApproval)
    settled = {
        "rid": asked.rid,
        "request": asked.request,
        "digest": asked.digest,
        "outcome": "allowed-once",
        "by": "answerer:person",
    }
    port = world.network.owners[Role.BROKER].port
    forged = ApprovalSettled(**(settled | {change: "another"}))
    world.network.send(port, world.network.address(Role.DISPATCHER), forged)
    world.network.run()
    assert world.result(rid).code == Code.APPROVAL_UNAVAILABLE
    assert world.bodies["c1"] == []


def test_A9_the_digest_covers_identity_tool_and_raw_arguments(world):
    person = world.answerer()
    rid = world.execute(("c1", "ask", "{}"), ("c2", "ask", "{}"), ("c3", "ask", "{ }"))
    for _ in range(3):
        world.answer(person, "reject")
    assert len({asked.digest for asked in person.got(ApprovalAsked)}) == 3
    assert len({entry["digest"] for entry in audit(world)}) == 3
    assert len(world.results(rid)) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"identity": CallIdentity("s2", 1, "c")},
        {"identity": CallIdentity("s", 2, "c")},
        {"identity": CallIdentity("s", 1, "d")},
        {"name": "other"},
        {"arguments": b"{ }"},
        {"sub_path": ".1"},
    ],
    ids=str,
)
def test_A9_each_part_of_what_was_shown_changes_the_digest(change):
    shown = {
        "identity": CallIdentity("s", 1, "c"),
        "created_at": 1,
        "workspace": "/",
        "turn": 1,
        "step": 1,
        "name": "tool",
        "arguments": b"{}",
        "requester": b"",
        "spec": None,
    }
    assert CallRun(**shown).digest() == CallRun(**shown).digest()
    assert CallRun(**(shown | change)).digest() != CallRun(**shown).digest()


def test_A8_an_answer_after_the_deadline_changes_nothing(make):
    world = make(approval_timeout=60.0)
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    world.network.advance(61.0)
    assert not world.answer(person).taken
    assert world.result(rid).code == Code.APPROVAL_UNAVAILABLE
    assert outcomes(world) == ["unavailable"]
    assert world.bodies["c1"] == []


# S4: a wider sandbox.


def test_S4_a_wider_mode_is_an_approval_of_its_own(make):
    world = make(gates=True)
    world.judge = lambda m: Judged(m.rid, "ask", "first")
    world.commands["c1"] = Command(["x"], mode="danger-full-access", justification="to install")
    person = world.answerer()
    world.execute(("c1", "run"))
    world.answer(person)
    assert world.runner.commands == []
    second = person.got(ApprovalAsked)[1]
    assert "to install" in second.reason
    assert "danger-full-access" in second.reason
    world.answer(person)
    [command] = world.runner.commands
    assert command.launch.mode == "danger-full-access"
    assert audit(world)[2]["sandbox"] == {
        "from": "workspace-write",
        "to": "danger-full-access",
        "justification": "to install",
    }
    last_decision = world.of("approval/decided")[-1].seq
    assert command.launch.checkpoint_seq >= last_decision


def test_S4_an_approval_does_not_widen_and_a_rejected_widening_runs_nothing(world):
    world.commands["c1"] = Command(["x"], mode="danger-full-access")
    person = world.answerer()
    rid = world.execute(("c1", "run"))
    world.answer(person, "reject")
    assert world.result(rid).code == Code.APPROVAL_REJECTED
    assert world.runner.commands == []


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
def test_S4_a_mode_that_is_not_wider_asks_nobody(world, mode):
    world.commands["c1"] = Command(["x"], mode=mode)
    world.execute(("c1", "run"))
    [command] = world.runner.commands
    assert command.launch.mode == mode
    assert world.of("approval/asked") == []


def test_S4_a_wider_mode_holds_for_that_call_only(world):
    world.commands["c1"] = Command(["x"], mode="danger-full-access")
    person = world.answerer()
    world.execute(("c1", "run"), ("c2", "run"))
    world.answer(person)
    [first] = world.runner.commands
    world.network.called(Role.LAUNCHER, lambda: first.ended(ended(first.launch)))
    world.network.run()
    assert [launch.mode for launch in world.recorded(Launch)] == [
        "danger-full-access",
        "workspace-write",
    ]


def test_S4_the_sessions_mode_is_what_a_command_is_measured_by(world):
    world.append(sandbox_mode("read-only"))
    world.commands["c2"] = Command(["x"], mode="workspace-write")
    person = world.answerer()
    world.execute(("c1", "run"))
    assert world.recorded(Launch)[0].mode == "read-only"
    assert person.got(ApprovalAsked) == []
    assert world.recorded(Release) == []


def test_S4_never_also_holds_for_widening(make):
    world = make(approval="never")
    world.commands["c1"] = Command(["x"], mode="danger-full-access")
    rid = world.execute(("c1", "run"))
    assert world.result(rid).code == Code.APPROVAL_REJECTED
    assert world.runner.commands == []
