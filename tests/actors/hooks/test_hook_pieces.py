"""What each shipped piece means, and that pieces together give the strictest answer (P2)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from interlock.actors import Ask, Budget, Deny, LoopDetector, Only, RateLimit, ResultLimit
from interlock.actors.hooks.earlier import Earlier
from interlock.actors.hooks.judge import Judge
from interlock.actors.hooks.matching import Facts
from interlock.actors.hooks.pieces import AnyPiece
from interlock.actors.runtime.config import make_config
from interlock.actors.tools.gates import Verdict

ALLOW, ASK, CANCEL, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.CANCEL, Verdict.DENY


class Calls:
    """Calls that are judged one after the other, each with an id of its own."""

    def __init__(self, *gates: AnyPiece, guards: tuple[AnyPiece, ...] = ()) -> None:
        self.judge = Judge(gates, guards)
        self.number = 0
        self.last: Facts | None = None

    def __call__(
        self,
        tool: str = "pay",
        arguments: Any = None,
        *,
        argv: list[str] | None = None,
        now: float = 1000.0,
        session: str = "s",
        turn: int = 1,
        released: bool | None = None,
    ) -> Verdict:
        self.number += 1
        raw = json.dumps(arguments or {}).encode()
        self.last = Facts(session, turn, (1, f"c{self.number}"), tool, raw, argv)
        if self.judge.needs_earlier(session):
            self.judge.note(session, [], now)
        said = self.judge.gates(self.last, now)
        self.reason = said.reason
        done = said.verdict is ALLOW if released is None else released
        self.judge.ended(self.last, released=done)
        return said.verdict


# Deny, Ask: by tool and argument.


@pytest.mark.parametrize(
    ("piece", "tool", "arguments", "closed"),
    [
        (Deny("delete_*"), "delete_file", {}, True),
        (Deny("delete_*"), "undelete_file", {}, False),
        (Deny("delete_*"), "Delete_file", {}, False),
        (Deny(["a", "b?"]), "b1", {}, True),
        (Deny("get", where={"url": "*://10.*"}), "get", {"url": "http://10.0.0.1/"}, True),
        (Deny("get", where={"url": "*://10.*"}), "get", {"url": "http://11.0.0.1/"}, False),
        (Deny("get", where={"url": "*"}), "get", {}, False),
        (Deny("get", where={"url": ["a", "b"], "how": "x"}), "get", {"url": "b", "how": "x"}, True),
        (
            Deny("get", where={"url": ["a", "b"], "how": "x"}),
            "get",
            {"url": "b", "how": "y"},
            False,
        ),
        (Deny(where={"to.name": "root"}), "get", {"to": {"name": "root"}}, True),
        (Deny(where={"to.name": "root"}), "get", {"to.name": "root"}, True),
        (Deny(where={"to.name": "root"}), "get", {"to": "root"}, False),
        (Deny(where={"paths": "*.pem"}), "get", {"paths": ["a.txt", "b.pem"]}, True),
        (Deny(where={"n": "7"}), "get", {"n": 7}, True),
        (Deny(where={"flag": "true"}), "get", {"flag": True}, True),
        (Deny("pay", above={"cents": 100}), "pay", {"cents": 101}, True),
        (Deny("pay", above={"cents": 100}), "pay", {"cents": 100}, False),
        (Deny("pay", above={"cents": 100}), "pay", {"cents": "9"}, True),
        (Deny("pay", above={"cents": 100}), "pay", {}, False),
        (Deny("pay", above={"cents": 100}), "pay", {"cents": [1, 200]}, True),
    ],
)
def test_a_list_matches_tools_and_arguments(piece, tool, arguments, closed):
    assert Calls(piece)(tool, arguments) is (DENY if closed else ALLOW)
    asks = Ask(piece.tool, piece.where, piece.above)
    assert Calls(asks)(tool, arguments) is (ASK if closed else ALLOW)


@pytest.mark.parametrize(
    ("argv", "closed"),
    [
        (["rm", "-rf", "x"], True),
        (["/bin/rm", "-rf", "x"], True),
        (["./rm", "-rf", "/"], True),
        (["rm", "x"], False),
        (["rmdir", "-rf"], False),
        (["cp", "rm", "-rf"], False),
    ],
)
def test_a_list_matches_programs_by_any_path_and_words_in_any_place(argv, closed):
    gate = Calls(Deny("run", program="rm", words=["-*r*"]))
    assert gate("run", argv=argv) is (DENY if closed else ALLOW)
    assert gate("run") is ALLOW, "it is no command"


SPELLINGS = [
    ["/tmp/git", "status"],
    ["./git", "status"],
    ["../bin/git"],
    ["Git"],
    ["git "],
    ["env", "git", "status"],
    ["sh", "-c", "git status; rm -rf /"],
    ["bash", "-lc", "git status"],
    ["/bin/sh", "-c", "git"],
    ["sudo", "git", "status"],
    ["/usr/bin/sudo", "git"],
    ["xargs", "git"],
    ["nice", "git"],
    ["timeout", "5", "git"],
    ["git\n"],
    ["git;rm"],
    ["git\trm"],
    ["gi\u0074\u200b"],
    ["python3", "-c", "import os; os.system('git')"],
    ["busybox", "git"],
]


@pytest.mark.parametrize("argv", SPELLINGS, ids=map(str, SPELLINGS))
def test_no_other_spelling_gets_past_a_list_of_what_may_go_on(argv):
    gate = Calls(Only(["run"], programs=["git"], otherwise="ask"))
    assert gate("run", argv=["git", "status"]) is ALLOW
    assert gate("run", argv=argv) is ASK


def test_only_closes_every_tool_and_argument_that_it_does_not_list():
    gate = Calls(Only(["read_*", "list"], where={"path": "/work/*"}))
    assert gate("read_file", {"path": "/work/a"}) is ALLOW
    assert gate("read_file") is ALLOW
    assert gate("read_file", {"path": "/etc/passwd"}) is DENY
    assert gate("read_file", {"path": ["/work/a", "/etc/passwd"]}) is DENY
    assert gate("write_file", {"path": "/work/a"}) is DENY


# Rates, budgets, loops.


def test_a_rate_counts_released_calls_in_a_moving_window():
    gate = Calls(RateLimit(3, 60.0, "pay*"))
    assert [gate(now=1000.0 + t) for t in (0, 10, 20)] == [ALLOW] * 3
    assert gate(now=1030.0) is DENY
    assert "can be made in 30.0 s" in gate.reason
    assert gate("look", now=1030.0) is ALLOW
    assert gate(now=1060.5) is ALLOW, "the first has left the window, and the refused never counted"
    assert gate(now=1061.0) is DENY
    assert gate(now=1071.0) is ALLOW


def test_a_rate_is_of_one_session_or_of_all():
    one, all_of_them = Calls(RateLimit(1, 60.0)), Calls(RateLimit(1, 60.0, scope="runtime"))
    for gate, other in ((one, ALLOW), (all_of_them, DENY)):
        assert gate(session="s") is ALLOW
        assert gate(session="s") is DENY
        assert gate(session="t") is other


def test_a_call_that_was_not_released_costs_nothing():
    gate = Calls(Budget(10, amount="cents"), RateLimit(1, 60.0))
    for _ in range(5):
        assert gate(arguments={"cents": 10}, released=False) is ALLOW
    assert gate(arguments={"cents": 10}) is ALLOW
    assert gate(arguments={"cents": 1}) is DENY


def test_calls_that_run_at_the_same_time_share_the_rest_of_a_budget():
    judge = Judge([Budget(10, amount="cents")])
    judge.note("s", [], 0.0)
    facts = [Facts("s", 1, (1, f"c{n}"), "pay", b'{"cents":6}') for n in range(3)]
    first, second = (judge.gates(f, 1.0).verdict for f in facts[:2])
    assert (first, second) == (ALLOW, DENY)
    judge.ended(facts[1], released=False)
    judge.ended(facts[0], released=False)  # its approval was rejected
    assert judge.gates(facts[2], 2.0).verdict is ALLOW


@pytest.mark.parametrize("cost", [-1, "5", True, None, [1]])
def test_a_cost_that_is_no_number_or_refills_the_budget_is_denied(cost):
    gate = Calls(Budget(10, amount="cents"))
    assert gate(arguments={"cents": cost}) is DENY
    assert gate(arguments={"cents": 10}) is ALLOW


def test_a_budget_without_an_amount_counts_calls_and_may_ask_beyond_it():
    gate = Calls(Budget(2, "pay", otherwise="ask"))
    assert [gate() for _ in range(3)] == [ALLOW, ALLOW, ASK]
    assert "2 calls of 2 are used up" in gate.reason


def test_a_loop_is_the_same_call_within_a_turn_in_any_spelling():
    gate = Calls(LoopDetector(2))
    same = [{"a": 1, "b": [1, {"c": 2, "d": 3}]}, {"b": [1, {"d": 3, "c": 2}], "a": 1}]
    assert [gate(arguments=same[n % 2]) for n in range(4)] == [ALLOW, ALLOW, DENY, DENY]
    assert "made 3 times in this turn already" in gate.reason
    assert gate(arguments={"a": 2}) is ALLOW
    assert gate("other", same[0]) is ALLOW
    assert gate(arguments=same[0], session="t") is ALLOW
    assert gate(arguments=same[0], turn=2) is ALLOW


# Together.


def test_P2_answers_fold_to_the_strictest_whatever_the_order():
    pieces = [Ask("pay", reason="ask"), Budget(1, otherwise="cancel"), Deny("pay", reason="no")]
    for order in (pieces, pieces[::-1]):
        gate = Calls(*order)
        assert gate() is DENY
        assert gate.reason == "no"
    gate = Calls(pieces[0], pieces[1])
    assert [gate(released=True), gate(released=True)] == [ASK, CANCEL]


def test_P2_a_piece_that_fails_denies(monkeypatch):
    def broken(*_: object) -> bool:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("interlock.actors.hooks.judge.means", broken)
    gate = Calls(Ask("pay"))
    assert gate() is DENY
    assert "broken inside" in gate.reason


def test_P2_a_guard_only_closes():
    judge = Judge(guards=[Only(["look"]), Budget(1)])
    facts = Facts("s", 1, (1, "c1"), "look", b"{}")
    assert judge.guards(facts, 0.0).verdict is ALLOW
    assert judge.guards(Facts("s", 1, (1, "c2"), "pay", b"{}"), 0.0).verdict is DENY


def test_earlier_calls_are_counted_as_if_this_life_had_led_them():
    def earlier(number: int, age: float, *, ran: bool = True) -> Earlier:
        return Earlier((9, f"e{number}"), 1, "pay", '{"cents": 4}', age, ran)

    calls = [earlier(1, 500.0), earlier(2, 30.0), earlier(3, 20.0, ran=False), earlier(4, 10.0)]
    for piece, verdict in [
        (RateLimit(3, 60.0), ALLOW),
        (RateLimit(2, 60.0), DENY),
        (Budget(13, amount="cents"), ALLOW),
        (Budget(12, amount="cents"), DENY),
        (LoopDetector(5), ALLOW),
        (LoopDetector(4), DENY),
    ]:
        judge = Judge([piece])
        assert judge.needs_earlier("s")
        judge.note("s", calls, 1000.0)
        assert not judge.needs_earlier("s")
        arguments = b'{"cents":4}' if isinstance(piece, LoopDetector) else b'{"cents":1}'
        facts = Facts("s", 1, (20, "c1"), "pay", arguments)
        assert judge.gates(facts, 1000.0).verdict is verdict, piece


def test_what_only_matches_needs_no_log():
    assert not Judge([Deny("x"), Only(["y"])]).needs_earlier("s")


def test_only_so_many_sessions_are_kept_and_none_with_a_call_under_way(monkeypatch):
    monkeypatch.setattr("interlock.actors.hooks.judge.KEPT", 3)
    judge = Judge([Budget(1)])
    busy = Facts("busy", 1, (1, "c"), "pay", b"{}")
    judge.note("busy", [], 0.0)
    judge.gates(busy, 0.0)
    for number in range(10):
        judge.note(f"s{number}", [], 0.0)
    assert [f"s{n}" for n in range(10) if not judge.needs_earlier(f"s{n}")] == ["s7", "s8", "s9"]
    assert not judge.needs_earlier("busy")
    judge.ended(busy, released=True)
    judge.note("s10", [], 0.0)
    assert judge.needs_earlier("busy")


def test_the_smallest_result_limit_that_means_a_tool_holds():
    judge = Judge(
        hooks=[ResultLimit(9000, "run*"), ResultLimit(4000, "run_tests"), ResultLimit(99999)]
    )
    assert [judge.result_limit(t) for t in ("run", "run_tests", "x")] == [9000, 4000, 99999]
    assert Judge().result_limit("x") is None


# As data, and as what a runtime is given.


@pytest.mark.parametrize(
    "piece",
    [
        Deny("a", {"x": "y"}, {"n": 1.5}, "rm", ["-f"], "why"),
        Ask(["a", "b"]),
        Only(["a"], {"x": ["y"]}, ["git"], "ask", "why"),
        RateLimit(1, 2.5, "a", "runtime", "cancel"),
        Budget(5.5, "a", "cents", "session", "ask"),
        LoopDetector(4),
        ResultLimit(1000, "a"),
    ],
)
def test_a_piece_travels(piece):
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(piece), type=AnyPiece) == piece


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Deny(7), TypeError),
        (lambda: Deny(where=["x"]), TypeError),
        (lambda: Deny(above={"x": "many"}), TypeError),
        (lambda: Only([7]), TypeError),
        (lambda: Only(["a"], otherwise="allow"), ValueError),
        (lambda: RateLimit(0, 1.0), ValueError),
        (lambda: RateLimit(1.5, 1.0), ValueError),
        (lambda: RateLimit(1, float("inf")), TypeError),
        (lambda: RateLimit(1, 1.0, scope="agent"), ValueError),
        (lambda: Budget(-1), ValueError),
        (lambda: LoopDetector(True), TypeError),
        (lambda: ResultLimit(0), ValueError),
    ],
)
def test_a_piece_that_cannot_be_meant_is_refused_where_it_is_made(make, error):
    with pytest.raises(error):
        make()


def test_a_runtime_takes_pieces_and_functions_and_refuses_what_is_out_of_place():
    def mine(_call):
        return None

    config = make_config(
        "/tmp/x", gates=[mine, Deny("a")], guards=[Budget(1)], hooks=[ResultLimit(9)]
    )
    assert config.gates == (mine,)
    assert (config.guards, config.hooks) == ((), ())
    assert config.pieces == ([Deny("a")], [Budget(1)], [ResultLimit(9)])
    for wrong in (
        {"guards": [Ask("a")]},
        {"guards": [Budget(1, otherwise="ask")]},
        {"hooks": [Deny("a")]},
        {"gates": [ResultLimit(9)]},
    ):
        with pytest.raises(ValueError, match=r"only gates|does not belong"):
            make_config("/tmp/x", **wrong)
    with pytest.raises(TypeError, match="neither"):
        make_config("/tmp/x", gates=["deny"])
