"""F1, F2, F3, F5, L16 in the dispatcher: what holds when others end, and when it ends itself."""

from __future__ import annotations

import pytest
from dispatcher_world import ended
from interlock.actors.messages import (
    Appended,
    ApprovalAsked,
    CancelBody,
    JudgeCall,
    Judged,
    OpenSession,
    Release,
    SessionSettled,
    SettleSession,
    Shutdown,
    Stopped,
    WireCall,
)
from interlock.actors.roles import Role
from interlock.backends.codes import Code
from interlock.backends.reading import read_log
from log_words import note, step_end
from virtual import VirtualPeer


def recorded(world) -> dict[str, str | None]:
    """The code of each call's result in the file."""
    results = [e.data for e in read_log(world.path).events if e.type == "tool/result"]
    return {
        data["message"]["source"]["callId"]: data.get("error", {}).get("code") for data in results
    }


# F1: the embedding process ends.


def test_F1_released_bodies_run_on_and_waiting_calls_are_aborted(world):
    world.execute(("c1", "act"), ("c2", "act"))
    body = world.running("c1")
    world.network.lose_host()
    world.network.run()
    assert Role.DISPATCHER in world.network.owners
    assert body.asked == []
    body.finish("real")
    assert world.bodies["c2"] == []
    assert recorded(world) == {"c1": None, "c2": Code.ABORTED_BEFORE_DISPATCH}
    assert world.network.owners == {}, "no process stays"
    assert world.spawner.workers == {}


def test_F1_host_bodies_died_with_it(world):
    world.execute(("c1", "here"))
    world.network.lose_host()
    world.network.run()
    assert recorded(world) == {"c1": Code.TOOL_OUTCOME_UNKNOWN}
    assert world.network.owners == {}


def test_F1_a_call_that_waits_for_a_person_is_not_started(world):
    world.answerer()
    world.execute(("c1", "ask"))
    world.network.lose_host()
    world.network.run()
    assert recorded(world) == {"c1": Code.ABORTED_BEFORE_DISPATCH}


def test_F1_a_running_command_ends_first(world):
    world.execute(("c1", "run"))
    [command] = world.runner.commands
    world.network.lose_host()
    world.network.run()
    assert command.cancels == []
    world.network.called(Role.LAUNCHER, lambda: command.ended(ended(command.launch)))
    world.network.run()
    assert recorded(world) == {"c1": None}
    assert world.network.owners == {}


def test_F1_a_body_gets_no_further_than_its_deadline(world):
    world.execute(("c1", "quick"))
    world.network.lose_host()
    world.network.advance(10.0)
    assert recorded(world) == {"c1": Code.TOOL_TIMEOUT}
    assert world.network.owners == {}


def test_F1_a_running_body_starts_no_nested_call_any_more(world):
    world.execute(("c1", "act"))
    body = world.running("c1")
    world.network.lose_host()
    world.network.run()
    body.call("look")
    assert body.nested().outcome.code == Code.ABORTED_BEFORE_DISPATCH
    assert len(world.recorded(Release)) == 1
    body.finish()
    assert world.network.owners == {}


def test_F1_a_nested_call_that_waits_for_a_person_is_not_released(world):
    world.answerer()
    world.execute(("c1", "act"))
    body = world.running("c1")
    body.call("ask")
    world.network.lose_host()
    world.network.run()
    assert body.nested().outcome.code == Code.ABORTED_BEFORE_DISPATCH
    assert body.asked == [], "the outer body runs on"
    body.finish()
    assert recorded(world) == {"c1": None}


def test_F1_nothing_new_is_taken(world):
    world.execute(("c1", "act"))
    client = VirtualPeer(world.network, "client", Role.CLIENT)
    world.network.lose_host()
    world.network.run()
    refused = client.ask(Role.DISPATCHER, world.request(world.seq + 1))
    assert refused.code == Code.ABORTED_BEFORE_DISPATCH
    world.running("c1").finish()
    assert len(world.recorded(Release)) == 1


def test_F1_nor_does_a_body_of_a_client_that_has_gone(world):
    world.answerer()
    world.execute(("c1", "act"))
    body = world.running("c1")
    body.call("ask", sub=1)
    gone = world.dispatcher().client_gone(world.host.key)
    world.network.run()
    assert body.nested(1).outcome.code == Code.ABORTED_BEFORE_DISPATCH
    body.call("look", sub=2)
    assert body.nested(2).outcome.code == Code.ABORTED_BEFORE_DISPATCH
    assert len(world.recorded(Release)) == 1
    assert not gone.done, "what was released runs on"
    body.finish("recorded")
    assert gone.done
    assert len(world.of("tool/result")) == 1


# F2: the writer is replaced.


def test_F2_a_result_that_came_while_there_was_no_writer_is_recorded_when_it_is_reopened(world):
    world.execute(("c1", "act"))
    world.replace_writer()
    world.running("c1").finish("kept")
    assert world.dispatcher().counters()["held_results"] == 1
    opened, rid = world.reopen()
    assert [call.call_id for call in opened.unanswered] == ["c1"]
    settled = world.reply(rid)
    assert isinstance(settled, SessionSettled)
    assert settled.recorded == ["c1"]
    [result] = world.of("tool/result")
    assert "kept" in result.raw.decode()
    assert result.sources == (world.of("tool/call")[0].seq,)
    assert world.dispatcher().counters()["held_results"] == 0


def test_F2_a_held_result_cites_the_record_that_the_log_has_after_all(world):
    """The record was durable; only the word of it was lost with the writer."""
    world.network.hold = lambda m: isinstance(m, Appended) and m.first_seq > 3
    rid = world.execute(("c1", "act"))
    world.replace_writer()
    assert world.result(rid).code == Code.CHECKPOINT_FAILED
    world.network.hold = lambda _m: False
    opened, settling = world.reopen()
    [unanswered] = opened.unanswered
    assert world.reply(settling).recorded == ["c1"]
    assert world.of("tool/result")[0].sources == (unanswered.call_seq,)


def test_F2_settling_waits_for_bodies_that_still_run(world):
    world.execute(("c1", "act"))
    world.replace_writer()
    _, rid = world.reopen()
    assert world.reply(rid) is None
    world.running("c1").finish("in the end")
    assert world.reply(rid) is not None
    assert "in the end" in world.of("tool/result")[0].raw.decode()


def test_F2_settling_starts_nothing_more(make):
    world = make(gates=True)
    asked: list[JudgeCall] = []
    world.judge = asked.append
    world.execute(("c1", "act"))
    world.append(note(), flush=True)
    world.replace_writer()
    _, rid = world.reopen()
    world.host.say(Role.DISPATCHER, Judged(asked[0].rid, "allow", ""))
    world.network.run()
    assert world.reply(rid) is not None
    assert world.bodies["c1"] == []
    [result] = world.of("tool/result")
    assert result.data["error"]["code"] == Code.ABORTED_BEFORE_DISPATCH


def test_F2_K2_a_call_whose_record_was_lost_is_not_released_under_what_came_in_its_place(make):
    """The new log is as long as the old one was, and has other events where the record stood."""
    world = make(gates=True)
    asked: list[JudgeCall] = []
    world.judge = asked.append
    seq = world.message(("c1", "act"))
    world.append(note(), flush=True)
    world.host.say(Role.DISPATCHER, world.request(seq))
    world.network.run()
    assert len(world.of("tool/call")) == 1
    world.replace_writer()
    world.host.ask(Role.WRITER, OpenSession(world.rid(), "s"))
    assert world.of("tool/call") == []
    world.append(note("a"), note("b"), note("c"), flush=True)
    world.host.say(Role.DISPATCHER, Judged(asked[0].rid, "allow", ""))
    world.network.run()
    assert world.bodies["c1"] == []


def test_F2_a_result_whose_call_the_log_lost_is_not_invented(make):
    world = make(gates=True)
    world.judge = lambda m: None
    seq = world.message(("c1", "act"))
    world.append(note(), flush=True)
    world.host.say(Role.DISPATCHER, world.request(seq))
    world.network.run()
    world.replace_writer()
    opened, rid = world.reopen()
    assert [(call.call_id, call.call_seq) for call in opened.unanswered] == [("c1", None)]
    assert world.reply(rid).recorded == []
    assert world.of("tool/result") == []


def test_F2_settling_a_session_that_nothing_is_held_of_is_done_at_once(world):
    rid = world.send(SettleSession, "other", [])
    assert world.reply(rid) == SessionSettled(rid, "other", [])


# F3: an earlier life of the dispatcher recorded the call.


def test_F3_a_call_that_an_earlier_dispatcher_recorded_is_not_run_again(world):
    world.execute(("c1", "act"), ("c2", "look"))
    [call] = world.of("tool/call")
    world.network.kill(Role.DISPATCHER)
    world.network.run()
    world.start_dispatcher("dispatcher-2")
    released = len(world.recorded(Release))
    calls = [WireCall("c1", "act", b"{}", started_seq=call.seq), WireCall("c2", "look", b"{}")]
    request = world.request(world.seq, calls=calls)
    world.host.say(Role.DISPATCHER, request)
    world.network.run()
    world.running("c2").finish()
    first, second = world.results(request.rid)
    assert first.outcome.code == Code.TOOL_OUTCOME_UNKNOWN
    assert "Do not repeat it blindly" in first.outcome.message
    assert second.outcome.ok
    assert len(world.recorded(Release)) == released + 1
    assert world.of("tool/result")[0].sources == (call.seq,)


@pytest.mark.parametrize(("granted", "code"), [
    (False, Code.TOOL_NOT_STARTED), (True, Code.TOOL_OUTCOME_UNKNOWN)
])  # fmt: skip
def test_F3_A4_R6_what_an_earlier_dispatcher_asked_is_decided_and_says_whether_it_ran(
    world, granted, code
):
    person = world.answerer()
    world.execute(("c1", "ask"))
    if granted:
        world.answer(person)
    started = world.of("tool/call")[0].seq
    [request] = [e.data["id"] for e in world.of("approval/asked")]
    world.network.kill(Role.DISPATCHER)
    world.network.run()
    world.start_dispatcher("dispatcher-2")
    left = WireCall("c1", "ask", b"{}", started, [] if granted else [request], not granted)
    again = world.request(world.seq, calls=[left])
    world.host.say(Role.DISPATCHER, again)
    world.network.run()
    assert world.result(again.rid).code == code
    [decided] = world.of("approval/decided")
    assert decided.data == {"id": request, "outcome": "allowed-once" if granted else "cancelled"}
    assert len(person.got(ApprovalAsked)) == 1
    world.append(step_end(world.step))  # the turn goes on


def test_F3_K6_numbers_grow_from_one_life_of_the_dispatcher_to_the_next(world):
    """A late report of an earlier life's host body must not be taken for that of a new one."""
    world.execute(("c1", "here"))
    old = world.running("c1")
    world.network.kill(Role.DISPATCHER)
    world.network.advance(0.5)
    world.start_dispatcher("dispatcher-2")
    world.append(note())
    calls = [WireCall("c1", "here", b"{}", world.of("tool/call")[0].seq)]
    world.host.ask(Role.DISPATCHER, world.request(world.seq, calls=calls))
    world.append(step_end(world.step))
    world.next_step()
    rid = world.execute(("c2", "here"))
    new = world.running("c2")
    assert new.release.number > old.release.number
    old.finish("of the earlier life")
    assert world.reply(rid) is None
    new.finish("its own")
    assert world.result(rid).value_object() == "its own"


# F5: the launcher ends.


def test_F5_commands_of_a_lost_launcher_are_unknown_and_later_ones_run(world):
    rid = world.execute(("c1", "run"), ("c2", "act"))
    world.network.kill(Role.LAUNCHER)
    world.network.run()
    world.running("c2").finish()
    first, second = (r.outcome for r in world.results(rid))
    assert first.code == Code.TOOL_OUTCOME_UNKNOWN
    assert "launcher" in first.message
    assert second.ok


def test_F5_without_a_launcher_nothing_runs_and_the_result_says_so(world):
    world.network.kill(Role.LAUNCHER)
    world.network.run()
    rid = world.execute(("c1", "run"))
    assert world.result(rid).code == Code.SANDBOX_UNAVAILABLE


# L16: an orderly end.


def test_L16_a_shutdown_asks_bodies_to_stop_and_records_them(world):
    world.execute(("c1", "act"), ("c2", "act"))
    rid = world.send(Shutdown, 5.0)
    assert world.running("c1").asked == ["cancelled"]
    assert world.reply(rid) is None
    world.running("c1").stop()
    assert isinstance(world.reply(rid), Stopped)
    codes = [e.data["error"]["code"] for e in world.of("tool/result")]
    assert codes == [Code.ABORTED, Code.ABORTED_BEFORE_DISPATCH]
    assert world.spawner.workers == {}


@pytest.mark.parametrize("tool", ["act", "here", "alone"])
def test_L16_after_the_grace_bodies_are_ended_and_their_calls_unknown(world, tool):
    world.execute(("c1", tool))
    rid = world.send(Shutdown, 5.0)
    world.network.advance(4.0 if tool != "alone" else 0.0)
    assert world.reply(rid) is None
    world.network.advance(6.0)
    assert isinstance(world.reply(rid), Stopped)
    [result] = world.of("tool/result")
    assert result.data["error"]["code"] == Code.TOOL_OUTCOME_UNKNOWN


def test_L16_after_the_grace_commands_are_killed(world):
    world.execute(("c1", "run"))
    [command] = world.runner.commands
    rid = world.send(Shutdown, 5.0)
    world.network.advance(6.0)
    assert command.cancels == [False, True]
    end = ended(command.launch, status="cancelled", exit_code=None)
    world.network.called(Role.LAUNCHER, lambda: command.ended(end))
    world.network.run()
    assert isinstance(world.reply(rid), Stopped)
    assert [m.kill for m in world.recorded(CancelBody)] == [False, True]


def test_L16_nothing_is_started_while_it_ends(world):
    world.execute(("c1", "act"))
    world.send(Shutdown, 5.0)
    refused = world.host.ask(Role.DISPATCHER, world.request(world.seq + 7))
    assert refused.code == Code.ABORTED_BEFORE_DISPATCH
