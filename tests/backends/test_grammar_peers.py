"""Our grammar against logs that the harness's own codec and restorer accepted (Testing, 6)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interlock.backends.event import Draft, decode_line, encode_line, to_json
from interlock.backends.fold import LogFold
from interlock.backends.reading import read_log

SAMPLES = Path(__file__).parents[2] / ".." / "shared" / "dsh" / "samples"
MIGRATED = sorted(SAMPLES.glob("migrated/*/session.v3.jsonl"))
PUBLIC = [
    path
    for path in sorted(SAMPLES.glob("public/v3-*/session.v3.jsonl"))
    if "__restored" in path.parent.name or "preview" in path.parent.name
]
if not SAMPLES.is_dir():
    pytest.skip("../shared is not there", allow_module_level=True)


def _rows(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)[1:]


@pytest.mark.parametrize("path", [*MIGRATED, *PUBLIC], ids=lambda path: path.parent.name)
def test_L1_a_log_that_the_harness_restores_is_admitted(path: Path):
    events = [decode_line(row) for row in _rows(path)]
    fold = LogFold()
    drafts = [Draft(e.type, e.raw, e.ignorable, e.surface_op, e.sources) for e in events]

    admitted = fold.admit(drafts, 7)

    assert [(e.type, e.seq, e.data) for e in admitted] == [(e.type, e.seq, e.data) for e in events]


@pytest.mark.parametrize("path", [*MIGRATED, *PUBLIC], ids=lambda path: path.parent.name)
def test_rows_decode_to_what_json_says_and_encode_to_the_same(path: Path):
    for row in _rows(path):
        event = decode_line(row)
        stored = json.loads(row)
        if "sourceEventSeqs" not in stored or len(stored["sourceEventSeqs"]) < 3:
            assert to_json(event) == stored
        assert decode_line(encode_line(event)) == event
        assert json.loads(encode_line(event)) == stored


@pytest.mark.parametrize("path", MIGRATED, ids=lambda path: path.parent.name)
def test_reading_gives_the_events_that_the_migration_oracle_counts(path: Path):
    oracle = json.loads((SAMPLES / "expected" / "_migrations.json").read_text())
    expected = oracle[path.parent.name]["v3"]

    reading = read_log(path)

    assert reading.dropped is None
    last = -1 if expected["lastSeq"] is None else expected["lastSeq"]
    assert (reading.last_seq, len(list(reading.events))) == (last, expected["events"])
    cut = reading.fold.inherited_cut
    assert (0 if cut is None else cut) == expected["inheritedEventCount"]


@pytest.mark.parametrize("path", PUBLIC, ids=lambda path: path.parent.name)
def test_reading_gives_the_events_that_the_public_oracle_counts(path: Path):
    expected = json.loads((SAMPLES / "expected" / "_public.json").read_text())[path.parent.name]

    reading = read_log(path)

    assert (reading.last_seq, len(list(reading.events))) == (
        expected["lastSeq"],
        expected["events"],
    )


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("migrated/*/*.zstd")), ids=str)
def test_L8_a_compressed_log_of_the_harness_reads_as_its_raw_twin(path: Path):
    raw = path.with_suffix("")
    assert [to_json(e) for e in read_log(path).events] == [to_json(e) for e in read_log(raw).events]
