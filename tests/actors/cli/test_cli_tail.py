"""``sessions tail``: the end of a log, and what comes after it."""

from __future__ import annotations

import json
import signal

import pytest
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


def test_L08_following_shows_each_event_once_and_takes_half_a_batch_for_not_there_yet(
    cli, start, make, drafts, log
):
    make.add(log, drafts.user("first"))
    tail = start("sessions", "tail", "a", "--follow", "--json")
    assert json.loads(tail.line())["seq"] == 0
    for number in range(1, 4):
        make.add(log, drafts.user(f"n{number}"))
        assert json.loads(tail.line())["seq"] == number
    # Half of the next batch: nothing may be said of it, neither an event nor damage.
    before = log.path.read_bytes()
    make.add(log, drafts.user("the fifth"), drafts.user("the sixth"))
    batch = log.path.read_bytes()[len(before) :]
    assert [json.loads(tail.line())["seq"] for _ in range(2)] == [4, 5]
    again = start("sessions", "tail", "a", "--follow", "--json", "-n", "0")
    copy = log.path.with_name("copy")
    copy.write_bytes(before + batch[: len(batch) // 2])
    copy.rename(log.path)
    with log.path.open("ab") as file:
        file.write(batch[len(batch) // 2 :])
    for process in (tail, again):
        assert process.interrupt() == 0
        assert process.no_line() or process.line() is None
        assert process.process.stderr.read() == ""


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


def test_ctrl_c_without_follow_is_130(cli, live, start):
    assert signal.SIGINT  # following ends in order; anything else was cut short
    process = start("exec", "--", "sh", "-c", "echo up; sleep 600")
    assert process.line() == "up"
    assert process.interrupt() == 130
