"""Every v0 sample, read as the harness of that time read it, against its own reader's results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from interlock.backends.errors import SessionError
from interlock.backends.generations.stored import read_stored

SAMPLES = Path(__file__).parents[3] / ".." / "shared" / "dsh" / "samples"
ORACLES = [
    (oracle.stem, number)
    for oracle in sorted(SAMPLES.glob("expected/s*.json"))
    for number in range(len(json.loads(oracle.read_text())["sessions"]))
]


def rows(path: Path) -> list:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def test_the_samples_are_there():
    if not SAMPLES.is_dir():
        pytest.skip("../shared is not there")
    assert len(ORACLES) > 40


@pytest.mark.parametrize(("name", "number"), ORACLES)
def test_L9_L10_a_v0_sample_reads_as_with_its_own_reader(name: str, number: int):
    session = json.loads((SAMPLES / "expected" / f"{name}.json").read_text())["sessions"][number]
    path, load = SAMPLES / "v0" / name / session["file"], session["load"]
    before = path.read_bytes()
    if "error" in load:
        with pytest.raises(SessionError) as caught:
            read_stored(path, expect_id=session["id"])
        unsupported = load["error"]["name"] == "SessionFormatUnsupportedError"
        code = "SESSION_FORMAT_UNSUPPORTED" if unsupported else "SESSION_CORRUPT"
        assert caught.value.code == code
    else:
        stored = read_stored(path, expect_id=session["id"])
        assert len(stored.events) - stored.closers == load["storedCount"]
        assert stored.events[load["storedCount"] :] == load["syntheticClosers"]
        assert (stored.dropped is not None) is ("torn" in name or "seq-gap" in name)
        if load["eventsFile"]:
            assert stored.events == rows(SAMPLES / "expected" / load["eventsFile"])
    assert path.read_bytes() == before
