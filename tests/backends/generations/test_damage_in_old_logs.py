"""Damage in logs of old generations: the same rules as in the current one (L9, L10)."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from interlock.backends import frames
from interlock.backends.errors import SessionError
from interlock.backends.generations.stored import read_stored
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log


def code_of(read, path) -> str:
    with pytest.raises(SessionError) as caught:
        read(path)
    return caught.value.code


@pytest.fixture
def unmigratable(write, old):
    """A sound v0 log that no edge takes: a message before the first step."""

    def make(*more):
        return write(0, [old.turn(), old.user(), old.turn_end(), *more])

    return make


def test_L10_damage_behind_what_cannot_be_carried_over_is_damage(unmigratable, old):
    path = unmigratable()
    assert code_of(read_log, path) == "SESSION_FORMAT_UNSUPPORTED"
    with path.open("a") as file:
        file.write("not json\n" + json.dumps({"seq": 4, "time": 1} | old.turn_end()) + "\n")
    assert code_of(read_log, path) == "SESSION_CORRUPT"


def test_L10_another_sessions_log_is_damage_before_it_is_unsupported(unmigratable):
    path = unmigratable()
    assert code_of(lambda p: read_log(p, expect_id="other"), path) == "SESSION_CORRUPT"


def test_L10_what_breaks_the_logs_own_generation_is_damage(write, old):
    unmarked = old.user()
    del unmarked["surfaceOp"]
    path = write(0, [old.turn(), old.step(), unmarked])
    assert code_of(read_log, path) == code_of(read_stored, path) == "SESSION_CORRUPT"
    cited = old.event("todo/write", todos=[]) | {"sourceEventSeqs": [0]}
    assert code_of(read_log, write(1, [old.turn(), cited])) == "SESSION_CORRUPT"


def test_L10_an_unknown_type_comes_before_wrong_members(write, old):
    wrong = old.turn() | {"more": 1}
    path = write(0, [wrong, old.event("acme/x")])
    assert code_of(read_log, path) == "SESSION_FORMAT_UNSUPPORTED"
    assert code_of(read_log, write(0, [wrong])) == "SESSION_CORRUPT"
    both = old.event("acme/x") | {"more": 1}
    assert code_of(read_log, write(0, [both])) == "SESSION_FORMAT_UNSUPPORTED"
    assert code_of(read_log, write(2, [both])) == "SESSION_FORMAT_UNSUPPORTED"
    assert code_of(read_log, write(0, [both | {"ignorable": True}])) == "SESSION_CORRUPT"


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "change",
    [
        {"dt": [1]},
        {"dt": [0.5, 1]},
        {"dt": [2**53, 2**53]},
        {"texts": []},
        {"texts": ["a", 1, "c"]},
        {"index": -1},
        {"more": 1},
    ],
)
def test_L10_a_malformed_packed_row_is_an_unreadable_line(write, old, version, change):
    data = {"turn": 1, "step": 1, "index": 0, "dt": [0, 0], "texts": ["a", "b", "c"]} | change
    rows = [old.turn(), old.step(), {"type": "text-chunks", "data": data}]
    dropped = read_log(write(version, rows)).dropped
    assert (dropped.records, dropped.may_be_acknowledged) == (1, True)
    path = write(version, [*rows, old.turn_end()])
    assert code_of(read_log, path) == "SESSION_CORRUPT"


def test_L10_a_packed_row_is_no_row_of_v2(write, old):
    data = {"turn": 1, "step": 1, "index": 0, "dt": [], "texts": ["a"]}
    path = write(2, [old.turn(), {"type": "text-chunks", "data": data}])
    assert read_log(path).dropped.records == 1


def test_L9_a_torn_frame_of_an_old_log_gives_up_its_whole_rows(write, old):
    rows = [old.turn(), old.event("todo/write", todos=[]), old.event("plan/mode", active=True)]
    head, *lines = write(1, rows).read_bytes().splitlines(keepends=True)
    whole = frames.encode(head) + frames.encode(lines[0])
    last = frames.encode(b"".join(lines[1:]))
    path = write(1, rows).with_name("session.v1.jsonl.zstd")
    path.write_bytes(whole + last[:-2])
    reading = read_log(path)
    assert [event.type for event in reading.events] == ["turn/start", "todo/write", "plan/mode"]
    assert (reading.dropped.offset, reading.dropped.recovered) == (len(whole), 2)


def test_L17_an_old_or_a_foreign_log_keeps_no_other_from_being_listed(unmigratable, root, say):
    unmigratable()
    foreign = root / "--work--" / "f"
    foreign.mkdir()
    (foreign / "session.v7.jsonl").write_text('{"type":"session","version":7}\n')
    listings = {listing.directory.name: listing for listing in JsonlBackend(root).list()}
    assert (listings["s"].version, listings["s"].header.id) == (0, "s")
    assert listings["f"].code == "SESSION_FORMAT_UNSUPPORTED"


def test_a_long_old_log_is_read_in_little_memory(write, old):
    rows = [old.turn(), old.step()]
    for _ in range(60):
        data = {"turn": 1, "step": 1, "index": 0, "dt": [0] * 499, "texts": ["word "] * 500}
        rows += [
            {"type": "text-chunks", "data": data},
            old.chunk("finish", reason={"kind": "stop"}),
        ]
    path = write(0, rows)
    size = path.stat().st_size
    read_log(path)
    tracemalloc.start()
    try:
        assert read_log(path).last_seq > 60
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > 300_000
    # Far below the bound of ten times the file: one attempt and a chunk of the file are held.
    assert peak < size + 4 * 1024 * 1024
