"""What `interlock sessions verify` reports, against the JSON of the design."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from interlock.backends.event import draft
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.verify import NotALog, verify

FIELDS = {
    "path",
    "id",
    "version",
    "status",
    "code",
    "message",
    "stored_events",
    "last_seq",
    "dropped",
    "repair",
    "journal_pending",
}


@pytest.fixture
def make(root, say, flush):
    """Make a session with a finished turn, and, if asked, an open one with a call under way."""

    def make(name: str, *, open_turn: bool = False, compression: str = "zstd") -> Path:
        log = JsonlBackend(root, compression=compression).create(say.header(name))
        log.append([say.writer(), say.turn(), say.turn_end()], 1)
        flush(log)
        if open_turn:
            turn = {"turn": 2}
            log.append([say.turn(2), say.step(**turn), say.message("c", "d", **turn)], 1)
            flush(log)
            log.append([say.call("c", **turn), say.asked("q", "c")], 1)
            flush(log)
        log.close()
        return log.path

    return make


def _one(path: Path) -> dict:
    before = {p: p.stat().st_mtime_ns for p in path.parent.iterdir()}
    [entry] = verify(path).sessions
    assert {p: p.stat().st_mtime_ns for p in path.parent.iterdir()} == before
    json.dumps(entry)
    assert entry.keys() >= FIELDS
    return entry


def test_a_whole_log_is_ok(make):
    path = make("s")
    for target in (path, path.parent, path.parents[2]):
        report = verify(target)
        assert report.sound
        [entry] = report.sessions
        assert (entry["path"], entry["id"], entry["version"]) == (str(path), "s", 3)
        assert (entry["status"], entry["code"], entry["message"]) == ("ok", None, None)
        assert (entry["stored_events"], entry["last_seq"]) == (3, 2)
        assert (entry["dropped"], entry["repair"]) == (None, [])


def test_an_open_turn_is_repairable_and_the_repair_is_listed_in_order(make, root, flush):
    path = make("s", open_turn=True)
    entry = _one(path)
    assert entry["status"] == "repairable"
    assert entry["repair"] == [
        {"type": "approval/decided", "code": None, "call_id": None},
        {"type": "tool/result", "code": "TOOL_NOT_STARTED", "call_id": "c"},
        {"type": "tool/result", "code": "TOOL_NOT_STARTED", "call_id": "d"},
        {"type": "step/end", "code": None, "call_id": None},
        {"type": "turn/end", "code": None, "call_id": None},
    ]


def test_a_cut_tail_is_repairable_and_says_what_would_be_recovered(make):
    path = make("s", open_turn=True)
    size = path.stat().st_size
    os.truncate(path, size - 1)
    report = verify(path)
    assert report.sound
    [entry] = report.sessions
    assert entry["status"] == "repairable"
    assert entry["dropped"]["bytes"] + entry["dropped"]["offset"] == size - 1
    assert (entry["dropped"]["records"], entry["dropped"]["recovered"]) == (0, 2)
    assert "recovered" in entry["message"]


def test_one_flipped_byte_in_a_middle_frame_is_corrupt_with_frame_and_offset(make):
    path = make("s", open_turn=True)
    data = bytearray(path.read_bytes())
    start = data.index(b"\x28\xb5\x2f\xfd", 10)
    data[start + 20] ^= 1
    path.write_bytes(data)
    report = verify(path)
    assert not report.sound
    [entry] = report.sessions
    assert (entry["status"], entry["code"]) == ("corrupt", "SESSION_CORRUPT")
    assert (entry["id"], entry["frame"], entry["offset"]) == ("s", 1, start)
    assert f"frame 1, offset {start}" in entry["message"]
    assert path.read_bytes() == data


def test_a_log_of_another_version_is_unsupported(make):
    path = make("s", compression="none")
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version":9'))
    entry = _one(path.rename(path.with_name("session.v9.jsonl")))
    assert (entry["status"], entry["code"]) == ("unsupported", "SESSION_FORMAT_UNSUPPORTED")
    assert entry["version"] == 9


def test_R5_unfinished_work_of_a_living_writer_is_locked_and_not_repairable(make, root):
    path = make("s", open_turn=True)
    log = JsonlBackend(root).open("s")
    report = verify(path)
    assert not report.sound
    [entry] = report.sessions
    assert (entry["status"], entry["code"]) == ("locked", "SESSION_LOCKED")
    assert str(os.getpid()) in entry["message"]
    log.close()
    assert _one(path)["status"] == "repairable"


def test_an_open_session_without_unfinished_work_is_ok(make, root):
    path = make("s")
    log = JsonlBackend(root).open("s")
    assert _one(path)["status"] == "ok"
    log.close()


def test_L17_a_root_reports_every_session(make, root):
    for name in "abcd":
        make(name, open_turn=name == "b")
    (root / "--work--" / "c" / "session.v3.jsonl.zstd").write_bytes(b"")
    report = verify(root)
    assert [(e["id"], e["status"]) for e in report.sessions] == [
        ("a", "ok"),
        ("b", "repairable"),
        (None, "corrupt"),
        ("d", "ok"),
    ]
    assert not report.sound


def test_lost_records_are_counted_and_make_calls_unknown(make):
    path = make("s", open_turn=True, compression="none")
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*rows[:8], b"garbage\n", *rows[8:]]))
    entry = _one(path)
    assert entry["dropped"]["records"] == 2
    assert entry["dropped"]["may_be_acknowledged"]
    results = [r["code"] for r in entry["repair"] if r["type"] == "tool/result"]
    assert results == ["TOOL_OUTCOME_UNKNOWN", "TOOL_OUTCOME_UNKNOWN"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty", b"", "an empty file"),
        ("session.v3.jsonl", b"", "an empty file"),
        ("picture.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a session log"),
        ("other.zstd", b"\x28\xb5\x2f\xfd\x04\x58\x01\x00\x00abcd", "not a session log"),
        ("text", b"hello\n", "not a session log"),
    ],
)
def test_a_file_that_is_no_log_gets_one_clear_line(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NotALog) as caught:
        verify(path)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_directory_or_a_missing_path_gets_one_clear_line(tmp_path):
    (tmp_path / "some" / "thing").mkdir(parents=True)
    (tmp_path / "some" / "dangling").symlink_to(tmp_path / "nowhere")
    for path, says in ((tmp_path, "without sessions"), (tmp_path / "no", "no such file")):
        with pytest.raises(NotALog, match=says) as caught:
            verify(path)
        assert "\n" not in str(caught.value)


def test_a_damaged_file_with_a_logs_name_is_a_log(tmp_path):
    path = tmp_path / "session.v3.jsonl.zstd"
    path.write_bytes(b"\x89PNG\r\n\x1a\n")
    assert _one(path)["status"] == "corrupt"


def test_a_log_under_another_name_is_read_all_the_same(make, tmp_path):
    for compression in ("zstd", "none"):
        path = make(compression, compression=compression)
        copy = tmp_path / f"copy-{compression}"
        copy.write_bytes(path.read_bytes())
        assert _one(copy)["status"] == "ok"


def test_the_samples_of_the_harness_are_reported_as_their_oracle_says(shared):
    samples = shared / "dsh" / "samples"
    entry = _one(samples / "migrated" / "s07-kill9-two-calls-raw" / "session.v3.jsonl")
    assert [(r["type"], r["code"], r["call_id"]) for r in entry["repair"]] == [
        ("tool/result", "TOOL_OUTCOME_UNKNOWN", "k1"),
        ("tool/result", "TOOL_NOT_STARTED", "k2"),
        ("step/end", None, None),
        ("turn/end", None, None),
    ]


def test_an_ignorable_event_of_a_plugin_is_no_fault(make, root, flush):
    path = make("s")
    log = JsonlBackend(root).open("s")
    log.append([draft("acme/custom", {"x": 1}, ignorable=True)], 1)
    flush(log)
    log.close()
    assert _one(path)["status"] == "ok"
