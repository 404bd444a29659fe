"""``sessions export``: what leaves is what the log holds, or nothing."""

from __future__ import annotations

import json
import os

from interlock.backends.event import to_json
from interlock.backends.reading import read_events


def test_jsonl_is_the_event_stream(cli, make, drafts):
    path = make("a", *drafts.whole())
    rows = [json.loads(line) for line in cli("sessions", "export", "a").out.splitlines()]
    assert rows == [to_json(event) for event in read_events(path)]


def test_repair_is_left_out_unless_asked_for(cli, make, drafts):
    path = make("a", *drafts.cut_in_call())
    before = path.read_bytes()
    assert len(cli("sessions", "export", "a").out.splitlines()) == 6
    rows = [
        json.loads(line) for line in cli("sessions", "export", "a", "--repaired").out.splitlines()
    ]
    assert [row["type"] for row in rows[6:]] == ["tool/result", "step/end", "turn/end"]
    assert [row["seq"] for row in rows] == list(range(9))
    assert path.read_bytes() == before


def test_a_file_is_private_and_never_overwritten(cli, make, drafts, tmp_path):
    log = make("a", *drafts.whole())
    target = tmp_path / "out.jsonl"
    assert cli("sessions", "export", "a", "-o", target).status == 0
    assert len(target.read_text().splitlines()) == 9
    assert os.stat(target).st_mode & 0o777 == 0o600
    assert "exists already" in cli("sessions", "export", "a", "-o", target).refused(1)
    before = log.read_bytes()
    assert "exists already" in cli("sessions", "export", "a", "-o", log).refused(1)
    assert log.read_bytes() == before


def test_R16_a_damaged_log_is_refused_and_a_cut_one_is_said(cli, make, drafts, tmp_path):
    path = make("a", *drafts.whole())
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    ran = cli("sessions", "export", "a")
    assert ran.status == 0
    assert "incomplete" in ran.err
    path.write_bytes(whole[:-3] + b"x" + whole[-2:])
    target = tmp_path / "out.jsonl"
    assert "SESSION_CORRUPT" in cli("sessions", "export", "a", "-o", target).refused(1)
    assert not target.exists()


def test_lone_surrogates_survive(cli, make, drafts):
    make("a", drafts.user("half \ud83d pair"))
    [row] = [json.loads(line) for line in cli("sessions", "export", "a").out.splitlines()]
    assert row["data"]["content"][0]["text"] == "half \ud83d pair"


def test_markdown_is_a_page_whose_fences_hold(cli, make, drafts):
    make("a", *drafts.cut_in_call(), drafts.result("c1", 5, "```\n# not a heading\n```"))
    page = cli("sessions", "export", "a", "--format", "markdown").out
    assert page.startswith("# Session `a`")
    assert "## Turn 1" in page
    assert "````\n```\n# not a heading\n```\n````" in page
    assert "no end in the log" in page
