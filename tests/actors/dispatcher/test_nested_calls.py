"""K5: calls that bodies make."""

from __future__ import annotations

import pytest
from interlock.actors.dispatcher.core import MAX_DEPTH
from interlock.actors.messages import Flush, Judged, NestedCall, NestedResult, Release
from interlock.actors.roles import Role
from interlock.actors.tools.fit import INLINE_LIMIT
from interlock.backends.codes import Code


def nested_body(world, index: int = 1):
    return world.bodies["c1"][index]


def test_K5_a_nested_call_is_recorded_under_its_parent_on_the_parents_checkpoint(world):
    rid = world.execute(("c1", "act"))
    parent = world.running("c1")
    flushes = len(world.recorded(Flush))
    parent.call("look", b'{"x": 1}')
    child = nested_body(world)
    assert child.release.checkpoint_seq == parent.release.checkpoint_seq
    assert len(world.recorded(Flush)) == flushes, "no checkpoint of its own"
    child.finish("inner")
    assert parent.nested().outcome.value_object() == "inner"
    parent.finish("outer")
    assert world.result(rid).ok
    start, end = world.of("tool/ptc-dispatch-start"), world.of("tool/ptc-dispatch")
    assert start[0].data["rootCallId"] == start[0].data["parentCallId"] == "c1"
    assert start[0].data["arguments"] == {"x": 1}
    assert end[0].data["subCallId"] == start[0].data["subCallId"]
    assert not end[0].data["isError"]


def test_I2_a_nested_call_has_an_idempotency_key_of_its_own(world):
    world.execute(("c1", "act"))
    parent = world.running("c1")
    parent.call("look", sub=1)
    nested_body(world, 1).finish()
    parent.call("look", sub=2)
    keys = {body.release.idempotency_key for body in world.bodies["c1"]}
    assert len(keys) == 3


@pytest.mark.parametrize("liar", ["token", "connection", "number"])
def test_K5_nobody_claims_to_be_nested_without_the_running_parents_token(make, liar):
    world = make(workers=2)
    world.execute(("c1", "act"))
    parent = world.running("c1")
    peer, number, token = parent.peer, parent.release.number, parent.release.token
    if liar == "token":
        token = "0" * 32
    elif liar == "number":
        number += 1
    else:
        peer = next(w for w in world.spawner.workers.values() if w is not parent.peer)
    peer.say(Role.DISPATCHER, NestedCall(number, token, 1, "look", b"{}"))
    world.network.run()
    assert peer.last(NestedResult).result.outcome.code == Code.TOOL_DENIED
    assert world.of("tool/ptc-dispatch-start") == []
    assert len(world.recorded(Release)) == 1


def test_K5_after_the_parents_end_its_token_is_worth_nothing(world):
    world.execute(("c1", "act"), ("c2", "act"))
    parent = world.running("c1")
    parent.finish()
    parent.call("look")
    assert parent.nested().outcome.code == Code.TOOL_DENIED


def test_K5_a_command_has_no_token_so_nothing_is_nested_under_it(world):
    world.execute(("c1", "run"))
    [command] = world.runner.commands
    world.host.say(Role.DISPATCHER, NestedCall(command.launch.number, "", 1, "look", b"{}"))
    world.network.run()
    assert world.host.last(NestedResult).result.outcome.code == Code.TOOL_DENIED


def test_K5_a_nested_call_that_asks_takes_a_checkpoint_of_its_own(world):
    person = world.answerer()
    world.execute(("c1", "act"))
    parent = world.running("c1")
    parent.call("ask")
    assert len(world.bodies["c1"]) == 1
    world.answer(person)
    child = nested_body(world)
    assert child.release.checkpoint_seq >= world.of("approval/decided")[0].seq
    assert child.release.checkpoint_seq > parent.release.checkpoint_seq


def test_K5_calls_nest_to_a_depth_and_no_further(world):
    world.execute(("c1", "act"))
    for _ in range(MAX_DEPTH):
        world.bodies["c1"][-1].call("look")
    assert len(world.bodies["c1"]) == MAX_DEPTH + 1
    deepest = world.bodies["c1"][-1]
    deepest.call("look")
    assert deepest.nested().outcome.code == Code.TOOL_DENIED
    assert len(world.bodies["c1"]) == MAX_DEPTH + 1


@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("absent", b"{}", Code.UNKNOWN_TOOL),
        ("look", b'{"x": "no"}', Code.INVALID_ARGS),
        ("look", b"\xff", Code.INVALID_ARGS),
    ],
)
def test_P1_a_nested_call_is_checked_like_any_other(world, tool, arguments, code):
    world.execute(("c1", "act"))
    parent = world.running("c1")
    parent.call(tool, arguments)
    assert parent.nested().outcome.code == code
    assert len(world.of("tool/ptc-dispatch")) == 1


def test_P2_gates_and_guards_judge_nested_calls_too(make):
    world = make(gates=True)
    world.judge = lambda m: Judged(m.rid, "deny" if m.tool == "look" else "allow", "")
    world.execute(("c1", "act"))
    parent = world.running("c1")
    parent.call("look")
    assert parent.nested().outcome.code == Code.TOOL_DENIED


def test_P4_cancelling_the_outer_call_asks_the_nested_one_to_stop_too(world):
    world.execute(("c1", "act"))
    world.running("c1").call("look")
    world.cancel()
    assert [body.asked for body in world.bodies["c1"]] == [["cancelled"], ["cancelled"]]


def test_P7_a_large_nested_result_does_not_swell_the_log(world):
    world.execute(("c1", "act"))
    parent = world.running("c1")
    parent.call("look")
    text = "x" * (2 * INLINE_LIMIT)
    nested_body(world).finish(text)
    assert parent.nested().outcome.value_object() == text, "the body gets all of it"
    [end] = world.of("tool/ptc-dispatch")
    assert len(end.raw) < INLINE_LIMIT
    assert f"of {len(text)} bytes" in end.data["content"][0]["text"]


def test_K6_a_nested_call_after_the_writer_was_replaced_is_not_released(world):
    world.execute(("c1", "act"))
    parent = world.running("c1")
    world.replace_writer()
    world.reopen()
    parent.call("look")
    assert parent.nested().outcome.code == Code.CHECKPOINT_FAILED
    assert len(world.bodies["c1"]) == 1
