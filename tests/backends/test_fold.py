"""L1: the log's own grammar, one broken rule at a time."""

from __future__ import annotations

import pytest
from interlock.backends.errors import LogError
from interlock.backends.event import Draft, draft
from interlock.backends.fold import LogFold
from interlock.backends.grammar import NOT_STARTED_TEXT

REQUEST = {"provider": "p", "model": "m"}


def _fold(*drafts: Draft) -> LogFold:
    fold = LogFold()
    for one in drafts:
        fold.admit([one], 1)
    return fold


def _refused(fold: LogFold, *drafts: Draft) -> str:
    with pytest.raises(LogError) as caught:
        fold.admit(drafts, 1)
    assert caught.value.code == "EVENT_INVALID"
    assert caught.value.details["seq"] == fold.next_seq + len(drafts) - 1
    return caught.value.message


def _not_started(call_id: str, seq: int, *, text: str = NOT_STARTED_TEXT, id_seq=None) -> Draft:
    message = {
        "id": f"interrupted-tool-result-{call_id}-{seq if id_seq is None else id_seq}",
        "role": "user",
        "source": {"kind": "tool", "callId": call_id},
        "content": [
            {
                "type": "tool-result",
                "toolCallId": call_id,
                "isError": True,
                "content": [{"type": "text", "text": text}],
            }
        ],
    }
    error = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    data = {"turn": 1, "step": 1, "message": message, "error": error}
    return draft("tool/result", data, surface_op="append")


def test_L1_seqs_are_contiguous_from_zero_and_time_is_the_writers(say):
    fold = LogFold()

    first = fold.admit([say.turn(), say.step()], 41)
    second = fold.admit([say.step_end()], 42)

    assert [(e.seq, e.time) for e in (*first, *second)] == [(0, 41), (1, 41), (2, 42)]
    assert (fold.next_seq, fold.last_time, fold.turn, fold.step) == (3, 42, 1, None)


def test_L1_an_append_is_all_or_none(say):
    fold = _fold(say.turn(), say.step(), say.system("head"), say.user("a"))
    before = _state(fold)

    run = {"commandId": "x", "name": "n", "source": {"kind": "user"}}
    nested = {"rootCallId": "c1", "parentCallId": "c1", "subCallId": "c1:1", "name": "n"}
    dispatch = draft("tool/ptc-dispatch-start", nested | {"arguments": {}})
    swap = say.system("new", say.replace(2, 2), (2,))
    message = _refused(
        fold,
        swap,
        say.user("b"),
        say.message("c1"),
        say.call("c1"),
        say.asked("q"),
        draft("command/run", run),
        dispatch,
        say.turn(2),
    )

    assert "turn/start at seq 11" in message
    assert _state(fold) == before
    assert [e.seq for e in fold.admit([say.user("b"), say.message("c1")], 1)] == [4, 5]


def test_L1_an_append_without_replacements_is_undone_as_well(say):
    fold = _fold(say.turn(), say.step())
    before = _state(fold)
    _refused(fold, say.system("head"), say.user("x"), say.step())
    assert _state(fold) == before
    # What was undone must not count as a first surface event or as somebody's message.
    fold.admit([say.system("head")], 1)
    assert fold.head == 2
    assert not fold.is_user_message(3)


def _state(fold: LogFold) -> dict[str, object]:
    names = [name for cls in type(fold).__mro__ for name in getattr(cls, "__slots__", ())]
    state = {name: getattr(fold, name) for name in names if name != "surface"}
    surface = fold.surface
    held = (len(surface), surface.head, surface.first_type, list(surface._seqs))
    return {name: _copy(value) for name, value in state.items()} | {"surface": held}


def _copy(value):
    return (
        value.copy()
        if isinstance(value, dict)
        else list(value)
        if hasattr(value, "typecode")
        else value
    )


@pytest.mark.parametrize(
    ("setup", "bad", "rule"),
    [
        ("", "turn(2)", "next turn is 1"),
        ("turn", "turn(2)", "still open"),
        ("turn turn_end", "turn(1)", "next turn is 2"),
        ("", "turn_end", "not open"),
        ("turn", "turn_end(2)", "not open"),
        ("turn step", "turn_end", "step 1 is still open"),
        ("", "step", "not open"),
        ("turn", "step(2)", "next step"),
        ("turn step", "step(2)", "still open"),
        ("turn step step_end", "step(1)", "next step"),
        ("turn", "step_end", "not open"),
        ("turn step message('c')", "step_end", "'c' has no result"),
        ("turn step message('c') call('c')", "step_end", "'c' has no result"),
        ("turn", "message('c')", "not open"),
        ("turn step", "message('c', 'c')", "twice"),
        ("turn step message('c')", "message('c')", "twice"),
        ("turn step message('c') call('c') result('c',3)", "message('c')", "twice"),
        ("turn step message('c')", "call('d')", "advertised"),
        ("turn step message('c') call('c')", "call('c')", "already recorded"),
        ("turn step message('c')", "call('c',arguments='[]')", "other arguments"),
        ("turn step message('c')", "call('c',name='other')", "another name"),
        ("turn step message('c')", "result('c',2)", "not recorded"),
        ("turn step message('c') call('c')", "result('d',3)", "advertised"),
        ("turn step message('c') call('c')", "result('c',2)", "cite"),
        ("turn step message('c') call('c') result('c',3)", "result('c',3)", "already has"),
        ("", "asked('a')", "no turn"),
        ("turn asked('a')", "asked('a')", "already open"),
        ("turn", "decided('a','rejected')", "no open approval"),
        ("turn asked('a') decided('a','rejected')", "decided('a','rejected')", "no open approval"),
        ("writer turn asked('a')", "turn_end", "'a' is not decided"),
        ("turn", "system('s')", "not open"),
        ("turn step user('u')", "system('s')", "first surface event"),
        ("turn step system('s')", "user('u', op=(2,2), sources=(2,))", "system head"),
        ("turn step system('s')", "system('t', op=(2,2))", "omit"),
        ("turn step system('s') user('u')", "system('t', op=(2,3), sources=(2,3))", "exactly"),
        ("turn step user('u')", "user('v', op=(2,2), sources=(1,))", "omit"),
        ("turn step user('u')", "user('v', op=(1,2), sources=(1,2))", "no span"),
        ("turn step user('u') user('v')", "user('w', op=(3,2), sources=(2,3))", "no span"),
    ],
)
def test_L1_a_broken_rule_is_refused_and_named(say, setup, bad, rule):
    def user(text, op=None, sources=None):
        made = say.user(text)
        operation = say.replace(*op) if op else "append"
        return Draft(made.type, made.data, False, operation, sources)

    def system(text, op=None, sources=None):
        return say.system(text, say.replace(*op) if op else "append", sources)

    names = vars(say) | {"user": user, "system": system}

    def parse(word):
        value = eval(word, {}, names)
        return value if isinstance(value, Draft) else value()

    words = setup.replace(", ", ",").split()
    fold = _fold(*map(parse, words))

    assert rule in _refused(fold, parse(bad))


@pytest.mark.parametrize(
    ("good", "change"),
    [
        (True, {}),
        (True, {"id_seq": 4}),  # as migration leaves it: renumbered, its message id kept
        (False, {"text": "Something else."}),
        (False, {"id_seq": "04"}),
    ],
)
def test_L1_an_unstarted_call_takes_only_the_exact_repair(say, good, change):
    fold = _fold(say.turn(), say.step(), say.message("c"))
    if good:
        fold.admit([_not_started("c", 3, **change), say.step_end()], 1)
        assert fold.step is None
    else:
        assert "not recorded" in _refused(fold, _not_started("c", 3, **change))


@pytest.mark.parametrize(
    ("kind", "data", "more"),
    [
        ("turn/start", {"turn": 1, "trigger": {}}, {}),
        ("turn/start", {}, {}),
        ("turn/start", {"turn": True}, {}),
        ("turn/start", {"turn": 1}, {"surface_op": "append"}),
        ("turn/start", {"turn": 1}, {"sources": (0,)}),
        ("approval/policy", {"policy": "always"}, {}),
        ("sandbox/mode", {"mode": "none"}, {}),
        ("user/message", {"id": "", "role": "user", "content": [], "source": {"kind": "user"}}, {}),
        ("user/message", {"id": "a", "role": "user", "content": [], "source": {"kind": "no"}}, {}),
        ("no/such", {}, {}),
        ("interlock/notice", {}, {}),
        ("tool/code-dispatch", {}, {}),
        ("assistant/chunk", {}, {}),
        (
            "request/header",
            {"header": {"config": REQUEST, "tools": []}},
            {},
        ),
        ("session/title", {"title": "t", "messageSeqs": [], "source": {"kind": "fallback"}}, {}),
    ],
)
def test_L1_a_payload_with_other_members_is_refused(kind, data, more):
    _refused(LogFold(), draft(kind, data, **more))


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"turn":NaN}', b"\xff"])
def test_L1_a_payload_that_is_no_object_is_refused(raw):
    _refused(LogFold(), Draft("turn/start", raw))


def test_an_unknown_type_is_kept_where_it_is_marked_ignorable():
    fold = LogFold()
    [event] = fold.admit([draft("acme/custom", {"x": 1}, ignorable=True)], 1)
    assert (event.seq, event.ignorable, event.data) == (0, True, {"x": 1})


def test_a_payload_over_several_lines_becomes_one():
    fold = LogFold()
    [event] = fold.admit([Draft("turn/start", b'{\n  "turn": 1\r\n}')], 1)
    assert event.raw == b'{"turn":1}'


def test_P9_a_call_id_may_come_again_in_a_later_step(say):
    fold = _fold(say.turn(), say.step(), say.message("c"), say.call("c"), say.result("c", 3))
    fold.admit([say.step_end(), say.step(2), say.message("c", step=2)], 1)
    [call] = fold.calls
    assert (call.call_id, call.message_seq, call.call_seq) == ("c", 7, None)


def test_the_fold_keeps_calls_in_model_order_and_their_approvals(say):
    fold = _fold(
        say.turn(),
        say.step(),
        say.message("b", "a"),
        say.call("b"),
        say.call("a"),
        say.asked("q1", "a"),
        say.asked("q2", "b"),
        say.decided("q1", "allowed-once"),
        say.result("a", 4),
    )
    b, a = fold.calls
    assert (b.call_id, b.call_seq, b.result_seq, b.asked, b.granted) == ("b", 3, None, ("q2",), ())
    assert (a.call_id, a.call_seq, a.result_seq, a.granted) == ("a", 4, 8, ("q1",))
    assert [approval.id for approval in fold.open_approvals] == ["q2"]


def test_the_last_policy_and_mode_win(say):
    fold = _fold(
        draft("approval/policy", {"policy": "never"}),
        draft("approval/policy", {"policy": "ask"}),
        draft("sandbox/mode", {"mode": "read-only"}),
    )
    assert (fold.approval_policy, fold.sandbox_mode) == ("ask", "read-only")


def test_interlock_wrote_what_follows_its_mark_until_another_program_takes_over(say):
    fold = _fold(say.note(), say.writer(), say.note(), say.writer(), say.note())
    assert [fold.written_by_interlock(seq) for seq in range(5)] == [False, False, True, True, True]
    fold.admit([draft("session/end-seed", {}), say.note()], 1)
    assert not fold.written_by_interlock(6)


def _request(provider: str = "p") -> Draft:
    header = {"config": {"provider": provider, "model": "m"}}
    return draft("request/header", {"header": header, "reason": "initial"})


def _retry(retry: int, retry_id: str = "r", **more) -> Draft:
    data = {
        "retryId": retry_id,
        "turn": 1,
        "step": 1,
        "provider": "p",
        "mode": "normal",
        "policyKey": "k",
        "retry": retry,
        "maxRetries": 3,
        "delayMs": 1.5,
        "failure": {"message": "m", "code": "c"},
    }
    return draft("llm/retry", data | more)


def test_L1_retries_are_numbered_and_each_is_started_once(say):
    fold = _fold(say.turn(), say.step(), _request())
    started = {"retryId": "r", "turn": 1, "step": 1, "retry": 1}
    assert "next retry" in _refused(fold, _retry(2))
    assert "provider" in _refused(fold, _retry(1, provider="other"))
    assert "maxRetries" in _refused(fold, _retry(1, maxRetries=0))
    fold.admit([_retry(1), draft("llm/retry-started", started)], 1)
    assert "no scheduled" in _refused(fold, draft("llm/retry-started", started))
    assert "share one retryId" in _refused(fold, _retry(2, "other"))
    assert "used before" in _refused(fold, _retry(1, policyKey="k2"))
    fold.admit([_retry(2)], 1)


def _compaction(kind: str, **more) -> Draft:
    return draft(f"compaction/{kind}", {"compactionId": "c"} | more)


def _summary(seqs: list[int]) -> Draft:
    return _compaction(
        "summary",
        summary=[],
        shadowedRange={"start": seqs[0], "end": seqs[-1]},
        shadowedSeqs=seqs,
        shadowedTokenCount=1,
        provider="p",
        model="m",
    )


def test_L1_a_compaction_names_exactly_what_it_hides(say):
    fold = _fold(say.turn(), say.step(), say.system("s"), say.user("a"), say.user("b"))
    assert "no open compaction" in _refused(fold, _summary([3, 4]))
    assert "its turn is" in _refused(fold, _compaction("start", turn=None))
    fold.admit([_compaction("start", turn=1)], 1)
    assert "still open" in _refused(fold, _compaction("start", turn=1))
    assert "needs its summary" in _refused(fold, _compaction("end", turn=1))
    assert "system head" in _refused(fold, _summary([2, 3, 4]))
    assert "exact span" in _refused(fold, _summary([4, 3]))
    source = {"kind": "plugin", "plugin": "compact", "compactionId": "c"}
    made = say.user("checkpoint", **source)
    checkpoint = Draft(made.type, made.data, False, say.replace(3, 4), (3, 4))
    fold.admit([_summary([3, 4]), checkpoint, _compaction("end", turn=1)], 1)
    assert "no open compaction" in _refused(
        fold, Draft(made.type, made.data, False, say.replace(7, 7), (7,))
    )
    assert fold.surface.span(2, 7) == [2, 7]


def test_L1_titles_cite_what_a_person_wrote(say):
    fold = _fold(say.turn(), say.step(), say.user("a"), say.user("b", kind="plugin", plugin="p"))
    title = {"title": "t", "source": {"kind": "fallback"}}
    fold.admit([draft("session/title", title | {"messageSeqs": [2]})], 1)
    assert "no message of a person" in _refused(
        fold, draft("session/title", title | {"messageSeqs": [3]})
    )


def test_L1_commands_and_nested_dispatches_end_what_they_started(say):
    fold = _fold(say.turn(), say.step(), say.message("c"), say.call("c"))
    run = {"commandId": "x", "name": "n", "source": {"kind": "user"}}
    done = draft("command/done", {"commandId": "x", "kind": "success"})
    assert "no command" in _refused(fold, done)
    fold.admit([draft("command/run", run), done], 1)
    assert "used before" in _refused(fold, draft("command/run", run))
    start = {"rootCallId": "c", "parentCallId": "c", "subCallId": "c:1", "name": "n"}
    end = draft("tool/ptc-dispatch", start | {"arguments": {}, "isError": False, "content": []})
    begin = draft("tool/ptc-dispatch-start", start | {"arguments": {}})
    assert "no open dispatch" in _refused(fold, end)
    stray = start | {"arguments": {}, "parentCallId": "other"}
    assert "does not belong" in _refused(fold, draft("tool/ptc-dispatch-start", stray))
    fold.admit([begin], 1)
    assert fold.calls[0].nested
    other = start | {"arguments": [1], "isError": False, "content": []}
    assert "differs" in _refused(fold, draft("tool/ptc-dispatch", other))
    fold.admit([end], 1)
    assert "used before" in _refused(fold, begin)


def test_a_tool_result_replaces_only_a_result_of_the_same_call(say):
    fold = _fold(say.turn(), say.step(), say.message("a", "b"), say.call("a"), say.call("b"))
    fold.admit([say.result("a", 3), say.result("b", 4)], 1)
    swap = say.replace(5, 5)
    assert "same call" in _refused(fold, say.result("b", 4, op=swap, sources=(5,)))
    both = say.replace(5, 6)
    assert "same call" in _refused(fold, say.result("a", 3, op=both, sources=(5, 6)))
    fold.admit([say.result("a", 3, op=swap, sources=(5,))], 1)
