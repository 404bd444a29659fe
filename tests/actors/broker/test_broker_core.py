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

    def join(self, name: str, role: Role = Role.ANSWERER, **routes: list[str]) -> VirtualPeer:
        peer = VirtualPeer(self.network, name, role)
        joined = peer.ask(Role.BROKER, BecomeAnswerer(self.rid(), name, **routes))
        assert isinstance(joined, AnswererJoined)
        return peer

    def ask(
        self,
        request: str = "r1",
        *,
        timeout: float = 60.0,
        session: str = "s",
        tool: str = "transfer",
    ) -> AskApproval:
        asked = AskApproval(
            self.rid(), request, session, 4, "c1", tool, "it asks", f"digest {session}", timeout
        )
        self.dispatcher.say(Role.BROKER, asked)
        self.network.run()
        return asked

    def answer(
        self,
        peer: VirtualPeer,
        word: str,
        request: str = "r1",
        note: str = "",
        digest: str = "",
        by: str = "",
    ) -> Any:
        answer = AnswerApproval(self.rid(), request, word, by or peer.name, note, digest)
        return peer.ask(Role.BROKER, answer)

    def shown(self, peer: VirtualPeer) -> list[str]:
        return [m.request for m in peer.got(ApprovalAsked)]

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
    assert (settled.rid, settled.request, settled.digest) == (asked.rid, "r1", "digest s")
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


@pytest.mark.parametrize("end", ["answer", "deadline", "withdrawal", "nobody"])
def test_A2_A8_a_settled_request_that_is_asked_again_gets_its_answer_and_is_not_shown(world, end):
    person = world.join("ada", tools=["transfer"])
    asked = world.ask(tool="transfer" if end != "nobody" else "other", timeout=60.0)
    if end == "answer":
        world.answer(person, "reject", note="no")
    elif end == "deadline":
        world.network.advance(61.0)
    elif end == "withdrawal":
        world.dispatcher.say(Role.BROKER, WithdrawApproval("r1"))
    world.network.run()
    [settled] = world.dispatcher.got(ApprovalSettled)
    shown = len(person.got(ApprovalAsked))
    for _ in range(3):
        world.dispatcher.say(Role.BROKER, asked)
    world.network.run()
    assert len(person.got(ApprovalAsked)) == shown
    assert world.dispatcher.got(ApprovalSettled) == [settled] * 4
    assert not world.answer(person, "allow").taken
    assert world.core.counters()["repeated_requests"] == 3
    assert world.core.counters()["open_approvals"] == 0


def test_A2_only_so_many_settled_requests_are_remembered(world, monkeypatch):
    monkeypatch.setattr("interlock.actors.broker.core.REMEMBERED", 10)
    for number in range(30):
        world.ask(f"r{number}")
    assert len(world.core._done) == 10
    assert list(world.core._done)[-1] == "r29"


def test_P4_a_withdrawal_that_overtakes_its_request_keeps_it_from_being_shown(world):
    person = world.join("ada")
    world.dispatcher.say(Role.BROKER, WithdrawApproval("r1"))
    world.network.run()
    world.ask("r1")
    assert person.got(ApprovalAsked) == []
    assert world.settled() == [("r1", "cancelled", "caller")]


def test_A9_an_answer_to_something_else_than_was_shown_changes_nothing(world):
    person = world.join("ada")
    asked, other = world.ask("r1", session="s"), world.ask("r2", session="t")
    refused = world.answer(person, "allow", "r1", digest=other.digest)
    assert not refused.taken
    assert "something else" in refused.message
    assert world.settled() == []
    assert world.core.counters()["refused_answers"] == 1
    assert world.answer(person, "allow", "r1", digest=asked.digest).taken


def test_A8_an_answer_at_the_deadline_is_late_also_before_the_timer_ran(world):
    person = world.join("ada")
    world.ask(timeout=60.0)
    world.network.now += 60.0
    assert not world.answer(person, "allow").taken
    assert world.settled() == [("r1", "unavailable", "runtime")]


def test_F3_what_an_ended_dispatcher_asked_is_cancelled_and_a_later_answer_changes_nothing(world):
    person = world.join("ada")
    world.ask("r1")
    world.core.peer_lost(Role.DISPATCHER)
    world.network.run()
    assert person.last(ApprovalGone) == ApprovalGone("r1", "cancelled")
    assert not world.answer(person, "allow").taken
    world.dispatcher = VirtualPeer(world.network, "dispatcher-2", Role.DISPATCHER)
    world.ask("r2")
    assert world.answer(person, "allow", "r2").taken


def test_F3_the_end_of_a_dispatcher_that_is_heard_late_cancels_nothing_of_its_successor(world):
    person = world.join("ada")
    world.ask("r1")
    world.dispatcher = VirtualPeer(world.network, "dispatcher-2", Role.DISPATCHER)
    world.ask("r2")
    world.core.peer_lost(Role.DISPATCHER)
    world.network.run()
    assert [m.request for m in person.got(ApprovalGone)] == ["r1"]
    assert world.answer(person, "allow", "r2").taken
    world.ask("r3")
    world.core.peer_lost(Role.DISPATCHER)
    world.network.run()
    assert person.last(ApprovalGone).request == "r3"


def test_A_requests_are_routed_by_session_and_tool(world):
    both = world.join("both", sessions=["prod-*"], tools=["deploy", "roll?ack"])
    tools, sessions = world.join("tools", tools=["pay*"]), world.join("rest", sessions=["dev"])
    every = world.join("every")
    world.ask("r1", session="prod-1", tool="deploy")
    world.ask("r2", session="prod-1", tool="payment")
    world.ask("r3", session="dev", tool="rollback")
    world.ask("r4", session="prod-2", tool="rollback")
    assert world.shown(both) == ["r1", "r4"]
    assert world.shown(tools) == ["r2"]
    assert world.shown(sessions) == ["r3"]
    assert world.shown(every) == ["r1", "r2", "r3", "r4"]
    world.answer(every, "allow", "r1")
    assert [len(p.got(ApprovalGone)) for p in (both, tools, sessions, every)] == [1, 0, 0, 1]


def test_A3_what_no_answerer_takes_is_unavailable_at_once_and_says_why(world):
    world.join("ada", tools=["pay*"])
    world.ask(tool="deploy")
    assert world.settled() == [("r1", "unavailable", "runtime")]
    assert "takes requests of this session and tool" in world.dispatcher.last(ApprovalSettled).note


def test_A_an_answerer_answers_what_it_takes_and_nothing_else(world):
    one, other = world.join("one", sessions=["s"]), world.join("other", sessions=["t"])
    world.ask("r1", session="s")
    for word in ("allow", "reject", "failed"):
        assert not world.answer(other, word).taken
    assert world.settled() == []
    assert world.answer(one, "allow").taken


def test_A3_several_answerers_of_one_connection_fail_one_by_one(world):
    host = world.join("first", Role.HOST)
    host.ask(Role.BROKER, BecomeAnswerer(world.rid(), "second"))
    world.ask()
    assert [m.answerer for m in host.got(ApprovalAsked)] == ["first", "second"]
    world.answer(host, "failed", by="first")
    assert world.settled() == []
    world.answer(host, "failed", by="second")
    assert world.settled() == [("r1", "unavailable", "runtime")]
    host.say(Role.BROKER, LeaveAnswering("first"))
    world.ask("r2")
    assert [m.answerer for m in host.got(ApprovalAsked)][2:] == ["second"]
    host.ask(Role.BROKER, BecomeAnswerer(world.rid(), "second", tools=["other"]))
    world.ask("r3")
    assert world.settled()[-1] == ("r3", "unavailable", "runtime"), "what it takes was changed"


def test_A3_who_was_not_asked_cannot_fail(world):
    one = world.join("one")
    world.ask()
    one.leave()  # A10: it stays open
    passer = VirtualPeer(world.network, "passer", Role.ANSWERER)
    assert not world.answer(passer, "failed").taken
    assert world.settled() == []


def test_X3_a_connection_has_a_bounded_number_of_answerers(world, monkeypatch):
    monkeypatch.setattr("interlock.actors.broker.answerers.MOST", 2)
    peer = world.join("one")
    assert isinstance(peer.ask(Role.BROKER, BecomeAnswerer(50, "two")), AnswererJoined)
    assert isinstance(peer.ask(Role.BROKER, BecomeAnswerer(51, "three")), Refused)
    assert isinstance(peer.ask(Role.BROKER, BecomeAnswerer(52, "two")), AnswererJoined)
    assert world.core.counters()["answerers"] == 2


def test_A10_who_decided_and_its_note_are_bounded_and_on_one_line(world):
    person = world.join("ada")
    world.ask()
    world.answer(person, "reject", by="a\nb" + "x" * 9999, note="n" * 50_000)
    settled = world.dispatcher.last(ApprovalSettled)
    assert settled.by.startswith("answerer:a b")
    assert "\n" not in settled.by
    assert len(settled.by) < 300
    assert len(settled.note) < 2100


def test_stats_count_what_was_asked_and_how_it_ended(world):
    person = world.join("ada")
    world.ask("r1")
    world.ask("r2")
    world.answer(person, "allow", "r2")
    world.network.advance(7.5)
    counters = world.core.counters()
    assert (counters["asked_approvals"], counters["open_approvals"]) == (2, 1)
    assert counters["settled_allowed-once"] == 1
    assert counters["oldest_open_s"] == 7


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
    assert (shown.tool, shown.reason, shown.digest) == ("transfer", "it asks", "digest s")
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
