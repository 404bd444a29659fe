"""``sessions tail``: the end of a log, and what comes after it."""

from __future__ import annotations

import json

import pytest
from interlock.actors.cli.follow import Follower
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend


@pytest.fixture(params=["zstd", "none"])
def log(request, cli):
    backend = JsonlBackend(cli.root, compression=request.param)
    log = backend.create(Header(id="a", created_at=1, cwd="/work"))
    yield log
    log.close()
    backend.close()


def test_the_last_events_one_a_line(cli, make, drafts):
    make("a", *drafts.whole())
    lines = cli("sessions", "tail", "a", "-n", "2").out.splitlines()
    assert [line.split()[0] for line in lines] == ["7", "8"]
    assert "turn/end" in lines[1]
    document = cli("sessions", "tail", "a", "-n", "2", "--json").json
    assert [event["seq"] for event in document["events"]] == [7, 8]


def test_following_shows_each_event_once_as_it_comes(cli, start, make, drafts, log):
    make.add(log, drafts.user("first"))
    tail = start("sessions", "tail", "a", "--follow", "--json")
    assert json.loads(tail.line())["seq"] == 0
    for number in range(1, 4):
        make.add(log, drafts.user(f"n{number}"))
        assert json.loads(tail.line())["seq"] == number
    assert tail.interrupt() == 0
    assert tail.rest() == []
    assert tail.process.stderr.read() == ""


def test_L08_what_is_cut_anywhere_is_not_there_yet(make, drafts, log):
    for number in range(3):
        make.add(log, drafts.user(f"n{number}"))
    first = log.path.stat().st_size
    make.add(log, drafts.user("x"), drafts.user("y"))
    data = log.path.read_bytes()
    for cut in range(first, len(data)):
        log.path.write_bytes(data[:cut])
        follower = Follower(log.path, 0)
        seqs = [event.seq for event in follower.poll()]
        assert seqs in ([0, 1, 2], [0, 1, 2, 3]), cut
        log.path.write_bytes(data)
        assert seqs + [event.seq for event in follower.poll()] == [0, 1, 2, 3, 4], cut
        assert follower.poll() == []
        follower.close()


def test_L6_a_write_that_was_put_back_and_written_again_is_shown_once(make, drafts, log):
    make.add(log, drafts.user("x"))
    before = log.path.read_bytes()
    make.add(log, drafts.user("y"))
    after = log.path.read_bytes()
    follower = Follower(log.path, 0)
    assert [event.seq for event in follower.poll()] == [0, 1]
    log.path.write_bytes(before)
    assert follower.poll() == []
    log.path.write_bytes(after)
    assert follower.poll() == []
    make.add(log, drafts.user("z"))
    assert [event.seq for event in follower.poll()] == [2]
    follower.close()


def test_another_file_in_its_place_is_read_from_its_start(make, drafts, log):
    make.add(log, drafts.user("x"))
    follower = Follower(log.path, 0)
    assert len(follower.poll()) == 1
    make.add(log, drafts.user("y"))
    copy = log.path.with_name("copy")
    copy.write_bytes(log.path.read_bytes())
    copy.rename(log.path)
    assert [event.seq for event in follower.poll()] == [1]
    follower.close()


def test_following_a_live_runtime_needs_no_lock(cli, start, live):
    live.process.stdin.write("hello\n")
    live.process.stdin.flush()
    while not (waiting := cli("approvals", "list", "--json").json["approvals"]):
        pass
    tail = start("sessions", "tail", "live-1", "--follow", "--json", "-n", "100")
    cli("approvals", "allow", waiting[0]["id"])
    seen = []
    while not seen or seen[-1]["type"] != "turn/end":
        seen.append(json.loads(tail.line()))
    assert [event["seq"] for event in seen] == list(range(len(seen)))
    assert live.line() == "call None sent hello"
    assert tail.interrupt() == 0


def test_a_log_that_is_damaged_while_it_is_followed_is_said_in_one_line(cli, start, make, drafts):
    path = make("a", *drafts.whole())
    tail = start("sessions", "tail", "a", "--follow", "-n", "1")
    tail.line()
    with path.open("ab") as file:
        file.write(b"this is no frame, and no cut explains it")
    assert tail.process.wait(60) == 1
    [line] = tail.process.stderr.read().splitlines()
    assert "damaged behind offset" in line


def test_ctrl_c_elsewhere_than_in_following_is_130(start):
    process = start("exec", "--", "sh", "-c", "echo up; sleep 600")
    assert process.line() == "up"
    assert process.interrupt() == 130
