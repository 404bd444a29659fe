"""P5 to P8: how bodies end, by themselves and otherwise, and what is said of it."""

from __future__ import annotations

import pytest
from dispatcher_world import ended, spec
from interlock.actors.dispatcher.bodies import GRACE
from interlock.actors.messages import BodyProgress, BuildCommand, CallProgress, Release, WorkerReady
from interlock.actors.roles import Role
from interlock.actors.tools.fit import INLINE_LIMIT
from interlock.actors.tools.outcome import Outcome
from interlock.backends.codes import Code
from interlock.backends.event import draft
from log_words import step_end

UNKNOWN = "Whether it had its effect is unknown"


# P5: timeouts.


def test_P5_a_timeout_asks_and_a_grace_later_gives_up(world):
    rid = world.execute(("c1", "quick"))
    body = world.running("c1")
    world.network.advance(4.9)
    assert body.asked == []
    world.network.advance(0.2)
    assert body.asked == ["timeout"]
    assert world.reply(rid) is None
    world.network.advance(GRACE)
    outcome = world.result(rid)
    assert outcome.code == Code.TOOL_TIMEOUT
    assert "5 s" in outcome.message
    assert "may still be running" in outcome.message
    assert UNKNOWN in outcome.message


def test_P5_every_call_has_a_deadline(world):
    rid = world.execute(("c1", "act"))
    world.network.advance(599.0)
    assert world.running("c1").asked == []
    world.network.advance(4.0)
    assert world.result(rid).code == Code.TOOL_TIMEOUT


@pytest.mark.parametrize(
    ("tool", "says"),
    [("act", UNKNOWN), ("again", "declared idempotent"), ("look", "can be called again")],
)
def test_P5_R4_the_words_follow_the_declared_effect(world, tool, says):
    rid = world.execute(("c1", tool))
    world.network.advance(600.0)
    world.running("c1").stop()
    outcome = world.result(rid)
    assert outcome.code == Code.TOOL_TIMEOUT
    assert says in outcome.message
    if tool == "look":
        assert "unknown" not in outcome.message


def test_P5_a_body_that_ends_in_the_grace_still_timed_out_and_what_it_said_is_kept(world):
    rid = world.execute(("c1", "quick"))
    world.network.advance(5.1)
    world.running("c1").finish("late value")
    outcome = world.result(rid)
    assert outcome.code == Code.TOOL_TIMEOUT
    assert "late value" in outcome.message
    assert outcome.meta_object()["late_value"] == "late value"


def test_P5_P7_a_huge_late_value_does_not_end_up_in_the_log(world):
    rid = world.execute(("c1", "quick"))
    world.network.advance(5.1)
    world.running("c1").finish("x" * (2 * INLINE_LIMIT))
    assert world.result(rid).code == Code.TOOL_TIMEOUT
    assert max(len(event.raw) for event in world.events()) <= INLINE_LIMIT


def test_P5_an_isolated_body_is_ended_with_its_process_after_the_grace(world):
    rid = world.execute(("c1", "alone"))
    pid = world.spawner.pid_of(world.running("c1").peer)
    world.network.advance(60.1)
    assert world.spawner.killed == []
    world.network.advance(GRACE)
    assert world.spawner.killed == [pid]
    assert world.result(rid).code == Code.TOOL_TIMEOUT


def test_P5_no_call_is_ended_for_the_timeout_of_another(make):
    world = make()
    world.start_dispatcher(
        "dispatcher-2",
        [spec("slow", parallel=True, timeout=100.0), spec("short", parallel=True, timeout=5.0)],
    )
    rid = world.execute(("c1", "short"), ("c2", "slow"), ("c3", "slow"))
    stuck, other = world.running("c1"), world.running("c2")
    assert stuck.peer is other.peer
    pid = world.spawner.pid_of(stuck.peer)
    world.network.advance(5.0 + GRACE + 0.1)
    assert world.spawner.killed == [], "the other has time left"
    other.finish("in time")
    assert world.spawner.killed == [], "and so has the third"
    world.running("c3").finish("in time")
    assert [r.outcome.code for r in world.results(rid)] == [Code.TOOL_TIMEOUT, None, None]
    assert world.spawner.killed == [pid], "then its process is ended"


def test_P5_a_worker_with_a_stuck_body_takes_no_new_ones(world):
    world.execute(("c1", "quick"), ("c2", "look"))
    old = world.running("c1").peer
    world.network.advance(5.0 + GRACE + 0.1)
    assert world.running("c2").peer is not old


def test_P5_a_timeout_after_a_cancellation_is_a_timeout(world):
    rid = world.execute(("c1", "quick"))
    world.cancel()
    world.network.advance(5.0 + GRACE + 0.1)
    assert world.result(rid).code == Code.TOOL_TIMEOUT


def test_P4_P5_a_cancellation_in_the_grace_does_not_hide_the_timeout(world):
    rid = world.execute(("c1", "quick"))
    world.network.advance(5.1)
    world.cancel()
    world.running("c1").finish("late")
    assert world.result(rid).code == Code.TOOL_TIMEOUT


def test_P5_a_launcher_that_says_nothing_does_not_hold_a_call_for_ever(world):
    rid = world.execute(("c1", "run"))
    world.network.advance(605.0)
    assert world.reply(rid) is None, "it asks, waits its own grace and reports"
    world.network.advance(6.0)
    assert world.result(rid).code == Code.TOOL_OUTCOME_UNKNOWN


# P6: workers that die.


def test_P6_F6_a_body_whose_worker_dies_is_unknown_with_the_way_it_died(world):
    rid = world.execute(("c1", "act"), ("c2", "here"))
    pid = world.spawner.pid_of(world.running("c1").peer)
    world.spawner.exit(pid, "the worker process that ran it was ended by signal 11 (SIGSEGV)")
    world.network.run()
    world.running("c2").finish()
    first, second = (r.outcome for r in world.results(rid))
    assert first.code == Code.TOOL_OUTCOME_UNKNOWN
    assert "SIGSEGV" in first.message
    assert UNKNOWN in first.message
    assert second.ok


def test_P6_every_body_of_the_worker_is_told_and_another_worker_takes_over(world):
    rid = world.execute(("c1", "look"), ("c2", "look"), ("c3", "act"))
    world.spawner.exit(world.spawner.pid_of(world.running("c1").peer), "exit status 3")
    world.network.run()
    world.running("c3").finish()
    codes = [r.outcome.code for r in world.results(rid)]
    assert codes == [Code.TOOL_OUTCOME_UNKNOWN, Code.TOOL_OUTCOME_UNKNOWN, None]


def test_P6_what_a_dead_worker_said_last_counts_if_it_came_first(world):
    rid = world.execute(("c1", "act"))
    body = world.running("c1")
    body.finish("said")
    world.spawner.exit(world.spawner.pid_of(body.peer), "exit status 0")
    world.network.run()
    assert world.result(rid).value_object() == "said"


def test_P6_workers_that_cannot_be_started_end_the_calls_that_wait(world):
    world.spawner.broken = True
    world.spawner.kill(min(world.spawner.workers))
    rid = world.execute(("c1", "act"))
    assert world.result(rid).code == Code.TOOL_NOT_STARTED
    assert "no worker process can be started" in world.result(rid).message


def test_P6_a_later_call_tries_again_to_start_a_worker(world):
    world.spawner.broken = True
    world.spawner.kill(min(world.spawner.workers))
    rid = world.execute(("c1", "act"), ("c2", "act"))
    world.network.run()
    assert [r.outcome.code for r in world.results(rid)] == [Code.TOOL_NOT_STARTED] * 2
    world.spawner.broken = False
    world.append(step_end(world.step))
    world.next_step()
    rid = world.execute(("c3", "act"))
    world.running("c3").finish()
    assert world.result(rid).ok


def test_a_tool_that_the_worker_could_not_load_is_said_to_be_broken(world):
    world.spawner.unloadable = {"act": "no module named x"}
    world.spawner.kill(min(world.spawner.workers))
    rid = world.execute(("c1", "act"), ("c2", "look"))
    world.running("c2").finish()
    first, second = (r.outcome for r in world.results(rid))
    assert first.code == Code.TOOL_FAILED
    assert "no module named x" in first.message
    assert second.ok


def test_a_worker_whose_connection_is_gone_is_passed_over(make):
    world = make(workers=2)
    first = world.spawner.workers[min(world.spawner.workers)]
    first.leave()
    world.execute(("c1", "act"))
    assert world.running("c1").peer is not first


# P7: results.


def test_P7_a_large_result_is_spilled_beside_the_log(world):
    rid = world.execute(("c1", "act"))
    text = "x" * (INLINE_LIMIT + 1)
    world.running("c1").finish(text)
    [event] = world.of("tool/result")
    spill = event.data["meta"]["spill"]
    assert spill["size"] == len(text)
    world.append(draft("app/note", {}, ignorable=True), flush=True)
    assert (world.path.parent / spill["file"]).read_text() == text
    assert world.result(rid).ok


def test_P7_a_report_that_is_no_result_becomes_a_clear_error(world):
    rid = world.execute(("c1", "act"))
    world.running("c1").end(Outcome(ok=True, value=b"{not json"))
    assert world.result(rid).code == Code.TOOL_FAILED
    assert len(world.of("tool/result")) == 1


def test_P7_a_result_that_the_log_refuses_becomes_a_clear_error(world):
    rid = world.execute(("c1", "act"), ("c2", "act"))
    world.running("c1").end(Outcome.success("x", content=[{"no": "type"}]))
    world.running("c2").finish()
    first, second = world.results(rid)
    assert first.outcome.code == Code.TOOL_FAILED
    assert first.seq == world.of("tool/result")[0].seq
    assert second.outcome.ok
    assert world.dispatcher().counters()["held_results"] == 0


def test_P7_a_failing_command_with_much_output_does_not_swell_the_log(world):
    rid = world.execute(("c1", "run"))
    [command] = world.runner.commands
    noise = "x" * (2 * INLINE_LIMIT)
    world.network.called(
        Role.LAUNCHER, lambda: command.ended(ended(command.launch, exit_code=1, stdout=noise))
    )
    world.network.run()
    assert world.result(rid).code == Code.TOOL_FAILED
    assert max(len(event.raw) for event in world.events()) <= INLINE_LIMIT


# P8: what a timeout counts.


def test_P8_waiting_for_a_person_does_not_count(make):
    world = make(approval_timeout=10_000.0)
    world.start_dispatcher("dispatcher-2", [spec("ask", approval="ask", timeout=5.0)])
    person = world.answerer()
    rid = world.execute(("c1", "ask"))
    world.network.advance(1000.0)
    world.answer(person)
    world.network.advance(4.0)
    world.running("c1").finish()
    assert world.result(rid).ok


def test_P8_waiting_for_a_worker_or_the_disk_does_not_count(world):
    world.spawner.silent = True
    world.spawner.kill(min(world.spawner.workers))
    writer = world.network.owners[Role.WRITER].port
    writer.hold_work = True
    rid = world.execute(("c1", "quick"))
    world.network.advance(20.0)
    writer.hold_work = False
    world.network.called(Role.WRITER, writer.finish_job)
    world.network.run()
    world.network.advance(20.0)
    worker = world.spawner.workers[max(world.spawner.workers)]
    worker.say(Role.DISPATCHER, WorkerReady(1, True, {}))
    world.network.advance(4.0)
    world.running("c1").finish()
    assert world.result(rid).ok


def test_P8_the_body_is_told_its_whole_timeout(world):
    world.execute(("c1", "quick"))
    [release] = world.recorded(Release)
    assert release.timeout == 5.0


# Commands (S5) and progress.


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({}, None),
        ({"exit_code": 2}, Code.TOOL_FAILED),
        ({"status": "signalled", "exit_code": None, "signal": 9}, Code.TOOL_FAILED),
        ({"status": "timeout", "exit_code": None}, Code.TOOL_TIMEOUT),
        ({"status": "denied", "exit_code": 1, "evidence": "write /etc"}, Code.SANDBOX_DENIED),
        ({"status": "sandbox-failed", "exit_code": None}, Code.SANDBOX_UNAVAILABLE),
        ({"status": "not-found", "exit_code": None}, Code.TOOL_FAILED),
    ],
)
def test_S5_how_a_command_ended_is_told_by_its_status(world, how, code):
    rid = world.execute(("c1", "run"))
    [command] = world.runner.commands
    world.network.called(Role.LAUNCHER, lambda: command.ended(ended(command.launch, **how)))
    world.network.run()
    assert world.result(rid).code == code


def test_S1_S2_a_result_says_how_completely_its_command_was_confined(world):
    rid = world.execute(("c1", "run"))
    [command] = world.runner.commands
    end = ended(command.launch, enforcement="partial", gaps=["processes"])
    world.network.called(Role.LAUNCHER, lambda: command.ended(end))
    world.network.run()
    sandbox = world.result(rid).meta_object()["sandbox"]
    assert (sandbox["enforcement"], sandbox["gaps"]) == ("partial", ["processes"])
    assert sandbox["mode"] == "workspace-write"


def test_S10_a_body_outside_the_sandbox_says_so(world):
    rid = world.execute(("c1", "act"))
    world.running("c1").finish()
    assert world.result(rid).meta_object() == {"place": "worker", "confined": False}


def test_progress_goes_to_whoever_asked_and_only_from_the_body_itself(world):
    world.execute(("c1", "act"))
    body = world.running("c1")
    body.peer.say(Role.DISPATCHER, BodyProgress(body.release.number, b'"half"'))
    world.network.run()
    assert world.host.last(CallProgress).data == b'"half"'
    body.finish()
    body.peer.say(Role.DISPATCHER, BodyProgress(body.release.number, b'"late"'))
    world.network.run()
    assert len(world.host.got(CallProgress)) == 1


def test_P6_a_builder_that_dies_with_its_worker_has_built_nothing(world):
    world.build = lambda _message: None
    rid = world.execute(("c1", "run"))
    [pid] = [pid for pid, worker in world.spawner.workers.items() if worker.got(BuildCommand)]
    world.spawner.exit(pid, "it was killed")
    world.network.run()
    assert world.result(rid).code == Code.TOOL_FAILED
    assert world.runner.commands == []
