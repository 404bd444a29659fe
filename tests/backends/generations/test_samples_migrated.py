"""Every sample as the current event stream, against what the harness's own edges made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interlock.backends.disk import OsDisk
from interlock.backends.errors import SessionError
from interlock.backends.event import to_json
from interlock.backends.generations.rows import Run
from interlock.backends.generations.rows import to_json as row_to_json
from interlock.backends.generations.stored import StoredPass
from interlock.backends.generations.v0_to_v1 import V0ToV1
from interlock.backends.generations.v1_to_v2 import V1ToV2
from interlock.backends.header import encode_header
from interlock.backends.reading import read_events, read_log
from interlock.backends.source import LogFile

SAMPLES = Path(__file__).parents[3] / ".." / "shared" / "dsh" / "samples"
MIGRATED = sorted(path.name for path in SAMPLES.glob("migrated/*"))
REFUSED = {
    "s09a-corrupt-middle-frame-zstd": "SESSION_CORRUPT",
    "s09c-corrupt-last-complete-frame-zstd": "SESSION_CORRUPT",
    "s09d-bad-magic-garbage-tail-zstd": "SESSION_CORRUPT",
    "s09e-torn-record-in-complete-frame-zstd": "SESSION_CORRUPT",
    "s09f-header-frame-with-extra-row-zstd": "SESSION_CORRUPT",
    "s13a-raw-garbage-line-before-turn-end": "SESSION_CORRUPT",
    "s13b-raw-seq-gap-before-turn-end": "SESSION_CORRUPT",
    "s13e-raw-malformed-packed-row": "SESSION_CORRUPT",
    "s16b-header-missing-delegationDepth-raw": "SESSION_CORRUPT",
    "s16c-header-retired-policy-field-raw": "SESSION_CORRUPT",
    "s16d-header-id-mismatch-raw": "SESSION_CORRUPT",
    "s16g-empty-file-raw": "SESSION_CORRUPT",
    # Sound logs for the reader of their time, which no edge carries over.
    "s13f-turn-end-before-step-end-raw": "SESSION_FORMAT_UNSUPPORTED",
    "s14-unknown-required-event-raw": "SESSION_FORMAT_UNSUPPORTED",
    "s15-unknown-ignorable-event-raw": "SESSION_FORMAT_UNSUPPORTED",
    "s16a-foreign-version-9-raw": "SESSION_FORMAT_UNSUPPORTED",
    "s16e-header-extra-unknown-field-raw": "SESSION_FORMAT_UNSUPPORTED",
}


def rows(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def source(name: str) -> Path:
    sample, _, session = name.partition("__")
    return next(
        path
        for path in SAMPLES.glob(f"v0/{sample}/*/*/*")
        if session in ("", "v1-packed") or path.parent.name == session
    )


def check(path: Path, expected: Path) -> None:
    before = sorted(path.parent.iterdir())
    reading = read_log(path)
    header, *events = rows(expected)
    assert [to_json(event) for event in reading.events] == events
    assert json.loads(encode_header(reading.header)) == header
    assert sorted(path.parent.iterdir()) == before


@pytest.mark.parametrize("name", [n for n in MIGRATED if "v1-packed" not in n])
def test_L12_a_v0_sample_reads_as_the_events_that_the_harness_migrates_it_to(name: str):
    expected = SAMPLES / "migrated" / name / "session.v3.jsonl"
    if expected.exists():
        check(source(name), expected)
    else:
        with pytest.raises(SessionError):
            read_log(source(name))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", MIGRATED)
def test_L12_the_generations_in_between_read_as_the_same_events(name: str, version: int):
    path = SAMPLES / "migrated" / name / f"session.v{version}.jsonl"
    expected = SAMPLES / "migrated" / name.removesuffix("__v1-packed") / "session.v3.jsonl"
    if path.exists() and expected.exists():
        check(path, expected)


@pytest.mark.parametrize("name", [n for n in MIGRATED if "v1-packed" not in n])
def test_each_edge_alone_makes_of_a_v0_sample_what_the_harness_makes(name: str):
    for version in (1, 2):
        expected = SAMPLES / "migrated" / name / f"session.v{version}.jsonl"
        if not expected.exists():
            continue
        with LogFile(source(name), OsDisk()) as file:
            stored = StoredPass(file)
            edge = V0ToV1(stored.header)
            items = edge.events(stored.items())
            if version == 2:
                items = V1ToV2(edge.header).events(items)
            made = [
                row_to_json(row)
                for item in items
                for row in (item.expand() if isinstance(item, Run) else [item])
            ]
        assert made == rows(expected)[1:]


@pytest.mark.parametrize(("name", "code"), REFUSED.items())
def test_L10_what_cannot_be_carried_over_refuses_with_the_right_code(name: str, code: str):
    if not SAMPLES.is_dir():
        pytest.skip("../shared is not there")
    path = source(name)
    with pytest.raises(SessionError) as caught:
        read_log(path, expect_id=path.parent.name)
    assert caught.value.code == code
    assert caught.value.details["file"] == str(path)


PUBLIC = {
    "v0-released-real-shapes": "a message stands before the first step",
    "v2-plain-turn-open__restored": "outside an open step",
    "v1-text-turn__restored": None,
}


@pytest.mark.parametrize(("name", "reason"), PUBLIC.items())
def test_a_real_old_log_is_carried_over_or_refused_as_by_the_harness(name, reason):
    if not SAMPLES.is_dir():
        pytest.skip("../shared is not there")
    [path] = (SAMPLES / "public" / name).glob("session*")
    if reason is None:
        check(path, path.with_name("migrated-to.v3.jsonl"))
        return
    with pytest.raises(SessionError, match=reason) as caught:
        read_log(path)
    assert caught.value.code == "SESSION_FORMAT_UNSUPPORTED"


def test_the_current_events_can_be_read_from_the_middle():
    if not SAMPLES.is_dir():
        pytest.skip("../shared is not there")
    path = source("s11-long-raw-packed")
    whole = [to_json(event) for event in read_events(path)]
    assert [to_json(event) for event in read_events(path, 40, 60)] == whole[40:60]
