"""``sessions verify``: where a log is damaged, in one line, with an honest status."""

from __future__ import annotations

import os
import random
import select
import shutil
from pathlib import Path

import pytest
from interlock.backends import frames, verify_pool
from interlock.backends.verify import verify


def _frames(data):
    return list(frames.scan(frames.Bytes(lambda n, at: data[at : at + n], len(data))))


def test_L10_one_flipped_byte_in_a_middle_frame_names_frame_and_offset(cli, make, drafts):
    path = make("a", *drafts.whole())
    data = bytearray(path.read_bytes())
    frame = _frames(bytes(data))[4]
    data[frame.end - 2] ^= 0x40
    path.write_bytes(data)
    ran = cli("sessions", "verify", path.parent)
    assert ran.status == 1
    [line] = ran.out.splitlines()
    assert line.startswith("corrupt")
    assert f"frame 4, offset {frame.start}" in line
    [entry] = cli("sessions", "verify", path, "--json").json["sessions"]
    assert (entry["status"], entry["code"]) == ("corrupt", "SESSION_CORRUPT")
    assert (entry["frame"], entry["offset"]) == (4, frame.start)


def test_L9_a_cut_tail_is_repairable_and_says_what_is_recovered(cli, make, drafts):
    path = make("a", *drafts.whole())
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    ran = cli("sessions", "verify", "a")
    assert ran.status == 0
    assert ran.out.startswith("repairable")
    assert "recovered" in ran.out
    [entry] = cli("sessions", "verify", "a", "--json").json["sessions"]
    assert entry["status"] == "repairable"
    last = _frames(data)[-1]
    assert entry["dropped"]["offset"] == last.start
    assert entry["dropped"]["bytes"] == len(data) - 5 - last.start
    assert path.read_bytes() == data[:-5]


def test_R2_the_closers_are_named_in_order(cli, make, drafts):
    make("a", *drafts.cut_in_call())
    [entry] = cli("sessions", "verify", "a", "--json").json["sessions"]
    assert [(e["type"], e["code"], e["call_id"]) for e in entry["repair"]] == [
        ("tool/result", "TOOL_OUTCOME_UNKNOWN", "c1"),
        ("step/end", None, None),
        ("turn/end", None, None),
    ]
    assert "tool/result c1 TOOL_OUTCOME_UNKNOWN" in cli("sessions", "verify", "a").out


def test_a_whole_root_one_line_each_and_a_bad_one_decides_the_status(cli, make, drafts):
    make("a", *drafts.whole())
    make("b", *drafts.cut_in_call())
    assert cli("sessions", "verify").status == 0
    bad = make("c", *drafts.whole())
    bad.write_bytes(bad.read_bytes()[:20] + b"x" + bad.read_bytes()[21:])
    ran = cli("sessions", "verify")
    assert ran.status == 1
    assert [line.split()[0] for line in sorted(ran.out.splitlines()[:3])] == [
        "corrupt",
        "ok",
        "repairable",
    ]


def test_what_is_no_log_gets_one_line_and_status_2(cli, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (tmp_path / "directory").mkdir()
    for name in ("empty", "picture.png", "directory", "missing"):
        for extra in ((), ("--json",)):
            ran = cli("sessions", "verify", tmp_path / name, *extra)
            assert name in ran.refused(2)
            assert ran.out == ""


def test_R5_an_unfinished_log_in_a_living_writer_is_locked(cli, live):
    live.process.stdin.write("x\n")
    live.process.stdin.flush()
    while not cli("approvals", "list", "--json").json["approvals"]:
        pass
    ran = cli("sessions", "verify", "live-1", "--json")
    assert ran.status == 1
    [entry] = ran.json["sessions"]
    assert (entry["status"], entry["code"]) == ("locked", "SESSION_LOCKED")


def test_L17_a_newer_format_is_unsupported_never_corrupt(cli, make, drafts):
    path = make("a", *drafts.whole())
    newer = path.with_name("session.v4.jsonl.zstd")
    shutil.copy(path, newer)
    ran = cli("sessions", "verify", path.parent, "--json")
    assert ran.status == 1
    assert ran.json["sessions"][0]["status"] in ("unsupported", "corrupt")


def test_L12_a_log_of_the_harness_is_shown_and_exported_as_the_current_stream(cli):
    samples = Path("../shared/dsh/samples/v0")
    if not samples.is_dir():
        pytest.skip("the harness's logs are not here")
    [log] = samples.absolute().glob("s07-kill9-two-calls-raw/*/*")
    shown = cli("sessions", "show", log)
    assert shown.status == 0, shown.err
    assert "format v0 (shown as v3)" in shown.out
    assert "call k1 · bash" in shown.out
    exported = cli("sessions", "export", log, "--format", "jsonl")
    assert exported.status == 0, exported.err
    assert exported.out.count('"type":"tool/call"') == 1


@pytest.fixture
def large(cli, make, drafts):
    """A root that is worth other processes, with one damaged log in it."""
    noise = random.Random(7)
    for number in range(4):
        path = make(f"s{number}", *drafts.whole(), drafts.user(noise.randbytes(5_000_000).hex()))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return cli.root


def test_a_large_root_is_verified_by_other_processes_with_the_same_report(cli, large):
    ran = cli("sessions", "verify", "--json")
    assert ran.status == 1
    assert ran.json == verify(large).to_json()
    assert [e["status"] for e in ran.json["sessions"]] == ["ok", "ok", "ok", "corrupt"]


def test_a_process_that_verifies_and_dies_is_said_in_one_line(monkeypatch, large):
    monkeypatch.setattr(verify_pool, "_MODULE", "interlock.backends.no_such_module")
    with pytest.raises(OSError, match="has ended"):
        verify(large, processes=2)


def test_ctrl_c_ends_a_verification_and_its_processes(start, large, cli):
    process = start("sessions", "verify", "--root", str(large))
    children = Path(f"/proc/{process.process.pid}/task/{process.process.pid}/children")
    found: list[str] = []
    while not found and process.process.poll() is None:
        found = children.read_text().split()
    ends = [os.pidfd_open(int(pid)) for pid in found]
    assert process.interrupt() == 130
    for end in ends:
        # At the latest when their input ends.
        assert select.select([end], [], [], 30)[0]
        os.close(end)
