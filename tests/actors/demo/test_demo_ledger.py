"""The ledger's own look into the log file, which shares no code with the log's writer."""

from pathlib import Path

import pytest
import zstandard
from interlock.actors.demo import ledger
from interlock.actors.tools import ToolContext
from interlock.backends.event import Event, draft, encode_line


def frame(*call_ids: str) -> bytes:
    lines = [
        encode_line(Event("tool/call", n, 1, draft("tool/call", {"callId": call_id}).data))
        for n, call_id in enumerate(call_ids)
    ]
    return zstandard.ZstdCompressor(write_checksum=True).compress(b"".join(lines))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "root" / "--x--" / "s" / "session.v3.jsonl.zstd"
    path.parent.mkdir(parents=True)
    return path


def test_K2_a_call_is_found_in_any_frame_of_its_file(log: Path, tmp_path: Path) -> None:
    log.write_bytes(frame("c1") + frame("c2", "c3"))
    found = [ledger.in_log_file(tmp_path / "root", "s", c) for c in ("c1", "c3", "c4")]
    assert found == [True, True, False]


def test_K2_a_call_in_a_frame_that_is_not_whole_is_not_there_yet(log: Path, tmp_path: Path) -> None:
    log.write_bytes(frame("c1") + frame("c2")[:-3])
    found = [ledger.in_log_file(tmp_path / "root", "s", c) for c in ("c1", "c2")]
    assert found == [True, False]


def test_a_raw_log_is_read_too(log: Path, tmp_path: Path) -> None:
    row = encode_line(Event("tool/call", 0, 1, draft("tool/call", {"callId": "c1"}).data))
    log.with_suffix("").write_bytes(row + row[:10])
    assert ledger.in_log_file(tmp_path / "root", "s", "c1")


def test_K2_a_beginning_says_whether_its_call_was_in_the_file(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = tmp_path / "ledger.jsonl"
    monkeypatch.setenv(ledger.LEDGER, str(book))
    monkeypatch.setenv(ledger.ROOT, str(tmp_path / "root"))
    log.write_bytes(frame("c1"))
    for call_id in ("c1", "c2"):
        ledger.append(ToolContext("s", call_id, "write_note", idempotency_key="k"), "begin")
    told = [(entry.call_id, entry.recorded, entry.key) for entry in ledger.read(book)]
    assert told == [("c1", True, "k"), ("c2", False, "k")]
