"""``sessions show``: a log that a person can follow."""

from __future__ import annotations

import json

import pytest
from interlock.backends.event import draft


def test_a_finished_turn_is_told_in_order(cli, make, drafts):
    make("a", *drafts.whole())
    out = cli("sessions", "show", "a").out
    told = ["turn 1", "Pay the invoice", "step 1", "I will.", "call c1", '{"cents":500}']
    places = [out.index(part) for part in [*told, "ok", "paid", "turn 1 completed", "complete"]]
    assert places == sorted(places)


def test_R1_an_unknown_outcome_and_what_an_open_turn_means(cli, make, drafts):
    make("a", *drafts.cut_in_call())
    ran = cli("sessions", "show", "a")
    assert ran.status == 0
    assert "no result in the log" in ran.out
    assert "turn 1 has no end in the log" in ran.out
    assert "interrupted" in ran.out
    assert "tool/result c1 TOOL_OUTCOME_UNKNOWN" in ran.out
    assert "interlock sessions repair a" in ran.out.replace("\n  ", " ")


def test_who_decided_an_approval_is_shown(cli, make, drafts):
    asked = [
        draft("approval/asked", {"id": "r1", "toolName": "tool", "callId": "c1", "reason": "why"}),
        draft("interlock/approval", {"id": "r1", "state": "asked"}, ignorable=True),
        draft("approval/decided", {"id": "r1", "outcome": "rejected"}),
        draft(
            "interlock/approval",
            {"id": "r1", "state": "decided", "by": "answerer:ada", "note": "too much"},
            ignorable=True,
        ),
    ]
    rejected = drafts.result("c1", 5, "not allowed", "APPROVAL_REJECTED")
    make("a", *drafts.cut_in_call(), *asked, rejected, drafts.step_end, drafts.turn_end)
    out = cli("sessions", "show", "a").out
    assert "approval asked" in out
    assert "why" in out
    assert "rejected by answerer:ada" in out
    assert "too much" in out
    assert "APPROVAL_REJECTED · it never ran" in out
    [call] = _calls(cli("sessions", "show", "a", "--json").json)
    assert call["code"] == "APPROVAL_REJECTED"
    assert call["approvals"][0]["by"] == "answerer:ada"


def test_U06_calls_are_filtered_by_tool_and_code(cli, make, drafts):
    first = [drafts.turn, drafts.step, drafts.assistant("", "c1", "c2", tool="pay")]
    calls = [drafts.call("c1", "pay"), drafts.result("c1", 3, "done")]
    calls += [drafts.call("c2", "pay"), drafts.result("c2", 5, "broke", "TOOL_FAILED")]
    make("a", *first, *calls, drafts.step_end, drafts.turn_end)

    def ids(*words):
        return [c["call_id"] for c in _calls(cli("sessions", "show", "a", "--json", *words).json)]

    assert ids() == ["c1", "c2"]
    assert ids("--code", "TOOL_FAILED") == ["c2"]
    assert ids("--code", "ok") == ["c1"]
    assert ids("--tool", "pay", "--turn", "1") == ["c1", "c2"]
    assert ids("--tool", "other") == []
    assert ids("--turn", "2") == []
    out = cli("sessions", "show", "a", "--code", "TOOL_FAILED").out
    assert "broke" in out
    assert "done" not in out


def test_long_texts_are_shortened_with_a_note_and_whole_on_request(cli, make, drafts):
    text = "\n".join(f"line {n}" for n in range(100))
    make("a", *drafts.cut_in_call(), drafts.result("c1", 5, text))
    out = cli("sessions", "show", "a").out
    assert "line 5" in out
    assert "line 50" not in out
    assert "more characters" in out
    assert "line 50" in cli("sessions", "show", "a", "--full").out


def test_P7_a_spilled_result_names_its_file(cli, make, drafts):
    spill = {"file": "spill/6", "bytes": 9, "size": 9, "sha256": "0", "cut": 0}
    make("a", *drafts.cut_in_call(), drafts.result("c1", 5, "start", spill=spill))
    assert "spill/6 beside the log" in cli("sessions", "show", "a").out


def test_nothing_in_a_log_is_obeyed_by_the_terminal(cli, make, drafts):
    evil = "\x1b]0;owned\x07 \x9b31m \u202egnp.exe \r hidden"
    make("a", *drafts.cut_in_call(), drafts.result("c1", 5, evil), drafts.user(evil))
    for words in (("show", "a"), ("tail", "a"), ("export", "a", "--format", "markdown")):
        out = cli("sessions", *words).out
        assert "owned" in out
        assert not set(out) & set("\x1b\x07\x9b\u202e\r"), words


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_it_keeps_to_the_width_of_the_terminal(cli, make, drafts, columns):
    make("a", *drafts.cut_in_call(), drafts.result("c1", 5, "many words " * 60))
    out = cli("sessions", "show", "a", COLUMNS=str(columns)).out
    path = str(cli.root)
    assert max(len(line) for line in out.splitlines() if path not in line) <= columns
    assert not any(line != line.rstrip() for line in out.splitlines())


def test_L10_a_damaged_log_is_shown_up_to_its_damage_and_fails(cli, make, drafts):
    path = make("a", *drafts.whole())
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    ran = cli("sessions", "show", "a")
    line = ran.refused(1)
    assert "SESSION_CORRUPT" in line
    assert "offset" in line
    assert "Pay the invoice" in ran.out
    document = cli("sessions", "show", "a", "--json")
    assert document.status == 1
    assert document.json["session"]["state"] == "damaged"


def test_raw_prints_the_rows_of_the_log(cli, make, drafts):
    make("a", *drafts.whole())
    rows = [json.loads(line) for line in cli("sessions", "show", "a", "--raw").out.splitlines()]
    assert [row["seq"] for row in rows] == list(range(9))
    turn = cli("sessions", "show", "a", "--raw", "--turn", "1").out.splitlines()
    assert len(turn) == 8
    assert len(cli("sessions", "show", "a", "--raw", "--tool", "tool").out.splitlines()) == 2


def test_U05_a_live_session_says_what_it_waits_for(cli, live):
    live.process.stdin.write("x\n")
    live.process.stdin.flush()
    while not (waiting := cli("approvals", "list", "--json").json["approvals"]):
        pass
    # What is not durable yet is not in the file: the request was asked for within the window.
    while (session := cli("sessions", "show", "live-1", "--json").json["session"])[
        "state"
    ] != "waiting":
        assert session["state"] == "running"
    assert any(waiting[0]["id"] in words for words in session["explanation"])
    assert session["holder"]["pid"] > 0


def test_an_empty_log_is_shown(cli, make):
    make("a")
    ran = cli("sessions", "show", "a")
    assert ran.status == 0
    assert "No events" in ran.out


def test_real_logs_of_the_harness_are_told(cli, shared_samples):
    for path in shared_samples:
        ran = cli("sessions", "show", path)
        assert ran.status in (0, 1), path
        if ran.status:
            assert "SESSION_" in ran.refused(1), path


def _calls(document):
    return [
        entry
        for turn in document["turns"]
        for step in turn["steps"]
        for entry in step["entries"]
        if entry["kind"] == "call"
    ]
