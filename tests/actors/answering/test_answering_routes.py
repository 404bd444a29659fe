"""What a runtime takes as its answerers, and the functions among them."""

from __future__ import annotations

import threading

import pytest
from interlock.actors import Route
from interlock.actors.answering.route import make_routes
from interlock.actors.messages import AnswerApproval, ApprovalAsked, Widening
from interlock.actors.runtime.callbacks import Callbacks


def ask_me(request):
    return True


def test_one_function_is_the_callback_and_several_have_names_of_their_own():
    assert list(make_routes(ask_me)[0]) == ["callback"]
    several = [ask_me, ask_me, lambda _: False, Route(ask_me, name="ops")]
    routes, waits = make_routes(several)
    assert list(routes) == ["ask_me", "ask_me-2", "answerer", "ops"]
    assert not waits


@pytest.mark.parametrize(
    ("given", "names", "waits"),
    [(None, [], False), ("external", [], True), ([ask_me, "external"], ["ask_me"], True)],
)
def test_requests_wait_for_somebody_from_outside_only_where_that_is_said(given, names, waits):
    routes, waiting = make_routes(given)
    assert (list(routes), waiting) == (names, waits)


@pytest.mark.parametrize(
    ("given", "error", "word"),
    [
        ("terminal", ValueError, "'terminal'"),
        ([ask_me, 7], TypeError, "int"),
        (Route(ask_me, tools="pay*"), TypeError, "list of patterns"),
        ([Route(ask_me, name="a"), Route(ask_me, name="a")], ValueError, "two answerers"),
    ],
)
def test_what_is_no_answerer_is_refused_and_named(given, error, word):
    with pytest.raises(error, match=word):
        make_routes(given)


class Desk:
    """The functions, and what they said to the broker."""

    def __init__(self, given):
        self.said = []
        self.heard = threading.Semaphore(0)
        self.callbacks = Callbacks(make_routes(given)[0], self._tell)

    def _tell(self, _role, message):
        self.said.append(message)
        self.heard.release()

    def ask(self, request, answerer="callback", **more):
        shown = ApprovalAsked(
            request, "s", 3, "c1", "pay", "why", "digest", 60.0, answerer=answerer, **more
        )
        self.callbacks.asked(shown)

    def answer(self) -> AnswerApproval:
        assert self.heard.acquire(timeout=30)
        return self.said.pop(0)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (True, "allow"),
        ("allow", "allow"),
        (False, "reject"),
        ("reject", "reject"),
        (None, "failed"),
        (1, "failed"),
        ("yes", "failed"),
        (["allow"], "failed"),
    ],
)
def test_A3_what_is_not_clearly_an_answer_is_none(said, answer):
    desk = Desk(lambda _: said)
    desk.ask("r1")
    word = desk.answer()
    assert (word.request, word.answer, word.by, word.digest) == ("r1", answer, "callback", "digest")


def test_A3_a_function_that_raises_has_not_answered():
    def broken(_):
        raise SystemExit("no")

    desk = Desk(broken)
    desk.ask("r1")
    assert desk.answer().answer == "failed"


def test_an_async_function_decides_as_well():
    async def think(request):
        return request.tool == "pay"

    desk = Desk(think)
    desk.ask("r1")
    assert desk.answer().answer == "allow"


def test_S4_a_function_is_shown_the_wider_mode_and_why():
    seen = []
    desk = Desk(lambda request: seen.append(request) or True)
    desk.ask("r1", widening=Widening("read-only", "workspace-write", "to build"), nested=".1")
    desk.answer()
    [request] = seen
    assert (request.mode_from, request.mode_to) == ("read-only", "workspace-write")
    assert (request.justification, request.nested) == ("to build", ".1")
    assert 0 < request.remaining <= 60


def test_a_function_that_blocks_keeps_no_other_from_deciding():
    go = threading.Event()

    def slow(_):
        go.wait(30)
        return False

    desk = Desk([Route(slow, name="slow"), Route(ask_me, name="quick")])
    for number in range(100):
        desk.ask(f"r{number}", "slow")
    desk.ask("r0", "quick")
    assert desk.answer().by == "quick"
    go.set()


@pytest.mark.parametrize("how", ["settled elsewhere", "broker lost"])
def test_A8_a_request_that_is_gone_before_its_turn_is_not_thought_about(monkeypatch, how):
    monkeypatch.setattr("interlock.actors.runtime.callbacks.THREADS", 1)
    go, begun, thought = threading.Event(), threading.Event(), []

    def slow(request):
        thought.append(request.request)
        begun.set()
        go.wait(30)
        return True

    desk = Desk(slow)
    desk.ask("r1")
    desk.ask("r2")
    assert begun.wait(30)
    if how == "broker lost":
        desk.callbacks.broker_lost()
    else:
        desk.callbacks.gone("r2")
    desk.ask("r3")
    go.set()
    assert {desk.answer().request, desk.answer().request} == {"r1", "r3"}
    assert thought == ["r1", "r3"]
