"""P2: the shipped gates, guards and hooks in the dispatcher: where they stand, and their memory."""

from __future__ import annotations

from dispatcher_world import ended
from interlock.actors import Ask, Budget, Deny, LoopDetector, Only, RateLimit, ResultLimit
from interlock.actors.messages import (
    Append,
    ApprovalAsked,
    Flush,
    JudgeCall,
    Judged,
    ReadPending,
    Release,
)
from interlock.actors.roles import Role
from interlock.actors.tools.command import Command
from interlock.backends.codes import Code
from log_words import note, step_end


def next_step(world) -> None:
    world.append(step_end(world.step))
    world.next_step()


def test_P1_P2_a_shipped_gate_denies_after_the_record_and_nothing_runs(make):
    world = make(gate_pieces=[Deny("act", reason="not here")])
    rid = world.execute(("c1", "act"))
    assert world.result(rid).code == Code.TOOL_DENIED
    assert "not here" in world.result(rid).message
    assert world.types() == ["tool/call", "tool/result"]
    assert world.recorded(Release) == world.recorded(JudgeCall) == []


def test_P1_what_is_invalid_reaches_no_shipped_gate(make):
    world = make(gate_pieces=[Budget(1)])
    world.execute(("c1", "nowhere"), ("c2", "act", '{"x": "no"}'), ("c3", "act"))
    world.running("c3").finish()


def test_K2_a_plain_call_that_a_shipped_gate_lets_through_has_its_one_message(make):
    world = make(gate_pieces=[Deny("other"), RateLimit(9, 60.0)])
    world.execute(("c1", "act"))
    world.running("c1").finish()
    first = next(m for m in world.recorded(Append) if m.drafts and m.drafts[0].type == "tool/call")
    assert first.flush
    assert world.recorded(Flush) == []


def test_A_K2_a_shipped_gate_has_it_asked_and_the_checkpoint_covers_the_grant(make):
    world = make(gate_pieces=[Ask("act", above={"x": 10}, reason="a large amount")])
    person = world.answerer()
    world.execute(("c1", "act", '{"x": 11}'))
    assert "a large amount" in person.last(ApprovalAsked).reason
    assert world.bodies["c1"] == []
    world.answer(person)
    body = world.running("c1")
    assert body.release.checkpoint_seq >= world.of("approval/decided")[0].seq
    body.finish()
    next_step(world)
    world.execute(("c2", "act", '{"x": 10}'))
    world.running("c2").finish()
    assert len(person.got(ApprovalAsked)) == 1


def test_P2_the_hosts_gates_and_the_shipped_ones_fold_to_the_strictest(make):
    world = make(gates=True, gate_pieces=[Ask("act", reason="shipped"), Deny("look")])
    world.judge = lambda m: Judged(m.rid, "ask", "the host's")
    person = world.answerer()
    world.execute(("c1", "act"))
    assert person.last(ApprovalAsked).reason == "shipped; the host's"
    world.answer(person, "reject")
    next_step(world)
    world.judge = lambda m: Judged(m.rid, "deny", "no")
    rid = world.execute(("c2", "act"), ("c3", "look"))
    assert [r.outcome.code for r in world.results(rid)] == [Code.TOOL_DENIED] * 2
    assert [m.call_id for m in world.recorded(JudgeCall)] == ["c1", "c2"], "it was closed already"


def test_P2_a_shipped_guard_comes_after_the_approval_and_reopens_nothing(make):
    world = make(guards=True, guard_pieces=[Deny("ask")])
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    world.answer(person)
    assert world.result(rid).code == Code.TOOL_DENIED
    assert world.recorded(JudgeCall) == []


def test_A7_a_confined_command_is_judged_by_what_would_run(make):
    world = make(gate_pieces=[Only(["run"], programs=["git"])])
    world.commands = {"c1": Command(["git", "log"]), "c2": Command(["/tmp/git", "log"])}
    world.execute(("c1", "run"))
    [command] = world.runner.commands
    world.network.called(Role.LAUNCHER, lambda: command.ended(ended(command.launch)))
    world.network.run()
    next_step(world)
    rid = world.execute(("c2", "run"))
    assert world.result(rid).code == Code.TOOL_DENIED
    assert len(world.runner.commands) == 1


def test_P3_overlapping_calls_share_what_a_budget_leaves_in_model_order(make):
    world = make(gate_pieces=[Budget(2, "look")])
    rid = world.execute(("c1", "look"), ("c2", "look"), ("c3", "look"))
    for name in ("c1", "c2"):
        world.running(name).finish()
    assert [r.outcome.code for r in world.results(rid)] == [None, None, Code.TOOL_DENIED]


def test_a_rejected_call_is_taken_back_and_an_unknown_one_is_charged(make):
    world = make(gate_pieces=[Budget(1, "a*")])
    person = world.answerer()
    world.execute(("c1", "ask"))
    world.answer(person, "reject")
    next_step(world)
    world.execute(("c2", "alone"))
    worker = world.spawner.pid_of(world.running("c2").peer)
    world.spawner.exit(worker, "it died")
    world.network.run()
    next_step(world)
    rid = world.execute(("c3", "act"))
    assert world.result(rid).code == Code.TOOL_DENIED


def test_K5_a_nested_call_is_judged_and_counted_as_any_other(make):
    world = make(gate_pieces=[Budget(2)])
    world.execute(("c1", "act"))
    body = world.running("c1")
    body.call("act", sub=1)
    world.bodies["c1"][1].finish()
    body.call("act", sub=2)
    assert body.nested(2).outcome.code == Code.TOOL_DENIED
    body.finish()


def test_F3_limits_go_on_counting_from_the_log_in_the_next_life_of_the_dispatcher(make):
    pieces = [Budget(10, "act", amount="x"), LoopDetector(2, "look"), RateLimit(2, 60.0, "again")]
    world = make(gate_pieces=pieces)
    world.execute(("c1", "act", '{"x": 6}'), ("c2", "look"), ("c3", "look"), ("c4", "again"))
    for name in ("c1", "c2", "c3", "c4"):
        world.running(name).finish()
    next_step(world)
    rid = world.execute(("c5", "act", '{"x": 6}'))  # denied, so it costs nothing
    assert world.result(rid).code == Code.TOOL_DENIED
    world.network.kill(Role.DISPATCHER)
    world.network.advance(30.0)
    world.start_dispatcher("dispatcher-2")
    next_step(world)
    rid = world.execute(
        ("d1", "act", '{"x": 5}'),
        ("d2", "act", '{"x": 4}'),
        ("d3", "look"),
        ("d4", "again"),
        ("d5", "again"),
    )
    for name in ("d2", "d4"):
        world.running(name).finish()
    codes = {r.call_id: r.outcome.code for r in world.results(rid)}
    assert codes == {
        "d1": Code.TOOL_DENIED,
        "d2": None,
        "d3": Code.TOOL_DENIED,
        "d4": None,
        "d5": Code.TOOL_DENIED,
    }
    assert len(world.recorded(ReadPending)) == 2, "the log was read once in each life"


def test_P2_where_the_log_cannot_be_read_what_counts_denies(make):
    world = make(gate_pieces=[Budget(10)])
    seq = world.message(("c1", "act"))
    world.network.hold = lambda m: isinstance(m, ReadPending)
    request = world.request(seq)
    world.host.say(Role.DISPATCHER, request)
    world.network.run()
    assert world.bodies["c1"] == []
    world.network.advance(31.0)
    assert world.result(request.rid).code == Code.TOOL_DENIED
    assert "could not be read" in world.result(request.rid).message


def test_P4_a_call_that_is_cancelled_while_the_log_is_read_does_not_run(make):
    world = make(gate_pieces=[Budget(10)])
    world.network.hold = lambda m: isinstance(m, ReadPending)
    rid = world.execute(("c1", "act"))
    world.cancel("c1")
    assert world.result(rid).code == Code.ABORTED_BEFORE_DISPATCH
    world.network.let_go()
    assert world.bodies["c1"] == []
    next_step(world)
    world.execute(("c2", "act"))
    world.running("c2").finish()


def test_P7_a_result_over_its_limit_goes_to_a_file_that_is_there_before_the_result(make):
    world = make(hook_pieces=[ResultLimit(1000, "act")])
    rid = world.execute(("c1", "act"), ("c2", "look"))
    world.running("c1").finish("x" * 5000)
    world.running("c2").finish("y" * 5000)
    first, second = (r.outcome for r in world.results(rid))
    world.append(note(), flush=True)
    [spill] = [e.data["meta"]["spill"] for e in world.of("tool/result") if "spill" in str(e.data)]
    assert spill["size"] == 5000
    assert (world.path.parent / spill["file"]).read_text() == "x" * 5000
    assert "the first 1000 of 5000 bytes" in str(first.blocks())
    assert "spill" not in second.meta_object()
