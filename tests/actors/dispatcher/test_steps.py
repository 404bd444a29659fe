"""P3, P4: which calls overlap, in which order they start, and what a cancellation does."""

from __future__ import annotations

import pytest
from dispatcher_world import ended
from interlock.actors.dispatcher.step import POOL
from interlock.actors.messages import Append, Flush, JudgeCall, Release, WithdrawApproval
from interlock.actors.roles import Role
from interlock.backends.codes import Code


def appended(world, kind: str) -> list[int]:
    """How many events of a type each append of the dispatcher carried."""
    counts = [
        sum(draft.type == kind for draft in message.drafts) for message in world.recorded(Append)
    ]
    return [count for count in counts if count]


def started(world) -> list[str]:
    return [event.data["callId"] for event in world.of("tool/call")]


# P3.


def test_P3_other_calls_are_barriers_and_are_recorded_when_their_turn_comes(world):
    rid = world.execute(("c1", "act"), ("c2", "look"), ("c3", "look"), ("c4", "act"))
    assert started(world) == ["c1"]
    world.running("c1").finish()
    assert started(world) == ["c1", "c2", "c3"]
    world.running("c3").finish()
    assert started(world) == ["c1", "c2", "c3"], "c4 waits for the whole group"
    world.running("c2").finish()
    assert started(world) == ["c1", "c2", "c3", "c4"]
    world.running("c4").finish()
    assert [r.call_id for r in world.results(rid)] == ["c1", "c2", "c3", "c4"]


@pytest.mark.parametrize("gates", [False, True])
def test_P3_a_group_shares_one_append_and_one_checkpoint(make, gates):
    world = make(gates=gates)
    world.execute(*[(f"c{i}", "look") for i in range(5)])
    assert appended(world, "tool/call") == [5]
    flushes = [m for m in world.recorded(Append) if m.flush] + world.recorded(Flush)
    assert len(flushes) == 1
    assert len({m.checkpoint_seq for m in world.recorded(Release)}) == 1
    assert len(world.recorded(Release)) == 5


def test_P3_the_pool_is_bounded_and_refilled_in_model_order(world):
    assert POOL == 10
    ids = [f"c{i:02}" for i in range(14)]
    world.execute(*[(i, "look") for i in ids])
    assert started(world) == ids[:10]
    world.running(ids[7]).finish()
    assert started(world) == ids[:11]
    world.running(ids[0]).finish()
    world.running(ids[10]).finish()
    assert started(world) == ids[:13]


def test_P3_results_are_recorded_as_they_become_known_and_returned_in_model_order(world):
    rid = world.execute(("c1", "look"), ("c2", "look"), ("c3", "look"))
    for call_id in ("c3", "c1", "c2"):
        world.running(call_id).finish(call_id)
    recorded = [e.data["message"]["source"]["callId"] for e in world.of("tool/result")]
    assert recorded == ["c3", "c1", "c2"]
    assert [r.call_id for r in world.results(rid)] == ["c1", "c2", "c3"]
    assert [r.outcome.value_object() for r in world.results(rid)] == ["c1", "c2", "c3"]


def test_P3_a_call_that_waits_for_a_person_leaves_the_group_and_is_checkpointed_later(world):
    person = world.answerer()
    calls = [("a", "ask-too"), *[(f"c{i:02}", "look") for i in range(10)]]
    world.execute(*calls)
    assert world.bodies["a"] == []
    running = [call_id for call_id, bodies in world.bodies.items() if bodies]
    assert len(running) == 10, "its room in the pool is given to the next"
    world.answer(person)
    assert world.bodies["a"] == [], "the pool is full"
    world.running("c00").finish()
    late, early = world.running("a").release, world.running("c01").release
    assert late.checkpoint_seq > early.checkpoint_seq


def test_P3_one_bad_call_of_a_group_does_not_hold_up_the_others(world):
    rid = world.execute(("c1", "look"), ("c2", "look", '{"x": "no"}'), ("c3", "look"))
    world.running("c1").finish()
    world.running("c3").finish()
    assert [r.outcome.code for r in world.results(rid)] == [None, Code.INVALID_ARGS, None]


def test_P3_a_call_declared_safe_waits_for_a_barrier_before_it(world):
    world.execute(("c1", "act"), ("c2", "look"))
    assert world.bodies["c2"] == []


# P4.


def test_P4_calls_that_are_not_started_get_a_record_and_a_result(world):
    rid = world.execute(("c1", "act"), ("c2", "act"), ("c3", "look"))
    world.cancel()
    assert started(world) == ["c1"], "those after it wait until it has ended"
    world.running("c1").stop()
    codes = [r.outcome.code for r in world.results(rid)]
    assert codes == [Code.ABORTED, Code.ABORTED_BEFORE_DISPATCH, Code.ABORTED_BEFORE_DISPATCH]
    assert started(world) == ["c1", "c2", "c3"]
    assert len(world.of("tool/result")) == 3
    assert len(world.recorded(Release)) == 1


def test_P4_a_step_that_is_sent_as_cancelled_is_recorded_and_runs_nothing(make):
    world = make(gates=True)
    rid = world.execute(("c1", "act"), ("c2", "look"), cancelled=True)
    codes = [r.outcome.code for r in world.results(rid)]
    assert codes == [Code.ABORTED_BEFORE_DISPATCH] * 2
    assert started(world) == ["c1", "c2"]
    assert world.recorded(Release) == []
    assert world.recorded(JudgeCall) == []


def test_P4_cancelled_while_a_person_is_asked(world):
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    world.cancel()
    assert world.result(rid).code == Code.ABORTED_BEFORE_DISPATCH
    assert len(world.recorded(WithdrawApproval)) == 1
    [decided] = world.of("approval/decided")
    assert decided.data["outcome"] == "cancelled"
    assert not world.answer(person).taken
    assert world.bodies["c1"] == []


def test_P4_cancelled_while_a_gate_thinks(make):
    world = make(gates=True)
    world.judge = lambda m: None
    rid = world.execute(("c1", "act"))
    world.cancel()
    assert world.result(rid).code == Code.ABORTED_BEFORE_DISPATCH


def test_P4_cancelled_while_waiting_for_a_worker(world):
    world.spawner.silent = True
    world.spawner.kill(min(world.spawner.workers))
    rid = world.execute(("c1", "act"))
    world.cancel()
    assert world.result(rid).code == Code.ABORTED_BEFORE_DISPATCH
    assert world.dispatcher().counters()["waiting_for_worker"] == 0


def test_P4_a_running_call_is_asked_once_waited_for_and_its_success_replaced(world):
    rid = world.execute(("c1", "act"))
    body = world.running("c1")
    world.cancel()
    world.cancel()
    assert body.asked == ["cancelled"]
    assert world.reply(rid) is None
    body.finish("it did it")
    outcome = world.result(rid)
    assert outcome.code == Code.ABORTED
    assert "it did it" in outcome.message, "what is known is not thrown away"


def test_P4_a_more_specific_failure_is_kept(world):
    rid = world.execute(("c1", "act"))
    world.cancel()
    world.running("c1").fail("disk on fire")
    assert world.result(rid).code == Code.TOOL_FAILED
    assert world.result(rid).message == "disk on fire"


def test_P4_only_the_named_calls_are_cancelled(world):
    rid = world.execute(("c1", "look"), ("c2", "look"), ("c3", "act"))
    world.cancel("c2")
    world.running("c1").finish("fine")
    world.running("c2").stop()
    world.running("c3").finish("fine")
    assert [r.outcome.code for r in world.results(rid)] == [None, Code.ABORTED, None]


def test_P4_a_cancellation_after_the_end_changes_nothing(world):
    rid = world.execute(("c1", "act"))
    world.running("c1").finish("done")
    world.cancel()
    assert world.result(rid).ok
    assert len(world.of("tool/result")) == 1


def test_P4_a_cancelled_command_is_asked_to_stop_by_its_launcher(world):
    rid = world.execute(("c1", "run"))
    [command] = world.runner.commands
    world.cancel()
    assert command.cancels == [False]
    world.network.called(
        Role.LAUNCHER,
        lambda: command.ended(ended(command.launch, status="cancelled", exit_code=None)),
    )
    world.network.run()
    assert world.result(rid).code == Code.ABORTED


def test_a_step_without_calls_ends_at_once(world):
    world.message(("c1", "act"))
    request = world.request(3, calls=[])
    assert world.host.ask(Role.DISPATCHER, request).results == []
