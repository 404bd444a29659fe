"""P1, P2: the order of a call's life, and what stands between its record and its body."""

from __future__ import annotations

import pytest
from interlock.actors.messages import (
    Append,
    Appended,
    AskApproval,
    Flush,
    JudgeCall,
    Judged,
    Release,
    WireCall,
)
from interlock.actors.roles import Role
from interlock.backends.codes import Code


def steps_of(world) -> list[str]:
    """What was said between the owners, in order, by short names."""
    words = []
    for _, _, said in world.network.record:
        match said:
            case Append(drafts=drafts):
                words.append("+".join(d.type for d in drafts if not d.ignorable))
            case JudgeCall(phase=phase):
                words.append(phase)
            case Flush() | AskApproval() | Release():
                words.append(type(said).__name__)
    return words


def test_P1_a_call_goes_through_everything_in_order(make):
    world = make(gates=True, guards=True, hooks=True)
    person = world.answerer()
    rid = world.execute(("c1", "ask", '{ "x": 1 }'))
    world.answer(person)
    world.running("c1").finish()
    assert world.result(rid).ok
    assert steps_of(world) == [
        "tool/call",
        "gate",
        "approval/asked",
        "AskApproval",
        "approval/decided",
        "guard",
        "Flush",
        "Release",
        "hook",
        "tool/result",
    ]


def test_P1_the_record_holds_the_raw_argument_string(world):
    world.execute(("c1", "act", '{ "x" :  1 }'))
    [call] = world.of("tool/call")
    assert call.data["arguments"] == '{ "x" :  1 }'
    assert world.running("c1").release.arguments == b'{ "x" :  1 }'


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("absent", "{}", Code.UNKNOWN_TOOL),
        ("act", "not json", Code.INVALID_ARGS),
        ("act", '{"x": "text"}', Code.INVALID_ARGS),
        ("act", '{"x": 1, "x": 2}', Code.INVALID_ARGS),
        ("ask", "[]", Code.INVALID_ARGS),
        ("run", '{"y": 1}', Code.INVALID_ARGS),
    ],
)
def test_P1_an_unknown_tool_or_invalid_arguments_reach_no_gate(make, tool, arguments, code):
    world = make(gates=True, guards=True)
    rid = world.execute(("c1", tool, arguments))
    assert world.result(rid).code == code
    assert world.recorded(JudgeCall) == []
    assert world.recorded(AskApproval) == []
    assert world.types() == ["tool/call", "tool/result"]


def test_P1_a_result_cites_its_record(world):
    rid = world.execute(("c1", "act"))
    world.running("c1").finish()
    [call], [result] = world.of("tool/call"), world.of("tool/result")
    assert result.sources == (call.seq,)
    assert world.results(rid)[0].seq == result.seq


@pytest.mark.parametrize("phase", ["gate", "guard"])
@pytest.mark.parametrize(
    ("decision", "code"),
    [("deny", Code.TOOL_DENIED), ("cancel", Code.ABORTED_BEFORE_DISPATCH)],
)
def test_P2_what_a_gate_or_guard_closes_stays_closed(make, phase, decision, code):
    world = make(gates=True, guards=True)
    world.judge = lambda m: Judged(m.rid, decision if m.phase == phase else "allow", "because")
    rid = world.execute(("c1", "act"))
    assert world.result(rid).code == code
    assert "because" in world.result(rid).message
    assert world.bodies["c1"] == []


def test_P2_guards_come_last_and_close_what_a_person_allowed(make):
    world = make(gates=True, guards=True)
    world.judge = lambda m: Judged(m.rid, "deny" if m.phase == "guard" else "allow", "")
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    assert [m.phase for m in world.recorded(JudgeCall)] == ["gate"]
    world.answer(person)
    assert world.result(rid).code == Code.TOOL_DENIED
    assert world.bodies["c1"] == []


def test_P2_a_denying_gate_keeps_a_person_from_being_asked(make):
    world = make(gates=True)
    world.judge = lambda m: Judged(m.rid, "deny", "no")
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    assert world.result(rid).code == Code.TOOL_DENIED
    assert person.inbox[1:] == []


def test_P2_a_guard_cannot_ask(make):
    world = make(guards=True)
    world.judge = lambda m: Judged(m.rid, "ask", "")
    rid = world.execute(("c1", "act"))
    assert world.result(rid).code == Code.TOOL_DENIED


@pytest.mark.parametrize("phase", ["gates", "guards"])
def test_P2_a_judge_that_does_not_answer_in_time_denies(make, phase):
    world = make(**{phase: True})
    world.judge = lambda m: None
    rid = world.execute(("c1", "act"))
    world.network.advance(10.0)
    assert world.reply(rid) is None, "it has its 10 s and the way back"
    world.network.advance(2.0)
    assert world.result(rid).code == Code.TOOL_DENIED
    assert world.bodies["c1"] == []


def test_P2_an_answer_after_the_denial_changes_nothing(make):
    world = make(gates=True)
    asked = []
    world.judge = asked.append
    rid = world.execute(("c1", "act"))
    world.network.advance(12.0)
    world.judge = lambda m: None
    world.host.say(Role.DISPATCHER, Judged(asked[0].rid, "allow", ""))
    world.network.run()
    assert world.result(rid).code == Code.TOOL_DENIED
    assert world.bodies["c1"] == []


@pytest.mark.parametrize("word", ["yes", "", "ALLOW"])
def test_P2_what_is_no_decision_denies(make, word):
    world = make(gates=True)
    world.judge = lambda m: Judged(m.rid, word, "")
    rid = world.execute(("c1", "act"))
    assert world.result(rid).code == Code.TOOL_DENIED


def test_P2_gates_see_the_raw_arguments_and_change_nothing(make):
    world = make(gates=True)
    world.execute(("c1", "act", '{"x":  7}'))
    [judge] = world.recorded(JudgeCall)
    assert judge.arguments == b'{"x":  7}'
    assert world.running("c1").release.arguments == b'{"x":  7}'


def test_a_hook_adds_to_the_result_and_cannot_close_it(make):
    world = make(hooks=True)
    world.judge = lambda m: Judged(m.rid, "deny", "[noted]")
    rid = world.execute(("c1", "act"))
    world.running("c1").finish("value")
    outcome = world.result(rid)
    assert outcome.ok
    assert [block["text"] for block in outcome.blocks()] == ["value", "[noted]"]


def test_K1_a_plain_call_is_released_by_the_reply_to_its_own_record(world):
    """One message appends and flushes; the acknowledgement covers it."""
    world.execute(("c1", "act"))
    release = world.running("c1").release
    [call] = world.of("tool/call")
    acknowledged = [m for m in world.recorded(Appended) if m.first_seq == call.seq]
    assert [m.durable_seq for m in acknowledged] == [release.checkpoint_seq]
    assert release.checkpoint_seq >= call.seq


def test_P1_X3_arguments_that_are_no_text_are_refused_and_the_dispatcher_lives_on(world):
    seq = world.message(("c1", "act"))
    bad = world.request(seq, calls=[WireCall("c1", "act", b"\xff\xfe{")])
    refused = world.host.ask(Role.DISPATCHER, bad)
    assert refused.code == Code.EVENT_INVALID
    rid = world.send(lambda rid: world.request(seq))
    world.running("c1").finish()
    assert rid
    assert len(world.of("tool/result")) == 1
