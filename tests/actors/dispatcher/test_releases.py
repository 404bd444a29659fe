"""K2 to K6: a body is released by the acknowledgement that covers its call, once, or not at all."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import interlock.actors
import pytest
from interlock.actors.messages import (
    Append,
    Appended,
    BodyFinished,
    Flush,
    Launch,
    Release,
    WorkerReady,
)
from interlock.actors.release import Checkpoint, ReleaseTerms, launch, release
from interlock.actors.roles import Role
from interlock.actors.tools.command import Command
from interlock.actors.tools.identity import CallIdentity
from interlock.actors.tools.outcome import Outcome
from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError

SOURCE = Path(interlock.actors.__path__[0])


def is_flush(message) -> bool:
    """What asks for an acknowledgement of durability."""
    return isinstance(message, Flush) or (isinstance(message, Append) and message.flush)


def acknowledges(message) -> bool:
    return isinstance(message, Appended) and message.durable_seq >= message.last_seq


# K2.


@pytest.mark.parametrize("gates", [False, True])
def test_K2_no_body_before_the_acknowledgement(make, gates):
    world = make(gates=gates)
    world.network.hold = acknowledges
    world.execute(("c1", "act"))
    assert world.bodies["c1"] == []
    assert len(world.network.held) == 1
    world.network.let_go()
    assert world.running("c1").release.call_id == "c1"


@pytest.mark.parametrize("tool", ["act", "ask", "run", "here", "alone"])
def test_K2_the_checkpoint_covers_every_event_of_the_call(make, tool):
    world = make(gates=True)
    person = world.answerer()
    world.execute(("c1", tool))
    if tool == "ask":
        world.answer(person)
    [release] = world.recorded(Launch if tool == "run" else Release)
    last = max(event.seq for event in world.events())
    assert release.checkpoint_seq == last, f"the log has {world.types()}"


def test_K2_an_acknowledgement_that_does_not_reach_the_call_releases_nothing(make):
    world = make(gates=True)
    world.network.hold = lambda m: isinstance(m, Flush)
    rid = world.execute(("c1", "act"))
    [(_, _, flush)] = world.network.held
    world.network.held.clear()
    world.network.hold = lambda _m: False
    short = Appended(flush.rid, "s", -1, 3, 3, "writer-1")
    world.network.send(world.network.owners[Role.WRITER].port, dispatcher_address(world), short)
    world.network.run()
    assert world.bodies["c1"] == []
    outcome = world.result(rid)
    assert outcome.code == Code.CHECKPOINT_FAILED
    assert "reaches event 3" in outcome.message


def test_K2_a_checkpoint_has_to_cover_the_grant_as_well(world):
    person = world.answerer()
    world.network.hold = lambda m: isinstance(m, Flush)
    rid = world.execute(("c1", "ask"))
    world.answer(person)
    [(_, _, flush)] = world.network.held
    world.network.held.clear()
    world.network.hold = lambda _m: False
    granted = world.of("approval/decided")[0].seq
    short = Appended(flush.rid, "s", -1, granted - 1, granted - 1, "writer-1")
    world.network.send(world.network.owners[Role.WRITER].port, dispatcher_address(world), short)
    world.network.run()
    assert world.bodies["c1"] == []
    assert world.result(rid).code == Code.CHECKPOINT_FAILED


def dispatcher_address(world) -> bytes:
    return world.network.address(Role.DISPATCHER)


def test_K2_only_the_release_module_builds_releases_and_only_an_acknowledgement_a_checkpoint():
    """A matter of types, not of discipline: read from the source."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        name = str(path.relative_to(SOURCE))
        built = re.findall(r"(?<![\w.])(?:messages\.)?(Release|Launch)\(", text)
        if name not in ("release.py", "messages.py"):
            # `case Release():` reads one; nothing else may write the name with a parenthesis.
            read = re.findall(r"case (Release|Launch)\(", text)
            assert len(built) == len(read), f"{name} builds {built}"
        made = re.findall(r"(?<!class )\bCheckpoint\(([^)]*)\)", text)
        if name == "dispatcher/log.py":
            assert made == ["acknowledged", "acknowledged"]
        elif name == "dispatcher/pipeline.py":
            assert made == ["reply"]
        elif name != "release.py":
            assert made == [], f"{name} makes a checkpoint of {made}"
        assert "Release.__new__" not in text
        assert "replace(release" not in text


def test_K2_a_checkpoint_is_made_of_an_acknowledgement_only():
    with pytest.raises(TypeError, match="acknowledgement"):
        Checkpoint(True)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("session", "covers", "incarnation", "why"),
    [
        ("other", 5, "w", "session"),
        ("s", 6, "w", "reaches event 5"),
        ("s", 5, "w2", "replaced"),
    ],
)
@pytest.mark.parametrize(
    ("build", "rest"),
    [(release, ("t", b"{}", "token")), (launch, (Command(["x"]), "read-only"))],
)
def test_K2_K6_a_release_is_bound_to_session_prefix_and_life_of_the_writer(
    session, covers, incarnation, why, build, rest
):
    checkpoint = Checkpoint(Appended(1, "s", 5, 5, 5, "w"))
    terms = ReleaseTerms(CallIdentity(session, 1, "c"), 1, "key", 1.0, covers, incarnation, "/")
    with pytest.raises(InterlockError, match=why) as refused:
        build(checkpoint, terms, *rest)
    assert refused.value.code == Code.CHECKPOINT_FAILED


# K3.


@pytest.mark.parametrize("gates", [False, True])
def test_K3_F7_a_checkpoint_that_fails_runs_nothing_and_the_result_says_so(make, gates):
    world = make(gates=gates)
    writer = world.network.owners[Role.WRITER].port
    writer.hold_work = True
    rid = world.execute(("c1", "act"))
    while writer.jobs:
        job = writer.jobs.popleft()
        world.network.called(
            Role.WRITER, lambda job=job: job.fail(OSError(errno.ENOSPC, "No space left"))
        )
        world.network.run()
    outcome = world.result(rid)
    assert outcome.code == Code.CHECKPOINT_FAILED
    assert "No space left" in outcome.message
    assert world.bodies["c1"] == []
    [call], [result] = world.of("tool/call"), world.of("tool/result")
    assert result.sources == (call.seq,)


@pytest.mark.parametrize("gates", [False, True])
def test_K3_a_late_checkpoint_runs_nothing_and_the_result_says_so(make, gates):
    world = make(gates=gates)
    writer = world.network.owners[Role.WRITER].port
    writer.hold_work = True
    rid = world.execute(("c1", "act"))
    world.network.advance(29.0)
    assert world.reply(rid) is None
    world.network.advance(2.0)
    outcome = world.result(rid)
    assert outcome.code == Code.CHECKPOINT_FAILED
    assert "30 s" in outcome.message
    [call], [result] = world.of("tool/call"), world.of("tool/result")
    assert result.sources == (call.seq,)
    assert world.results(rid)[0].seq == result.seq
    writer.hold_work = False
    world.network.called(Role.WRITER, writer.finish_job)
    world.network.run()
    assert world.bodies["c1"] == [], "the acknowledgement came, and came too late"
    assert world.dispatcher().counters()["held_results"] == 0


def test_K3_without_a_writer_nothing_runs(world):
    seq = world.message(("c1", "act"))
    world.network.kill(Role.WRITER)
    world.network.run()
    rid = world.send(lambda rid: world.request(seq))
    assert rid
    [executed] = [m for m in world.host.inbox if type(m).__name__ == "StepExecuted"]
    assert executed.results[0].outcome.code == Code.CHECKPOINT_FAILED
    assert executed.results[0].seq == -1
    assert world.bodies["c1"] == []


# K4.


@pytest.mark.parametrize("gates", [False, True])
def test_K4_cancelled_while_waiting_for_the_acknowledgement_runs_nothing(make, gates):
    world = make(gates=gates)
    world.network.hold = acknowledges
    rid = world.execute(("c1", "act"))
    world.cancel()
    world.network.let_go()
    assert world.result(rid).code == Code.ABORTED_BEFORE_DISPATCH
    assert world.bodies["c1"] == []
    assert world.types() == ["tool/call", "tool/result"]


# K6.


def test_K6_a_duplicate_acknowledgement_releases_nothing_more(world):
    world.execute(("c1", "act"))
    acknowledged = world.recorded(Appended)[-1]
    for _ in range(3):
        port = world.network.owners[Role.WRITER].port
        world.network.send(port, dispatcher_address(world), acknowledged)
    world.network.run()
    assert len(world.recorded(Release)) == 1


@pytest.mark.parametrize("gates", [False, True])
def test_K6_an_acknowledgement_of_an_earlier_life_of_the_writer_releases_nothing(make, gates):
    world = make(gates=gates)
    world.network.hold = acknowledges
    rid = world.execute(("c1", "act"))
    [(_, _, word)] = world.network.held
    world.network.held.clear()
    world.network.hold = lambda _m: False
    world.replace_writer()
    port = world.network.owners[Role.WRITER].port
    world.network.send(port, dispatcher_address(world), word)
    world.network.run()
    assert world.bodies["c1"] == []
    assert world.result(rid).code == Code.CHECKPOINT_FAILED


def test_K6_a_call_that_waited_for_a_worker_while_the_writer_was_replaced_is_not_released(world):
    shared = min(world.spawner.workers)
    world.spawner.silent = True
    world.spawner.kill(shared)
    rid = world.execute(("c1", "act"))
    world.replace_writer()
    worker = world.spawner.workers[max(world.spawner.workers)]
    worker.say(Role.DISPATCHER, WorkerReady(1, True, {}))
    world.network.run()
    assert world.bodies["c1"] == []
    assert world.result(rid).code == Code.CHECKPOINT_FAILED


def test_K6_numbers_of_releases_grow(world):
    world.execute(("c1", "look"), ("c2", "look"), ("c3", "here"), ("c4", "run"))
    for call_id in ("c1", "c2"):
        world.running(call_id).finish()
    world.running("c3").finish()
    numbers = [m.number for m in world.recorded(Release)]
    numbers += [m.number for m in world.recorded(Launch)]
    assert len(numbers) == 4
    assert numbers == sorted(set(numbers))


def test_K6_two_reports_of_one_end_record_one_result(world):
    rid = world.execute(("c1", "act"))
    body = world.running("c1")
    body.finish("first")
    body.finish("second")
    assert world.result(rid).value_object() == "first"
    assert len(world.of("tool/result")) == 1


def test_K6_X3_an_end_that_somebody_else_reports_counts_for_nothing(make):
    world = make(workers=2)
    world.execute(("c1", "act"))
    body = world.running("c1")
    other = next(w for w in world.spawner.workers.values() if w is not body.peer)
    for liar in (other, world.host):
        liar.say(
            Role.DISPATCHER, BodyFinished(body.release.number, Outcome.success("forged"), False)
        )
    world.network.run()
    assert world.of("tool/result") == []


# P9.


def test_P9_the_same_step_again_joins_the_running_one(world):
    rid = world.execute(("c1", "act"))
    again = world.send(lambda rid: world.request(world.seq))
    world.running("c1").finish("once")
    executed = [m for m in world.host.inbox if type(m).__name__ == "StepExecuted"]
    assert len(executed) == 2
    assert executed[0].results == executed[1].results
    assert len(world.recorded(Release)) == 1
    assert rid != again


def test_P9_the_same_step_after_its_end_gets_the_recorded_results(world):
    rid = world.execute(("c1", "act"))
    world.running("c1").finish("once")
    again = world.host.ask(Role.DISPATCHER, world.request(world.seq))
    assert again.results == world.results(rid)
    assert len(world.of("tool/call")) == 1


def test_P9_another_message_of_the_session_is_refused_while_a_step_runs(world):
    """It would replace the running step: nobody could cancel that or wait for it any more."""
    rid = world.execute(("c1", "act"))
    refused = world.host.ask(Role.DISPATCHER, world.request(world.seq + 1))
    assert refused.code == Code.EVENT_INVALID
    world.cancel()
    assert world.running("c1").asked == ["cancelled"]
    world.running("c1").stop()
    assert world.result(rid).code == Code.ABORTED
