"""Logs that Interlock writes are logs of the harness: its own codec and restorer accept them."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interlock.backends.errors import SessionError
from interlock.backends.event import Draft, draft
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log
from interlock.backends.repair import closers
from interlock.backends.verify import verify

HERE = Path(__file__).parent
SAMPLES = HERE.parents[2] / "shared" / "dsh" / "samples"

pytestmark = pytest.mark.timeout(400)


def logs(root: Path) -> list[Path]:
    return [Path(entry["path"]) for entry in verify(root).sessions]


def repair(root: Path, session: str) -> None:
    backend = JsonlBackend(root)
    log = backend.open(session, wait=30.0)
    drafts = closers(log.fold)
    assert drafts
    log.append(drafts, log.fold.last_time)
    log.write(log.seal())
    log.close()
    backend.close()


def accepted(harness, paths: list[Path]) -> None:
    told = harness.read(paths)
    wrong = {str(path): told[path]["error"] for path in paths if told[path]["error"]}
    assert not wrong
    for path in paths:
        assert told[path]["events"] == read_log(path).last_seq + 1


@pytest.fixture(params=["zstd", "none"])
def used(request, tmp_path: Path) -> Path:
    """A root that a program left which used everything and was killed in the middle of a call."""
    root = tmp_path / "root"
    program = [sys.executable, HERE / "produce.py", root, tmp_path, request.param]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    for pid in map(int, done.stdout.split()):
        # What was released runs on without its host, and is recorded (F1).
        try:
            end = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([end], [], [], 60)[0]
        os.close(end)
    return root


def test_approvals_nested_calls_cancellations_and_spills_are_accepted(harness, used) -> None:
    [path] = [path for path in logs(used) if path.parent.name == "everything"]
    codes = [e.data.get("error", {}).get("code") for e in read_log(path).events]
    for code in ("APPROVAL_REJECTED", "UNKNOWN_TOOL", "INVALID_ARGS", "TOOL_FAILED", "ABORTED"):
        assert code in codes
    types = {event.type for event in read_log(path).events}
    assert {"approval/asked", "approval/decided", "approval/policy"} <= types
    accepted(harness, [path])


def test_a_log_is_accepted_after_a_crash_and_after_its_repair(harness, used) -> None:
    paths = logs(used)
    accepted(harness, paths)
    repair(used, "killed")
    accepted(harness, paths)


def test_the_demos_logs_are_accepted(harness, tmp_path: Path) -> None:
    root = tmp_path / "logs"
    demo = [sys.executable, "-m", "interlock.actors.cli", "demo", "--json", "--root", str(root)]
    done = subprocess.run(demo, capture_output=True, text=True, timeout=100, cwd=HERE)
    assert done.returncode == 0, done.stderr
    paths = logs(root)
    assert len(paths) >= 9
    accepted(harness, paths)


def test_migrated_logs_are_accepted_repaired_and_continued(harness, tmp_path: Path) -> None:
    if not SAMPLES.is_dir():
        pytest.skip("../shared is not there")
    continued: list[Path] = []
    for sample in sorted((SAMPLES / "v0").iterdir()):
        root = tmp_path / sample.name
        shutil.copytree(sample, root)
        backend = JsonlBackend(root)
        for listing in backend.list():
            if listing.header is None or listing.code is not None or listing.path is None:
                continue
            before = listing.path.read_bytes()
            try:
                log = backend.open(listing.header.id)
            except SessionError:
                continue
            turn = (log.fold.last_turn or 0) + 1
            log.append(closers(log.fold), log.fold.last_time)
            log.append([turn_start(turn), turn_end(turn)], log.fold.last_time)
            log.write(log.seal())
            log.close()
            assert listing.path.read_bytes() == before
            continued.append(log.path)
        backend.close()
    assert len(continued) >= 25
    accepted(harness, continued)


def turn_start(turn: int) -> Draft:
    return draft("turn/start", {"turn": turn})


def turn_end(turn: int) -> Draft:
    return draft("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
