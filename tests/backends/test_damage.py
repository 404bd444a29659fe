"""L9, L10: each way a file can be hurt, built by hand, in the third generation's form."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import zstandard
from interlock.backends import frames
from interlock.backends.disk import OsDisk
from interlock.backends.errors import SessionError
from interlock.backends.event import encode_line
from interlock.backends.fold import LogFold
from interlock.backends.header import encode_header
from interlock.backends.reading import Reading, read_events, read_log


@pytest.fixture
def lines(say) -> list[bytes]:
    """A header and twelve events: a whole turn (0 to 7), then an open one (8 to 11)."""
    fold = LogFold()
    events = fold.admit(
        [
            say.turn(),
            say.step(),
            say.user("hi"),
            say.message("c"),
            say.call("c"),
            say.result("c", 4),
            say.step_end(),
            say.turn_end(),
            say.turn(2),
            say.step(turn=2),
            say.message("k", turn=2),
            say.call("k", turn=2),
        ],
        5,
    )
    return [encode_header(say.header()), *map(encode_line, events)]


class File:
    """A log file in the making: frames, or the same bytes without."""

    def __init__(self, directory: Path, *, compressed: bool) -> None:
        self.path = directory / f"session.v3.jsonl{'.zstd' if compressed else ''}"
        self.compressed = compressed
        self.ends: list[int] = []
        self.data = b""

    def add(self, *batches: Sequence[bytes]) -> File:
        for batch in batches:
            content = b"".join(batch)
            self.data += frames.encode(content) if self.compressed else content
            self.ends.append(len(self.data))
        return self

    def read(self) -> Reading:
        self.path.write_bytes(self.data)
        try:
            return read_log(self.path)
        finally:
            assert self.path.read_bytes() == self.data, "a reader changed the file"
            assert [path.name for path in self.path.parent.iterdir()] == [self.path.name]

    def refused(self) -> SessionError:
        with pytest.raises(SessionError) as caught:
            self.read()
        return caught.value


@pytest.fixture
def file(tmp_path) -> File:
    return File(tmp_path, compressed=True)


@pytest.fixture
def raw(tmp_path) -> File:
    return File(tmp_path, compressed=False)


def _row(**members) -> bytes:
    return json.dumps(members).encode() + b"\n"


def test_L8_a_file_is_a_header_frame_and_a_frame_for_each_batch(file, lines):
    reading = file.add(lines[:1], lines[1:3], lines[3:]).read()

    assert (reading.last_seq, reading.dropped, reading.compression) == (11, None, "zstd")
    assert [encode_line(event) for event in reading.events] == lines[1:]


def test_L8_a_raw_file_holds_the_same_lines(raw, lines):
    reading = raw.add(lines).read()
    assert [encode_line(event) for event in reading.events] == lines[1:]
    assert reading.compression == "none"


def test_a_log_with_a_header_only_has_no_events(file, raw, lines):
    for one in (file.add(lines[:1]), raw.add(lines[:1])):
        assert one.read().last_seq == -1
        one.path.unlink()


def test_L9_a_file_cut_anywhere_in_its_last_frame_keeps_the_frames_before(file, lines):
    file.add(lines[:1], lines[1:9], lines[9:])
    whole, start, end = file.data, file.ends[1], file.ends[2]
    for length in range(start + 1, end):
        file.data = whole[:length]
        reading = file.read()
        assert 7 <= reading.last_seq <= 11
        dropped = reading.dropped
        assert dropped is not None
        assert (dropped.offset, dropped.bytes) == (start, length - start)
        assert not dropped.may_be_acknowledged
        assert dropped.recovered == reading.last_seq - 7


def test_L9_a_last_frame_without_its_checksum_gives_up_all_its_records(file, lines):
    file.add(lines[:1], lines[1:9], lines[9:])
    file.data = file.data[:-2]
    reading = file.read()
    assert reading.last_seq == 11
    assert reading.dropped.recovered == 4
    assert reading.dropped.records == 0


def test_L9_a_long_torn_frame_gives_up_its_complete_records_block_by_block(file, lines, say):
    fold = LogFold()
    notes = fold.admit([say.note(f"{i} {'x' * (i % 97)}" * 20) for i in range(3000)], 5)
    content = b"".join(map(encode_line, notes))
    # Incompressible enough to make many blocks.
    frame = zstandard.ZstdCompressor(level=1, write_checksum=True).compress(content)
    file.add(lines[:1])
    file.data += frame[: len(frame) * 2 // 3]
    reading = file.read()
    assert 0 < reading.last_seq + 1 < 3000
    assert reading.dropped.recovered == reading.last_seq + 1
    assert [encode_line(e) for e in reading.events] == [
        encode_line(e) for e in notes[: reading.last_seq + 1]
    ]


def test_L9_fewer_than_four_stray_bytes_are_a_torn_frame(file, lines):
    file.add(lines[:1], lines[1:])
    for stray in (b"x", b"xy", b"\0\0\0"):
        file.data = file.data[: file.ends[-1]] + stray
        reading = file.read()
        assert (reading.last_seq, reading.dropped.bytes) == (11, len(stray))


def test_L9_a_raw_file_cut_in_its_last_line_loses_that_line_and_says_so(raw, lines):
    raw.add(lines)
    whole = raw.data
    for cut in range(1, len(lines[-1])):
        raw.data = whole[:-cut]
        reading = raw.read()
        dropped = reading.dropped
        assert (reading.last_seq, dropped.records) == (10, 1)
        assert dropped.offset + dropped.bytes == len(raw.data)
        assert not dropped.may_be_acknowledged


@pytest.mark.parametrize(
    "bad", [b"garbage\n", b"[]\n", b'{"type":"turn/start"}\n', "gap", "repeat"]
)
def test_L9_a_raw_tail_from_a_bad_line_on_is_dropped_in_an_open_turn(raw, lines, bad):
    rows = {"gap": lines[12], "repeat": lines[9]}
    raw.add(lines[:11], [rows.get(bad, bad)], lines[12:])
    reading = raw.read()
    dropped = reading.dropped
    assert reading.last_seq == 9
    assert (dropped.offset, dropped.records) == (raw.ends[0], 2)
    # R1: whole lines are gone, and they may have been acknowledged.
    assert dropped.may_be_acknowledged


@pytest.mark.parametrize("bad", [b"garbage\n", "gap"])
def test_L9_a_bad_last_row_gets_the_same_verdict_as_one_with_a_row_after_it(raw, lines, bad):
    raw.add(lines[:11], [lines[12] if bad == "gap" else bad])
    reading = raw.read()
    assert (reading.last_seq, reading.dropped.records) == (9, 1)
    assert reading.dropped.may_be_acknowledged


@pytest.mark.parametrize("bad", [b"garbage\n", "gap", "repeat"])
def test_L10_a_bad_raw_line_before_a_turn_end_refuses(raw, lines, bad):
    rows = {"gap": lines[5], "repeat": lines[3]}
    raw.add(lines[:4], [rows.get(bad, bad)], lines[5:])
    error = raw.refused()
    assert error.code == "SESSION_CORRUPT"
    assert error.details["offset"] == raw.ends[0]
    assert error.details["last_good_seq"] == 2
    assert str(raw.path) in error.message


def test_L10_a_turn_end_with_a_wrong_seq_refuses(raw, lines):
    raw.add(lines[:8], [_row(type="turn/end", seq=9, time=5, data={"turn": 1, "reason": {}})])
    assert raw.refused().code == "SESSION_CORRUPT"


@pytest.mark.parametrize("frame", [0, 1, 2])
def test_L10_a_flipped_bit_in_any_complete_frame_refuses_and_is_placed(file, lines, frame):
    file.add(lines[:1], lines[1:6], lines[6:])
    starts = [0, *file.ends]
    middle = (starts[frame] + starts[frame + 1]) // 2
    whole = file.data
    for at in (middle, starts[frame + 1] - 1):
        file.data = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        error = file.refused()
        assert error.code == "SESSION_CORRUPT"
        # A flip in a block's header can move the end of its frame, never its start.
        assert error.details["offset"] in starts
        assert error.details["offset"] >= starts[frame]
        assert error.details["last_good_seq"] >= (-1, -1, 4)[frame]


def test_L10_bytes_that_are_no_frame_refuse(file, lines):
    file.add(lines[:1], lines[1:])
    file.data += b"plain text"
    error = file.refused()
    assert (error.code, error.details["offset"]) == ("SESSION_CORRUPT", file.ends[-1])
    assert (error.details["frame"], error.details["last_good_seq"]) == (2, 11)


@pytest.mark.parametrize("tail", [b"\0" * 100, b"\0" * 5000], ids=["100", "5000"])
def test_L10_a_run_of_nuls_is_damage_and_no_torn_tail(file, raw, lines, tail):
    file.add(lines[:1], lines[1:])
    file.data += tail
    assert file.refused().code == "SESSION_CORRUPT"
    # The same inside a frame: its length was kept and its end zeroed.
    file.data = file.data[: file.ends[0]] + frames.encode(b"".join(lines[1:]))[:60] + tail
    assert file.refused().code == "SESSION_CORRUPT"
    file.path.unlink()
    raw.add(lines)
    raw.data += tail
    assert raw.refused().code == "SESSION_CORRUPT"
    raw.data += b"\n"
    assert raw.refused().code == "SESSION_CORRUPT"


def test_L10_a_complete_frame_that_ends_in_a_line_refuses(file, lines):
    file.add(lines[:1], lines[1:3], [lines[3][:20]])
    error = file.refused()
    assert (error.code, error.details["frame"]) == ("SESSION_CORRUPT", 2)


@pytest.mark.parametrize("bad", [b"garbage\n", "gap"])
def test_L10_a_bad_line_in_a_complete_frame_refuses_even_in_an_open_turn(file, lines, bad):
    file.add(lines[:1], lines[1:10], [lines[11] if bad == "gap" else bad])
    error = file.refused()
    assert (error.code, error.details["frame"]) == ("SESSION_CORRUPT", 2)
    assert (error.details["offset"], error.details["last_good_seq"]) == (file.ends[1], 8)


def test_a_header_frame_with_another_row_refuses(file, lines):
    assert file.add(lines[:2]).refused().code == "SESSION_CORRUPT"


@pytest.mark.parametrize("length", [0, 1, 10])
def test_a_file_without_a_whole_header_refuses(file, raw, lines, length):
    for one in (file.add(lines[:1]), raw.add(lines[:1])):
        one.data = one.data[:length]
        assert one.refused().code == "SESSION_CORRUPT"
        one.path.unlink()


def test_a_header_that_is_not_json_refuses(raw, lines):
    assert raw.add([b"{nope\n"], lines[1:]).refused().code == "SESSION_CORRUPT"


def test_a_file_name_of_another_generation_than_the_header_refuses(raw, lines):
    raw.path = raw.path.with_name("session.v2.jsonl")
    assert raw.add(lines).refused().code == "SESSION_CORRUPT"


def test_L10_a_newer_version_is_unsupported_even_where_the_rest_is_unreadable(raw, lines):
    raw.path = raw.path.with_name("session.v9.jsonl")
    header = lines[0].replace(b'"version":3', b'"version":9')
    error = raw.add([header, b"\0\0 not for us"]).refused()
    assert error.code == "SESSION_FORMAT_UNSUPPORTED"
    assert "newer version" in error.message


def test_L10_an_unknown_required_type_is_unsupported_and_an_ignorable_one_is_kept(file, lines):
    new = {"type": "future/thing", "seq": 12, "time": 5, "data": {}}
    file.add(lines[:1], lines[1:], [_row(**new)])
    error = file.refused()
    assert error.code == "SESSION_FORMAT_UNSUPPORTED"
    assert "future/thing" in error.message
    assert "newer version" in error.message

    file.data = file.data[: file.ends[1]] + frames.encode(_row(**new, ignorable=True))
    reading = file.read()
    assert reading.last_seq == 12
    assert list(reading.events)[-1].type == "future/thing"


def test_L10_damage_comes_before_an_unknown_type(file, lines):
    file.add(lines[:1], [_row(type="future/thing", seq=0, time=5, data={})], [b"garbage\n"])
    assert file.refused().code == "SESSION_CORRUPT"


def test_L10_an_unknown_type_comes_before_a_wrong_envelope(raw, lines):
    raw.add(
        lines[:1],
        [_row(type="turn/start", seq=0, time=5, data={}, extra=1)],
        [_row(type="future/thing", seq=1, time=5, data={})],
    )
    assert raw.refused().code == "SESSION_FORMAT_UNSUPPORTED"


@pytest.mark.parametrize("more", [{"extra": 1}, {"sourceEventSeqs": [7]}, {"surfaceOp": 1}])
@pytest.mark.parametrize("ignorable", [False, True])
def test_L10_an_unknown_type_comes_before_its_own_wrong_envelope(raw, lines, more, ignorable):
    row = {"type": "future/thing", "seq": 0, "time": 5, "data": {}} | more
    raw.add(lines[:1], [_row(**row | ({"ignorable": True} if ignorable else {}))])
    expected = "SESSION_CORRUPT" if ignorable else "SESSION_FORMAT_UNSUPPORTED"
    assert raw.refused().code == expected


def test_a_log_of_another_session_is_refused_where_one_was_asked_for(raw, lines):
    raw.add(lines).read()
    assert read_log(raw.path, expect_id="s").last_seq == 11
    with pytest.raises(SessionError, match="belongs to session 's'") as caught:
        read_log(raw.path, expect_id="other")
    assert caught.value.code == "SESSION_CORRUPT"


def test_a_file_that_a_writer_takes_back_under_the_reader_is_read_again(file, lines, monkeypatch):
    monkeypatch.setattr(frames, "_FIRST_CHUNK", 64)
    monkeypatch.setattr(frames, "_CHUNK", 64)
    file.add(lines[:1], lines[1:6], lines[6:])
    file.path.write_bytes(file.data)

    class TakingBack(OsDisk):
        """Truncates the file, as a writer does after a failed sync, between two looks at it."""

        done = False

        def pread(self, fd, length, offset):
            if offset == file.ends[1] and length > 64 and not self.done:
                self.done = True
                os.truncate(file.path, file.ends[1] + 4)
            return super().pread(fd, length, offset)

    disk = TakingBack()
    reading = read_log(file.path, disk=disk)
    assert disk.done
    assert (reading.last_seq, reading.dropped.bytes) == (4, 4)
    file.path.write_bytes(file.data)
    assert [e.seq for e in read_events(file.path, disk=TakingBack())] == [0, 1, 2, 3, 4]


def test_an_unknown_type_in_a_dropped_tail_is_not_seen(raw, lines):
    raw.add(lines[:11], [b"garbage\n"], [_row(type="future/thing", seq=11, time=5, data={})])
    assert raw.read().last_seq == 9


@pytest.mark.parametrize(
    "row",
    [
        {"type": "request/header", "data": {"header": {"system": "x"}}},
        {"type": "system/message", "data": {}},
        {"type": "tool/code-dispatch", "data": {}},
    ],
)
def test_what_no_v3_file_may_hold_refuses_even_behind_a_damaged_row(raw, lines, row):
    raw.add(lines[:11], [b"garbage\n"], [_row(seq=11, time=5, **row)])
    code = raw.refused().code
    retired = row["type"] == "tool/code-dispatch"
    assert code == ("SESSION_FORMAT_UNSUPPORTED" if retired else "SESSION_CORRUPT")


@pytest.mark.parametrize(
    "members",
    [
        {"type": "user/message"},
        {"type": "turn/end", "surfaceOp": "append"},
        {"type": "turn/end", "sourceEventSeqs": [1]},
        {"type": "turn/end", "extra": 1},
        {"type": "turn/end", "ignorable": False},
        {"type": "request/header", "data": {"header": {"tools": []}}},
        {
            "type": "user/message",
            "data": {"id": "a", "role": "user", "content": [], "source": {"kind": "user"}},
            "surfaceOp": {"op": "replace", "startSeq": 1, "endSeq": 2},
            "sourceEventSeqs": [1, 2],
        },
        {
            "type": "user/message",
            "data": {"id": "a", "role": "assistant", "content": [], "source": {"kind": "user"}},
            "surfaceOp": "append",
        },
    ],
)
def test_a_broken_envelope_message_or_surface_refuses(raw, lines, members):
    raw.add(lines, [_row(**{"seq": 12, "time": 5, "data": {}} | members)])
    error = raw.refused()
    assert (error.code, error.details["last_good_seq"]) == ("SESSION_CORRUPT", 11)


def test_turns_and_steps_that_do_not_pair_are_read_all_the_same(raw, lines):
    rows = [_row(type="turn/end", seq=0, time=5, data={"turn": 7, "reason": {"kind": "x"}})]
    rows += [_row(type="step/end", seq=1, time=5, data={"turn": 1, "step": 1})]
    rows += [_row(type="tool/call", seq=2, time=5, data={"callId": "nobody"})]
    reading = raw.add(lines[:1], rows).read()
    assert reading.last_seq == 2


def test_members_beyond_the_known_ones_survive_reading(raw, lines):
    row = _row(type="turn/start", seq=0, time=5, data={"turn": 1, "plugin": {"x": [1]}})
    [event] = raw.add(lines[:1], [row]).read().events
    assert event.data == {"turn": 1, "plugin": {"x": [1]}}


def test_a_seeded_header_and_its_marker_need_each_other(raw, say, lines):
    marker = _row(type="session/end-seed", seq=0, time=5, data={"inherited": True})
    assert raw.add(lines[:1], [marker]).refused().code == "SESSION_CORRUPT"
    seeded = encode_header(say.header(is_seeded=True))
    raw.data = seeded + marker
    assert raw.read().fold.inherited_cut == 0
    raw.data = seeded
    assert raw.refused().code == "SESSION_CORRUPT"


def test_bounded_memory_a_frame_with_an_absurd_window_is_refused(file, lines):
    file.add(lines[:1])
    # Window descriptor 0xF8: 2 TiB. The frame would be 15 bytes long.
    file.data += b"\x28\xb5\x2f\xfd" + b"\x04\xf8" + b"\x01\x00\x00" + b"abcd"
    error = file.refused()
    assert error.code == "SESSION_CORRUPT"
    assert "window" in error.message


def test_bounded_memory_a_small_frame_with_a_huge_line_is_refused(file, lines, monkeypatch):
    monkeypatch.setattr("interlock.backends.source.LINE_LIMIT", 1_000_000)
    file.add(lines[:1], [b'"' + b"x" * 5_000_000 + b'"\n'])
    assert len(file.data) < 2000
    assert "longer than" in file.refused().message


def test_L8_a_frame_without_a_checksum_is_refused(file, lines):
    file.add(lines[:1])
    file.data += zstandard.ZstdCompressor(write_checksum=False).compress(b"".join(lines[1:]))
    assert "checksum" in file.refused().message


def test_frames_without_a_content_size_are_read(file, lines):
    compressor = zstandard.ZstdCompressor(write_checksum=True, write_content_size=False)
    file.data = compressor.compress(lines[0]) + compressor.compress(b"".join(lines[1:]))
    assert file.read().last_seq == 11


def test_events_before_the_damage_can_still_be_read(file, lines):
    file.add(lines[:1], lines[1:6], [b"garbage\n"])
    file.path.write_bytes(file.data)
    events = read_events(file.path)
    seen = [next(events).seq for _ in range(5)]
    with pytest.raises(SessionError):
        next(events)
    assert seen == [0, 1, 2, 3, 4]


def test_events_are_read_from_any_seq_to_any_other(file, lines):
    file.add(lines[:1], lines[1:6], lines[6:])
    file.path.write_bytes(file.data)
    assert [event.seq for event in read_events(file.path, 3, 7)] == [3, 4, 5, 6]
    assert [event.seq for event in read_events(file.path, 10)] == [10, 11]
