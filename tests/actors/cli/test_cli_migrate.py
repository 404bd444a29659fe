"""``sessions migrate``: older logs get a current one beside them (L12)."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

SAMPLES = Path("../shared/dsh/samples/v0")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A root that the harness wrote: one log that can be carried over, one that cannot."""
    if not SAMPLES.is_dir():
        pytest.skip("the harness's logs are not here")
    root = tmp_path / "old"
    for sample in ("s06-kill9-mid-tool-zstd", "s13f-turn-end-before-step-end-raw"):
        for path in SAMPLES.glob(f"{sample}/*/*/session*"):
            target = root / path.parent.parent.name / path.parent.name
            target.mkdir(parents=True)
            shutil.copyfile(path, target / path.name)
            target.chmod(0o700)
    return root


def test_L12_every_old_session_is_migrated_and_what_cannot_be_is_named(cli, old: Path):
    before = {path: path.read_bytes() for path in old.glob("*/*/session*")}
    ran = cli("sessions", "migrate", "--all", "--root", old)
    assert ran.status == 1, "one of them cannot be carried over"
    assert "migrated  s06-kill9-mid-tool-zstd  v0 → v3" in ran.out
    assert "failed    s02-basic-raw-unpacked  SESSION_FORMAT_UNSUPPORTED" in ran.out
    assert all(path.read_bytes() == data for path, data in before.items())
    again = cli("sessions", "migrate", "--all", "--root", old, "--json").json["sessions"]
    assert [entry["id"] for entry in again] == ["s02-basic-raw-unpacked"]


def test_one_session_is_named_or_all(cli, old: Path):
    assert cli("sessions", "migrate", "--root", old).status == 2
    one = cli("sessions", "migrate", "s06", "--root", old)
    assert one.status == 0, one.err
    assert cli("sessions", "migrate", "s06", "--root", old).out.startswith("nothing to migrate")
