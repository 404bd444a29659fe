"""R1, R2, R3, R6, R7: what an interrupted log is completed with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from interlock.backends.event import Draft, Event, decode_line, draft, to_json
from interlock.backends.fold import LogFold
from interlock.backends.reading import read_log
from interlock.backends.repair import (
    NEVER_RELEASED_TEXT,
    NOT_STARTED_TEXT,
    OUTCOME_UNKNOWN_TEXT,
    RECORDS_LOST_TEXT,
    closers,
    missing_results,
)

SAMPLES = Path(__file__).parents[2] / ".." / "shared" / "dsh" / "samples"


SHORT: dict[str, object] = {}


@pytest.fixture(scope="module", autouse=True)
def _short_names(short_names):
    SHORT.update(short_names)


def _fold(*drafts: Draft) -> LogFold:
    fold = LogFold()
    fold.admit(drafts, 5)
    return fold


def _repair(fold: LogFold, **more) -> list[dict]:
    """Append the closers as the writer does; every one must be admitted by the whole grammar."""
    events = fold.admit(closers(fold, **more), fold.last_time)
    assert fold.balanced
    assert closers(fold, **more) == [], "repairing a repaired log changes nothing"
    return [to_json(event) for event in events]


def _brief(events: list[dict]) -> list[tuple]:
    rows = []
    for event in events:
        data = event["data"]
        if event["type"] == "tool/result":
            text = data["message"]["content"][0]["content"][0]["text"]
            call_id = data["message"]["source"]["callId"]
            rows.append((call_id, data["error"]["code"], text, event.get("sourceEventSeqs")))
        elif event["type"] == "approval/decided":
            rows.append((data["id"], data["outcome"]))
        else:
            rows.append((event["type"],))
    return rows


END = [("step/end",), ("turn/end",)]


@pytest.mark.parametrize(
    "name",
    [
        "s06-kill9-mid-tool-zstd",
        "s07-kill9-two-calls-raw",
        "s07b-kill9-mid-stream-zstd",
        "s07c-kill9-after-result-zstd",
        "s07e-kill9-pending-approval-zstd",
    ],
)
def test_R2_the_harness_own_logs_are_repaired_as_the_harness_repairs_them(name):
    if not SAMPLES.is_dir():
        pytest.skip("../shared is not there")
    oracle = json.loads((SAMPLES / "expected" / f"{name}.json").read_text())
    reading = read_log(SAMPLES / "migrated" / name / "session.v3.jsonl")
    expected = oracle["sessions"][0]["load"]["syntheticClosers"]
    shift = reading.fold.next_seq - expected[0]["seq"]

    repaired = _repair(reading.fold)

    # Migration has renumbered the events; everything else must be letter for letter the same.
    for event, wanted in zip(repaired, expected, strict=True):
        wanted["seq"] += shift
        if "sourceEventSeqs" in wanted:
            wanted["sourceEventSeqs"] = [seq + shift for seq in wanted["sourceEventSeqs"]]
            [cited] = wanted["sourceEventSeqs"]
            assert cited in [c.call_seq for c in _calls_before(name)]
        if "message" in wanted["data"]:
            call_id = wanted["data"]["message"]["source"]["callId"]
            seq = wanted["seq"]
            wanted["data"]["message"]["id"] = f"interrupted-tool-result-{call_id}-{seq}"
        assert event == wanted


def _calls_before(name: str):
    return read_log(SAMPLES / "migrated" / name / "session.v3.jsonl").fold.calls


def test_R2_a_balanced_or_empty_log_gets_nothing(say):
    assert closers(LogFold()) == []
    assert closers(_fold(say.turn(), say.turn_end())) == []


def test_R2_an_open_turn_without_a_step_gets_its_end_only(say):
    [end] = _repair(_fold(say.turn(), say.step(), say.step_end()))
    assert end == {
        "type": "turn/end",
        "seq": 3,
        "time": 5,
        "data": {"turn": 1, "reason": {"kind": "interrupted"}},
    }


def test_R1_calls_are_answered_by_what_the_log_holds_of_them(say):
    fold = _fold(
        say.turn(),
        say.step(),
        say.message("done", "unknown", "unstarted"),
        say.call("unknown"),
        say.call("done"),
        say.result("done", 4),
    )
    assert _brief(_repair(fold)) == [
        ("unknown", "TOOL_OUTCOME_UNKNOWN", OUTCOME_UNKNOWN_TEXT, [3]),
        ("unstarted", "TOOL_NOT_STARTED", NOT_STARTED_TEXT, None),
        *END,
    ]


def test_R2_for_our_own_log_open_requests_are_cancelled_first_then_calls_in_model_order(say):
    fold = _fold(
        say.writer(),
        say.turn(),
        say.step(),
        say.message("a", "b", "c"),
        say.call("b"),
        say.call("a"),
        say.asked("q1", "b"),
        say.asked("q2"),
    )
    repaired = _repair(fold)
    assert [event["seq"] for event in repaired] == list(range(8, 15))
    assert {event["time"] for event in repaired} == {5}
    assert _brief(repaired) == [
        ("q1", "cancelled"),
        ("q2", "cancelled"),
        ("a", "TOOL_OUTCOME_UNKNOWN", OUTCOME_UNKNOWN_TEXT, [5]),
        ("b", "TOOL_NOT_STARTED", NEVER_RELEASED_TEXT, [4]),
        ("c", "TOOL_NOT_STARTED", NOT_STARTED_TEXT, None),
        *END,
    ]


@pytest.mark.parametrize(
    ("audit", "code"),
    [
        ("asked", "TOOL_NOT_STARTED"),
        ("asked rejected", "TOOL_NOT_STARTED"),
        ("asked cancelled", "TOOL_NOT_STARTED"),
        ("asked unavailable", "TOOL_NOT_STARTED"),
        ("asked allowed-once", "TOOL_OUTCOME_UNKNOWN"),
        ("asked allowed-once asked", "TOOL_NOT_STARTED"),
        ("", "TOOL_OUTCOME_UNKNOWN"),
    ],
)
@pytest.mark.parametrize("ours", [True, False])
def test_R6_a_recorded_call_without_its_grant_was_not_started(say, audit, code, ours):
    drafts = [say.writer()] if ours else [say.note()]
    drafts += [say.turn(), say.step(), say.message("c"), say.call("c")]
    for i, word in enumerate(audit.split()):
        asked = word == "asked"
        drafts.append(say.asked(f"q{i}", "c") if asked else say.decided(f"q{i - 1}", word))
    [answer] = [row for row in _brief(_repair(_fold(*drafts))) if row[0] == "c"]
    # For a log of the harness, the harness's reading stands.
    assert answer[1] == (code if ours else "TOOL_OUTCOME_UNKNOWN")


def test_R6_a_call_whose_body_was_seen_at_work_was_surely_started(say):
    nested = {
        "rootCallId": "c",
        "parentCallId": "c",
        "subCallId": "c:1",
        "name": "n",
        "arguments": {},
    }
    fold = _fold(
        say.writer(),
        say.turn(),
        say.step(),
        say.message("c"),
        say.call("c"),
        draft("tool/ptc-dispatch-start", nested),
        say.asked("q", "c"),
    )
    assert _brief(_repair(fold))[1][:2] == ("c", "TOOL_OUTCOME_UNKNOWN")


def test_R6_a_log_that_the_harness_took_over_is_read_as_the_harness_reads_it(say):
    fold = _fold(
        say.writer(),
        draft("session/end-seed", {}),
        say.turn(),
        say.step(),
        say.message("c"),
        say.call("c"),
        say.asked("q", "c"),
    )
    assert _brief(_repair(fold)) == [
        ("c", "TOOL_OUTCOME_UNKNOWN", OUTCOME_UNKNOWN_TEXT, [5]),
        *END,
    ]


@pytest.mark.parametrize("ours", [True, False])
def test_R1_nothing_is_inferred_where_acknowledged_records_may_be_gone(say, ours):
    fold = _fold(
        say.writer() if ours else say.note(),
        say.turn(),
        say.step(),
        say.message("asked", "unstarted"),
        say.call("asked"),
        say.asked("q", "asked"),
    )
    repaired = _brief(_repair(fold, dropped_acknowledged=True))
    if ours:
        assert repaired == [
            ("q", "cancelled"),
            ("asked", "TOOL_OUTCOME_UNKNOWN", RECORDS_LOST_TEXT, [4]),
            # Only a call on record can have an unknown outcome, so it is recorded first.
            ("tool/call",),
            ("unstarted", "TOOL_OUTCOME_UNKNOWN", RECORDS_LOST_TEXT, [8]),
            *END,
        ]
    else:
        assert repaired == [
            ("asked", "TOOL_OUTCOME_UNKNOWN", OUTCOME_UNKNOWN_TEXT, [4]),
            ("unstarted", "TOOL_NOT_STARTED", NOT_STARTED_TEXT, None),
            *END,
        ]


@pytest.mark.parametrize("in_turn", [True, False])
@pytest.mark.parametrize("command", [None, "cmd"])
def test_R2_an_open_compaction_is_ended_so_that_the_session_can_go_on(say, in_turn, command):
    data = {"compactionId": "k", "turn": 1 if in_turn else None}
    if command:
        data["sourceCommandId"] = command
    before = [say.turn()] if in_turn else []
    fold = _fold(*before, draft("compaction/start", data))
    first, *rest = _repair(fold)
    assert (first["type"], first["data"]) == ("compaction/end", data | {"error": "interrupted"})
    assert [event["type"] for event in rest] == (["turn/end"] if in_turn else [])
    fold.admit([say.turn(2 if in_turn else 1)], 6)


WORDS = [
    "turn(1)",
    "turn(2)",
    "turn(3)",
    "turn_end(1)",
    "turn_end(9)",
    "step(1)",
    "step(2, 2)",
    "step_end(1)",
    "step_end(2, 2)",
    "message('a', 'b')",
    "message('b', turn=2)",
    "call('a')",
    "call('b', turn=2)",
    "result('a', 0)",
    "result('c', 0)",
    "asked('q', 'a')",
    "asked('r')",
    "decided('q', 'rejected')",
    "decided('q', 'allowed-once')",
    "writer",
    "user('u')",
    "compaction('start')",
    "compaction('end')",
    "seed",
]


@settings(max_examples=300)
@example(["writer", "compaction('start')", "asked('r')"], False)
@example(["step(1)", "compaction('start')"], False)
@given(st.lists(st.sampled_from(WORDS), max_size=25), st.booleans())
def test_R2_whatever_a_readable_log_holds_its_repair_is_admitted(words, lost):
    """Reading enforces no pairing, so repair meets logs that the grammar would have refused."""
    say = SHORT | {
        "compaction": lambda kind: draft(f"compaction/{kind}", {"compactionId": "k", "turn": None}),
        "seed": lambda: draft("session/end-seed", {}),
    }
    fold = LogFold()
    for word in words:
        made = eval(word, {}, say)
        one = made if isinstance(made, Draft) else made()
        sources = (0,) if one.type == "tool/result" and fold.next_seq else None
        if one.type == "tool/result" and sources is None:
            continue
        seq = fold.next_seq
        fold.replay(Event(one.type, seq, 5, one.data, one.ignorable, one.surface_op, sources))
    fold.admit(closers(fold, dropped_acknowledged=lost), 5)
    assert fold.balanced
    assert closers(fold) == []


def test_R7_a_repair_that_stopped_anywhere_is_finished_by_the_next_one(say):
    def interrupted() -> LogFold:
        return _fold(
            say.writer(),
            say.turn(),
            say.step(),
            say.message("a", "b", "c"),
            say.call("a"),
            say.call("b"),
            say.asked("q", "b"),
        )

    whole = _brief(_repair(interrupted()))
    for stop in range(len(whole)):
        fold = interrupted()
        part = fold.admit(closers(fold)[:stop], fold.last_time)
        rest = _repair(fold)
        assert _brief([to_json(event) for event in part] + rest) == whole


def test_R7_a_real_result_cannot_follow_a_synthetic_one(say):
    fold = _fold(say.turn(), say.step(), say.message("a"), say.call("a"))
    fold.admit(closers(fold)[:1], 5)
    with pytest.raises(Exception, match="already has its result"):
        fold.admit([say.result("a", 3)], 5)


@pytest.mark.parametrize("compression", ["zstd", "none"], indirect=True)
def test_R7_repair_on_disk_survives_being_cut_anywhere(backend, say, flush, compression):
    log = backend.create(say.header())
    log.append([say.writer(), say.turn(), say.step(), say.message("a", "b"), say.call("a")], 5)
    flush(log)
    log.close()
    before = log.path.read_bytes()
    log = backend.open("s")
    log.append(closers(log.fold), log.fold.last_time)
    flush(log)
    log.close()
    whole = log.path.read_bytes()
    wanted = [to_json(event) for event in read_log(log.path).events]
    for length in range(len(before), len(whole), 7):
        log.path.write_bytes(whole[:length])
        log = backend.open("s")
        lost = log.recovered is not None and log.recovered.may_be_acknowledged
        drafts = closers(log.fold, dropped_acknowledged=lost)
        log.append(drafts, log.fold.last_time)
        log.mend()
        if drafts:
            flush(log)
        log.close()
        assert [to_json(event) for event in read_log(log.path).events] == wanted


def test_R1_old_turns_without_a_result_get_one_in_the_derived_history(say):
    rows = [
        say.turn(),
        say.step(),
        say.message("a", "b", "c"),
        say.call("a"),
        say.result("a", 3),
        say.call("b"),
    ]
    fold = LogFold()
    events = fold.admit(rows, 5)
    # The harness may have closed the turn over them; reading does not mind.
    closed = {"type": "turn/end", "seq": 6, "time": 5, "data": {"turn": 1, "reason": {}}}
    start = {"type": "turn/start", "seq": 7, "time": 5, "data": {"turn": 2}}
    events += [decode_line(json.dumps(row).encode()) for row in (closed, start)]
    again = LogFold()
    again.admit([say.turn(), say.step()], 5)
    [message] = again.admit([say.message("a", "open")], 5)
    events.append(type(message)(**{f: getattr(message, f) for f in message.__struct_fields__}))

    missing = missing_results(events)

    assert {key: value.code for key, value in missing.items()} == {
        (2, "b"): "TOOL_OUTCOME_UNKNOWN",
        (2, "c"): "TOOL_NOT_STARTED",
    }
    assert "unknown" in missing[2, "b"].text
