"""R4 in the dispatcher: retries and reconciliations, and what holds when something fails."""

from __future__ import annotations

import json

import msgspec
import pytest
from dispatcher_world import TOOLS, spec
from interlock.actors.dispatcher.bodies import GRACE
from interlock.actors.messages import (
    CallsResolved,
    DoubtfulCall,
    Reconcile,
    Reconciled,
    Refused,
    Release,
    ResolveCalls,
)
from interlock.actors.roles import Role
from interlock.actors.tools.outcome import Outcome
from interlock.backends.codes import Code
from virtual import VirtualPeer

DONE = Outcome.success({"charged": 5}, meta={"reconciled": "done"})
UNKNOWN = Outcome.success("?", meta={"reconciled": "unknown"})
NOT_DONE = Outcome.success("no such charge", meta={"reconciled": "not-done"})


def recorded(world, name: str = "again", **more) -> DoubtfulCall:
    """A call that an earlier life of the dispatcher recorded; its end is not known."""
    world.start_dispatcher("dispatcher-1", [*TOOLS, PAY, PAY_HERE])
    world.execute(("c1", name), **more)
    assert world.bodies["c1"], "it must have been released"
    world.bodies["c1"].clear()
    world.network.kill(Role.DISPATCHER)
    world.spawner.workers.clear()
    world.network.run()
    world.start_dispatcher("dispatcher-2", [*TOOLS, PAY, PAY_HERE])
    [call] = world.of("tool/call")
    return DoubtfulCall(world.seq, "c1", name, call.seq, 1, 1, b"{}", 1, False, False, False)


PAY = spec("pay", reconciles=True)
PAY_HERE = spec("pay-here", reconciles=True, place="host")


def resolve(world, how: str, *calls: DoubtfulCall) -> int:
    return world.send(ResolveCalls, "s", 7, str(world.root), how, list(calls))


def asked(world) -> tuple[VirtualPeer, Reconcile]:
    peers = [*world.spawner.workers.values(), world.host]
    found = [(peer, m) for peer in peers for m in peer.got(Reconcile)]
    return found[-1]


def answer(world, outcome: Outcome) -> None:
    peer, question = asked(world)
    peer.say(Role.DISPATCHER, Reconciled(question.number, outcome))
    world.network.run()


def outcome_of(world, rid: int) -> str:
    reply = world.reply(rid)
    assert isinstance(reply, CallsResolved), reply
    [call] = reply.calls
    return call.outcome


def result(world):
    [event] = world.of("tool/result")
    return event.data


def test_R4_a_retry_is_released_once_under_a_durable_decision(world):
    call = recorded(world)
    rid = resolve(world, "retry", call)
    body = world.running("c1")
    [settled] = world.of("interlock/settled")
    assert body.release.checkpoint_seq >= settled.seq, "K2: the decision is durable first"
    assert (body.release.attempt, settled.data["attempt"]) == (2, 2)
    body.finish("42")
    assert outcome_of(world, rid) == "done"
    assert result(world)["message"]["content"][0]["content"][0]["text"] == "42"


def test_I2_a_retry_has_the_key_of_the_call(world):
    call = recorded(world)
    resolve(world, "retry", call)
    releases = world.recorded(Release)
    assert [m.attempt for m in releases] == [1, 2]
    assert len({m.idempotency_key for m in releases}) == 1


@pytest.mark.parametrize("name", ["act", "pay"])
def test_R4_a_write_is_not_retried(world, name):
    call = recorded(world, name)
    rid = resolve(world, "retry", call)
    assert world.reply(rid).calls == []
    assert not world.bodies["c1"]
    assert world.of("interlock/settled") == []


def test_R4_a_call_that_made_calls_of_its_own_is_not_retried(world):
    call = msgspec.structs.replace(recorded(world), nested=True)
    assert world.reply(resolve(world, "retry", call)).calls == []


@pytest.mark.parametrize("name", ["pay", "pay-here"])
@pytest.mark.parametrize(
    ("said", "word", "code"),
    [
        (DONE, "done", None),
        (NOT_DONE, "not-done", Code.TOOL_NOT_STARTED),
        (UNKNOWN, "unknown", Code.TOOL_OUTCOME_UNKNOWN),
        (Outcome.failure(Code.TOOL_FAILED, "no network"), "unknown", Code.TOOL_OUTCOME_UNKNOWN),
    ],
)
def test_R4_what_reconcile_finds_is_the_calls_only_result(world, name, said, word, code):
    call = recorded(world, name)
    rid = resolve(world, "reconcile", call)
    _, question = asked(world)
    record = json.loads(question.record)
    assert (record["call_id"], record["tool"], record["attempts"]) == ("c1", name, 1)
    assert record["idempotency_key"] == question.idempotency_key
    assert world.of("interlock/settled") == []
    answer(world, said)
    assert outcome_of(world, rid) == word
    assert result(world).get("error", {}).get("code") == code
    kinds = [event.type for event in world.events()]
    assert kinds.index("interlock/settled") < kinds.index("tool/result")
    assert not world.bodies["c1"], "nothing is run again"


def test_R4_only_who_was_asked_answers(world):
    call = recorded(world, "pay")
    resolve(world, "reconcile", call)
    _, question = asked(world)
    world.host.say(Role.DISPATCHER, Reconciled(question.number, DONE))
    world.network.run()
    assert world.of("tool/result") == []


def test_R4_a_worker_that_dies_while_it_asks_leaves_it_unknown(world):
    call = recorded(world, "pay")
    rid = resolve(world, "reconcile", call)
    peer, _ = asked(world)
    world.spawner.exit(world.spawner.pid_of(peer), "it was killed")
    world.network.run()
    assert outcome_of(world, rid) == "unknown"
    assert result(world)["error"]["code"] == Code.TOOL_OUTCOME_UNKNOWN


def test_R4_P5_a_question_without_an_answer_ends_with_its_time(world):
    call = recorded(world, "pay")
    rid = resolve(world, "reconcile", call)
    world.network.advance(PAY.timeout + 10)
    assert outcome_of(world, rid) == "unknown"
    assert "did not answer" in result(world)["message"]["content"][0]["content"][0]["text"]


def test_P4_a_cancelled_resolution_releases_nothing(world):
    call = recorded(world, "pay")
    rid = resolve(world, "reconcile", call)
    peer, question = asked(world)
    world.cancel("c1")
    world.network.advance(GRACE + 1)
    assert outcome_of(world, rid) == "unknown"
    peer.say(Role.DISPATCHER, Reconciled(question.number, DONE))
    world.network.run()
    assert result(world)["error"]["code"] == Code.TOOL_OUTCOME_UNKNOWN, "A8: too late"


def test_F1_the_host_dies_while_a_retry_runs_and_its_result_is_recorded(world):
    call = recorded(world)
    resolve(world, "retry", call)
    body = world.running("c1")
    world.network.lose_host()
    body.finish("late")
    assert result(world)["message"]["content"][0]["content"][0]["text"] == "late"


def test_P9_one_resolution_of_a_session_at_a_time(world):
    call = recorded(world)
    resolve(world, "retry", call)
    again = resolve(world, "retry", call)
    assert world.reply(again).calls == []
    assert len(world.bodies["c1"]) == 1


def test_X4_only_who_has_the_session_open_decides_about_its_calls(world):
    call = recorded(world)
    client = VirtualPeer(world.network, "client", Role.CLIENT)
    reply = client.ask(Role.DISPATCHER, ResolveCalls(1, "s", 7, "/", "retry", [call]))
    assert isinstance(reply, Refused)
    assert not world.bodies["c1"]


def test_R4_an_outcome_that_comes_too_late_for_its_step_is_told(world):
    call = msgspec.structs.replace(recorded(world, "pay"), recorded=True)
    rid = resolve(world, "reconcile", call)
    answer(world, DONE)
    [resolved] = world.reply(rid).calls
    assert resolved.outcome == "done"
    assert "'c1'" in resolved.text
    assert '"charged":5' in resolved.text.replace(" ", "")
    [settled] = world.of("interlock/settled")
    assert settled.data["text"] == resolved.text
    assert world.of("tool/result") == [], "the past is not rewritten"


def test_K3_without_a_durable_decision_nothing_is_retried(world):
    call = recorded(world)
    world.network.kill(Role.WRITER)
    resolve(world, "retry", call)
    world.network.run()
    assert not world.bodies["c1"]
