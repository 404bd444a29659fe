"""``sessions repair``: nothing by default, and then no more than completing the log."""

from __future__ import annotations

import os

import pytest


def _files(root):
    return {p.name: p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_R16_by_default_it_only_says_what_it_would_do(cli, make, drafts):
    make("a", *drafts.cut_in_call())
    before = _files(cli.root)
    ran = cli("sessions", "repair", "a")
    assert ran.status == 0
    assert "would be appended" in ran.out
    assert "tool/result c1 TOOL_OUTCOME_UNKNOWN" in ran.out
    assert "--write" in ran.out
    assert _files(cli.root) == before


def test_R2_writing_appends_the_closers_and_keeps_a_copy(cli, make, drafts):
    path = make("a", *drafts.cut_in_call())
    before = path.read_bytes()
    told = cli("sessions", "verify", "a", "--json").json["sessions"][0]["repair"]
    document = cli("sessions", "repair", "a", "--write", "--json").json
    assert document["written"] is True
    assert [(e["type"], e["code"]) for e in document["repair"]] == [
        (e["type"], e["code"]) for e in told
    ]
    backup = path.with_name(f"{path.name}.before-repair-1")
    assert document["backup"] == str(backup)
    assert backup.read_bytes() == before
    assert os.stat(backup).st_mode & 0o777 == 0o600
    assert path.read_bytes().startswith(before)
    [entry] = cli("sessions", "verify", "a", "--json").json["sessions"]
    assert (entry["status"], entry["stored_events"]) == ("ok", 9)
    events = cli("sessions", "tail", "a", "--json").json["events"]
    assert events[6]["data"]["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert {event["time"] for event in events[5:]} == {events[5]["time"]}


def test_R2_repairing_a_repaired_log_changes_nothing(cli, make, drafts):
    make("a", *drafts.cut_in_call())
    cli("sessions", "repair", "a", "--write")
    before = _files(cli.root)
    ran = cli("sessions", "repair", "a", "--write")
    assert ran.status == 0
    assert "nothing to repair" in ran.out
    assert _files(cli.root) == before


@pytest.mark.parametrize(("cut", "recovered"), [(2, 1), (12, 0)])
def test_L9_a_torn_end_is_cut_and_its_events_are_written_back(cli, make, drafts, cut, recovered):
    path = make("a", *drafts.whole())
    torn = path.read_bytes()[:-cut]
    path.write_bytes(torn)
    dry = cli("sessions", "repair", "a", "--json").json
    assert dry["written"] is False
    assert dry["cut"]["recovered"] == recovered
    assert cli("sessions", "repair", "a", "--write").status == 0
    assert path.with_name(f"{path.name}.before-repair-1").read_bytes() == torn
    [entry] = cli("sessions", "verify", "a", "--json").json["sessions"]
    assert (entry["status"], entry["stored_events"], entry["dropped"]) == ("ok", 9, None)


def test_two_repairs_keep_two_copies(cli, make, drafts):
    path = make("a", *drafts.cut_in_call())
    whole = path.read_bytes()
    cli("sessions", "repair", "a", "--write")
    path.write_bytes(whole)
    document = cli("sessions", "repair", "a", "--write", "--json").json
    assert document["backup"].endswith(".before-repair-2")
    assert path.with_name(f"{path.name}.before-repair-1").read_bytes() == whole


def test_R5_K06_a_log_that_is_open_is_refused_naming_its_holder(cli, live):
    live.process.stdin.write("x\n")
    live.process.stdin.flush()
    while not cli("approvals", "list", "--json").json["approvals"]:
        pass
    before = _files(cli.root)
    for words in ((), ("--write",)):
        line = cli("sessions", "repair", "live-1", *words).refused(1)
        assert "SESSION_LOCKED" in line
        assert "process" in line
        assert "since" in line
    after = _files(cli.root)
    assert before.keys() == after.keys()


def test_R15_a_corrupt_log_is_refused_and_left_as_it_is(cli, make, drafts):
    path = make("a", *drafts.whole())
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    before = _files(cli.root)
    assert "SESSION_CORRUPT" in cli("sessions", "repair", "a", "--write").refused(1)
    assert _files(cli.root) == before


def test_a_copy_elsewhere_is_not_repaired_in_place_of_the_session(cli, make, drafts, tmp_path):
    path = make("a", *drafts.cut_in_call())
    copy = tmp_path / "x" / "y" / "session.v3.jsonl.zstd"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())
    assert "SESSION_" in cli("sessions", "repair", copy, "--write").refused(1)
    assert copy.read_bytes() == path.read_bytes()
