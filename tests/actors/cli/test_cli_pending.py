"""After a power cut, as somebody at a terminal sees it: everything is shown, nothing is changed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from interlock.backends.event import draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend


def note(text: str):
    return draft("interlock/notice", {"text": text}, ignorable=True)


@pytest.fixture
def cut(cli, tmp_path: Path) -> Path:
    """A root whose power went off: ``new`` is in the journal only, ``old`` lacks its last event."""
    living = tmp_path / "living"
    backend = JsonlBackend(living, durability="journal", segment_size=64 * 1024)
    logs = [backend.create(Header(id=name, created_at=1, cwd="/w")) for name in ("old", "new")]
    lengths = []
    for text in ("one", "two"):
        items = []
        for log in logs:
            log.append([note(text)], 5)
            items.append((log, log.seal()))
        assert backend.commit(items) == [len(lengths)] * 2
        lengths.append(logs[0].path.stat().st_size)
    shutil.copytree(living, cli.root, dirs_exist_ok=True)
    for log in logs:
        log.close()
    backend.close()
    os.truncate(cli.root / logs[0].path.relative_to(living), lengths[0])
    shutil.rmtree(cli.root / logs[1].directory.relative_to(living))
    return cli.root


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_readers_show_what_a_dead_writers_journal_holds_and_change_nothing(cli, cut) -> None:
    before = tree(cut)
    listed = {row["id"]: row for row in cli("sessions", "list", "--json").json["sessions"]}
    assert {name: row["journal_pending"] for name, row in listed.items()} == {
        "old": True,
        "new": True,
    }
    for name in ("old", "new"):
        shown = cli("sessions", "show", name, "--json").json["session"]
        assert (shown["journal_pending"], shown["stored_events"]) == (True, 2)
        assert "journal" in cli("sessions", "show", name).out
        exported = cli("sessions", "export", name)
        assert exported.out.count("\n") == 2
        assert "journal" in exported.err
    report = cli("sessions", "verify", "--json")
    assert report.status == 0
    assert [e["journal_pending"] for e in report.json["sessions"]] == [True, True]
    assert tree(cut) == before


def test_repair_writes_what_the_journal_holds_for_this_session_and_no_other(cli, cut) -> None:
    dry = cli("sessions", "repair", "old", "--json").json
    assert (dry["journal_pending"], dry["written"]) == (True, False)
    done = cli("sessions", "repair", "old", "--write", "--json").json
    assert done["written"] is True
    rows = {row["id"]: row for row in cli("sessions", "list", "--json").json["sessions"]}
    assert {name: row["journal_pending"] for name, row in rows.items()} == {
        "old": False,
        "new": True,
    }
    assert cli("sessions", "show", "old", "--json").json["session"]["stored_events"] == 2
