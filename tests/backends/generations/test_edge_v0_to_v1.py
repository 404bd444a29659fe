"""v0 → v1: old shapes are rewritten, and what no later format has is refused."""

from __future__ import annotations

import pytest
from interlock.backends.errors import SessionError
from interlock.backends.reading import read_log


@pytest.fixture
def around(old):
    """Put rows into the one step of the one turn."""

    def around(*rows):
        return [old.turn(), old.step(), *rows, old.step_end(), old.turn_end()]

    return around


def inner(events, kind):
    return [event for event in events if event["type"] == kind]


def test_a_steering_message_that_wraps_its_message_gives_it_up(current, around, old):
    wrapped = {"turn": 1, "message": old.user("go")["data"]}
    row = {"type": "steering/message", "data": wrapped, "surfaceOp": "append"}
    [message] = inner(current(0, around(row)), "user/message")
    assert message["data"] == old.user("go")["data"]


def test_an_old_compaction_gets_its_name_and_one_id(current, old):
    source = {"kind": "plugin", "plugin": "compact"}
    checkpoint = old.user("sum", surfaceOp={"op": "replace", "start": 2, "end": 2})
    checkpoint |= {"sourceEventSeqs": [5, 6, 2]}
    checkpoint["data"]["source"] = source
    summary = {
        "summary": [{"type": "text", "text": "sum"}],
        "shadowedRange": {"start": 2, "end": 2},
        "shadowedSeqs": [2],
        "shadowedTokenCount": 1,
        "provider": "p",
        "model": "m",
    }
    rows = [old.turn(), old.step(), old.user(), old.step_end(), old.turn_end()]
    rows += [old.event("compact/start", turn=None), old.event("compact/summary", **summary)]
    rows += [checkpoint, old.event("compact/end", turn=None)]
    events = current(0, rows)
    made = "legacy-compaction:s:5"
    types = ["compaction/start", "compaction/summary", "user/message", "compaction/end"]
    assert [event["type"] for event in events[-4:]] == types
    assert [event["data"].get("compactionId") for event in events[-4:]] == [made, made, None, made]
    assert events[-2]["data"]["source"] == source | {"compactionId": made}


def test_old_retries_of_one_chain_share_a_made_id(current, around, old):
    def retry(number, policy="k"):
        return old.event(
            "llm/retry",
            turn=1,
            step=1,
            provider="p",
            mode="always",
            policyKey=policy,
            retry=number,
            delayMs=1.5,
            failure={"message": "m", "code": "C"},
        )

    events = current(0, around(old.request(), retry(1), retry(2), retry(1, "other")))
    ids = [event["data"]["retryId"] for event in inner(events, "llm/retry")]
    assert ids == ["legacy-retry:s:3", "legacy-retry:s:3", "legacy-retry:s:5"]


def test_an_old_result_that_replaces_another_takes_its_id(current, around, old):
    flat = {
        "type": "tool/result",
        "data": {
            "turn": 1,
            "step": 1,
            "callId": "c",
            "content": [{"type": "text", "text": "shorter"}],
            "isError": False,
        },
        "surfaceOp": {"op": "replace", "start": 4, "end": 4},
        "sourceEventSeqs": [4],
    }
    first = old.result("c")
    events = current(0, around(old.answer(old.tool("c")), old.call("c"), first, flat))
    results = inner(events, "tool/result")
    assert [event["data"]["message"]["id"] for event in results] == ["r-c", "r-c"]


@pytest.mark.parametrize(
    ("reason", "now"),
    [
        ({"kind": "aborted"}, {"kind": "aborted", "reason": {"kind": "legacy"}}),
        ({"kind": "disposed"}, {"kind": "aborted", "reason": {"kind": "disposed"}}),
        (
            {"kind": "error", "step": 1, "message": "m", "code": "C"},
            {"kind": "error", "error": {"message": "m", "code": "C"}},
        ),
        ({"kind": "something", "new": 1}, {"kind": "something", "new": 1}),
    ],
)
def test_an_old_turn_end_gets_the_later_reason(current, old, reason, now):
    events = current(0, [old.turn(), old.event("turn/end", turn=1, reason=reason)])
    assert events[-1]["data"]["reason"] == now


@pytest.mark.parametrize(
    ("row", "word"),
    [
        (("request/header-delta", {}), "unknown type"),
        (("mode/set", {"mode": "x"}), "unknown type"),
        (("turn/start", {"turn": 1, "trigger": {}}), "trigger"),
        (("turn/end", {"turn": 1, "reason": {"kind": "aborted", "x": 1}}), "reason"),
        (("turn/end", {"turn": 1, "reason": {"kind": "error", "message": "m"}}), "step"),
        (("turn/end", {"turn": 1, "reason": {"kind": "completed", "x": 1}}), "reason"),
        (("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": 5}}), "error"),
        (("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {}}}), "error"),
        (("turn/start", {"turn": 1, "more": 1}), "more"),
    ],
)
def test_a_malformed_old_shape_is_refused(write, row, word):
    kind, data = row
    with pytest.raises(SessionError, match=word) as caught:
        read_log(write(0, [{"type": kind, "data": data}]))
    malformed = kind.startswith("turn/") and "more" not in data
    # A shape that its own reader cannot take is damage; one that only no edge takes is not.
    expected = "SESSION_CORRUPT" if malformed else "SESSION_FORMAT_UNSUPPORTED"
    assert caught.value.code == expected


def test_a_prompt_prefix_goes_and_a_retired_reason_is_refused(current, refusal, around, old):
    prefixed = old.request(messagePrefix=[], system="be good")
    events = current(0, around(prefixed))
    assert inner(events, "request/header")[0]["data"]["header"] == old.request()["data"]["header"]
    fallback = old.request()
    fallback["data"]["reason"] = "fallback"
    assert "fallback" in refusal(0, around(fallback))


def test_a_delivery_marker_of_another_session_is_refused_unless_inherited(refusal, current, old):
    kind = "session-log-deepseek/delivery-accepted"
    rows = [old.turn(), old.event(kind, sessionId="other", throughSeq=0), old.turn_end()]
    assert "another session" in refusal(0, rows)
    events = current(0, rows, parentSession="other", seedLength=3)
    assert [event["type"] for event in events] == [
        "turn/start",
        kind,
        "turn/end",
        "session/end-seed",
    ]


def test_an_old_descriptor_and_an_unexpected_header_member_are_refused(refusal, old):
    rows = [old.event("subagent/descriptor", mode="one-shot", version=2, provider="p")]
    assert "version 3" in refusal(0, rows)
    assert "'extra'" in refusal(0, [], extra=1)
