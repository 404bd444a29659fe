"""The decisions of the approval broker: A2, A3, A6, A8, A10."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from interlock.actors.broker.core import BrokerCore
from interlock.actors.messages import (
    AnswerApproval,
    AnswererJoined,
    ApprovalAsked,
    ApprovalGone,
    ApprovalList,
    ApprovalSettled,
    AskApproval,
    BecomeAnswerer,
    ExecuteStep,
    LeaveAnswering,
    ListApprovals,
    Refused,
    Shutdown,
    Stopped,
    WithdrawApproval,
)
from interlock.actors.roles import Role
from virtual import Network, VirtualPeer


class BrokerWorld:
    """A broker and a dispatcher that the test leads."""

    def __init__(self, *, waits: bool = False) -> None:
        self.network = Network()
        self.core: BrokerCore = self.network.start(
            Role.BROKER, lambda p: BrokerCore(p, p.end, waits=waits), "b"
        )
        self.dispatcher = VirtualPeer(self.network, "dispatcher", Role.DISPATCHER)
        self._rid = 0

    def rid(self) -> int:
        self._rid += 1
        return self._rid

    def join(self, name: str, role: Role = Role.ANSWERER) -> VirtualPeer:
        peer = VirtualPeer(self.network, name, role)
        assert isinstance(peer.ask(Role.BROKER, BecomeAnswerer(1, name)), AnswererJoined)
        return peer

    def ask(self, request: str = "r1", *, timeout: float = 60.0) -> AskApproval:
        asked = AskApproval(
            self.rid(), request, "s", 4, "c1", "transfer", "it asks", "digest", timeout
        )
        self.dispatcher.say(Role.BROKER, asked)
        self.network.run()
        return asked

    def answer(self, peer: VirtualPeer, word: str, request: str = "r1", note: str = "") -> Any:
        answer = AnswerApproval(self.rid(), request, word, peer.name, note)
        return peer.ask(Role.BROKER, answer)

    def settled(self) -> list[tuple[str, str, str]]:
        return [(m.request, m.outcome, m.by) for m in self.dispatcher.got(ApprovalSettled)]


@pytest.fixture
def make() -> Callable[..., BrokerWorld]:
    return BrokerWorld


@pytest.fixture
def world() -> BrokerWorld:
    return BrokerWorld()


@pytest.mark.parametrize(("word", "outcome"), [("allow", "allowed-once"), ("reject", "rejected")])
def test_A2_A10_the_first_answer_settles_and_says_who_gave_it(world, word, outcome):
    person = world.join("ada")
    asked = world.ask()
    assert world.answer(person, word, note="because").taken
    [settled] = world.dispatcher.got(ApprovalSettled)
    assert (settled.rid, settled.request, settled.digest) == (asked.rid, "r1", "digest")
    assert (settled.outcome, settled.by, settled.note) == (outcome, "answerer:ada", "because")


def test_A2_A8_of_several_answerers_the_first_decides_and_the_others_are_told(world):
    one, other = world.join("one"), world.join("other", Role.HOST)
    world.ask()
    assert len(one.got(ApprovalAsked)) == len(other.got(ApprovalAsked)) == 1
    assert world.answer(other, "reject").taken
    late = world.answer(one, "allow")
    assert not late.taken
    assert "settled already" in late.message
    assert world.settled() == [("r1", "rejected", "host:other")]
    assert one.last(ApprovalGone) == ApprovalGone("r1", "rejected")
    assert world.core.counters()["late_answers"] == 1


def test_A2_there_is_no_standing_permission(world):
    person = world.join("ada")
    world.ask("r1")
    world.answer(person, "allow", "r1")
    world.ask("r2")
    assert world.settled() == [("r1", "allowed-once", "answerer:ada")]


def test_A2_the_same_request_again_is_shown_once_and_settled_once(world):
    person = world.join("ada")
    asked = world.ask()
    world.dispatcher.say(Role.BROKER, asked)
    world.network.run()
    assert len(person.got(ApprovalAsked)) == 1
    world.answer(person, "allow")
    assert len(world.settled()) == 1


@pytest.mark.parametrize("word", ["yes", "", "ALLOW", "allowed-once"])
def test_A2_an_unknown_word_decides_nothing(world, word):
    person = world.join("ada")
    world.ask()
    refused = world.answer(person, word)
    assert not refused.taken
    assert "use one of allow, reject" in refused.message
    assert world.settled() == []
    assert world.answer(person, "allow").taken


def test_A3_without_an_answerer_it_is_unavailable_at_once(world):
    world.ask()
    assert world.settled() == [("r1", "unavailable", "runtime")]


def test_A3_the_deadline_settles_as_unavailable_and_not_as_rejected(world):
    person = world.join("ada")
    world.ask(timeout=60.0)
    world.network.advance(59.9)
    assert world.settled() == []
    world.network.advance(0.2)
    assert world.settled() == [("r1", "unavailable", "runtime")]
    assert not world.answer(person, "allow").taken
    assert len(world.settled()) == 1


def test_A3_an_answerer_that_failed_does_not_decide_but_another_may(world):
    one, other = world.join("one"), world.join("other")
    world.ask()
    assert world.answer(one, "failed").taken
    assert world.settled() == []
    assert world.answer(other, "allow").taken
    assert world.settled() == [("r1", "allowed-once", "answerer:other")]


def test_A3_when_all_have_failed_it_is_unavailable(world):
    one, other = world.join("one"), world.join("other")
    world.ask()
    world.answer(one, "failed")
    world.answer(other, "failed")
    assert world.settled() == [("r1", "unavailable", "runtime")]


@pytest.mark.parametrize("how", ["leaves", "is cut off"])
def test_A10_an_answerer_that_goes_away_does_not_answer(world, how):
    one = world.join("one")
    world.ask()
    if how == "leaves":
        one.say(Role.BROKER, LeaveAnswering())
    else:
        one.leave()
    world.network.advance(30.0)
    assert world.settled() == [], "it stays open for others until the deadline"
    other = world.join("other")
    assert [m.request for m in other.got(ApprovalAsked)] == ["r1"]
    assert world.answer(other, "allow").taken


def test_A10_one_that_went_away_is_not_asked_again(world):
    one = world.join("one")
    one.leave()
    world.ask()
    assert world.settled() == [("r1", "unavailable", "runtime")]
    assert world.core.counters()["answerers"] == 0


def test_waiting_for_an_answerer_keeps_a_request_open_until_its_deadline(make):
    world = make(waits=True)
    world.ask("r1", timeout=60.0)
    world.ask("r2", timeout=60.0)
    world.network.advance(30.0)
    assert world.settled() == []
    person = world.join("ada")
    assert [m.request for m in person.got(ApprovalAsked)] == ["r1", "r2"]
    assert person.last(ApprovalAsked).remaining == pytest.approx(30.0)
    world.answer(person, "allow", "r2")
    world.network.advance(31.0)
    assert world.settled() == [
        ("r2", "allowed-once", "answerer:ada"),
        ("r1", "unavailable", "runtime"),
    ]


def test_A6_what_is_shown_names_the_call_and_has_no_arguments(world):
    person = world.join("ada")
    world.ask()
    [shown] = person.got(ApprovalAsked)
    assert (shown.session, shown.message_seq, shown.call_id) == ("s", 4, "c1")
    assert (shown.tool, shown.reason, shown.digest) == ("transfer", "it asks", "digest")
    assert "arguments" not in ApprovalAsked.__struct_fields__


def test_the_list_has_the_open_requests_oldest_first(world):
    person = world.join("ada")
    for name in ("r1", "r2", "r3"):
        world.ask(name)
    world.answer(person, "reject", "r2")
    listed = person.ask(Role.BROKER, ListApprovals(world.rid()))
    assert isinstance(listed, ApprovalList)
    assert [m.request for m in listed.requests] == ["r1", "r3"]


def test_P4_a_withdrawn_request_is_cancelled_once(world):
    person = world.join("ada")
    world.ask()
    for _ in range(2):
        world.dispatcher.say(Role.BROKER, WithdrawApproval("r1"))
    world.network.run()
    assert world.settled() == [("r1", "cancelled", "caller")]
    assert not world.answer(person, "allow").taken


def test_A3_L16_a_shutdown_settles_what_is_open(world):
    world.join("ada")
    world.ask()
    host = VirtualPeer(world.network, "host", Role.HOST)
    assert isinstance(host.ask(Role.BROKER, Shutdown(1, 0.0)), Stopped)
    assert world.settled() == [("r1", "unavailable", "runtime")]


def test_F1_without_a_host_there_is_nothing_to_ask_for(world):
    world.network.lose_host()
    world.network.run()
    assert Role.BROKER not in world.network.owners


def test_X4_a_client_and_a_worker_answer_nothing(world):
    for role in (Role.CLIENT, Role.WORKER, Role.WRITER, Role.LAUNCHER, Role.DISPATCHER):
        liar = VirtualPeer(world.network, f"liar-{role}", role)
        with pytest.raises(ValueError, match="not allowed"):
            world.answer(liar, "allow")


def test_X3_what_the_broker_has_no_use_for_is_refused(world):
    host = VirtualPeer(world.network, "host", Role.HOST)
    step = ExecuteStep(5, "s", 0, "/", 1, 1, 0, [])
    assert isinstance(host.ask(Role.BROKER, step), Refused)
