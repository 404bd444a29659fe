"""``interlock demo`` from end to end, and its proof that a broken release rule is seen."""

import shutil
import sys
import time
from pathlib import Path

import interlock.actors
import interlock.backends
import interlock.sandbox
import pytest
from interlock.backends.jsonl import JsonlBackend
from interlock.sandbox import best

DEMO = "interlock.actors.demo"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]


def snapshot(tree: Path) -> dict[str, bytes]:
    return {str(p.relative_to(tree)): p.read_bytes() for p in tree.rglob("*") if p.is_file()}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small source tree."""
    path = tmp_path / "tree"
    path.mkdir()
    for number in range(5):
        (path / f"part{number}.py").write_text(
            f"import os\n\ndef f{number}():\n    return {number}\n"
        )
    (path / "README.md").write_text("# A tree\n")
    return path


def test_I3_the_demo_shows_two_kills_and_finds_no_violation(
    command, processes_of, tree, tmp_path
) -> None:
    before = snapshot(tree)
    status, told = command(DEMO, str(tree), "--json", "--root", str(tmp_path / "logs")).document()
    assert told["violations"] == []
    assert told["troubles"] == []
    assert status == 0
    assert told["agents"] == told["finished"] == 9
    assert told["calls"] == sum(told["results_by_code"].values())
    codes = {"OK", "APPROVAL_REJECTED", "INVALID_ARGS", "UNKNOWN_TOOL", "TOOL_OUTCOME_UNKNOWN"}
    assert codes <= told["results_by_code"].keys()
    # F1: the call was durable when its agent's process was killed, and its result came after.
    assert told["killed"]["held"] == ["tool/call"]
    assert told["killed"]["became"] == "OK"
    # P6: a worker's death is told as what it is.
    assert told["worker_killed"]["became"] == "TOOL_OUTCOME_UNKNOWN"
    assert 0 < told["flush_ms"]["median"] <= told["flush_ms"]["p99"]
    if best() is not None:
        assert told["sandbox"]["backend"] == best().backend
        assert "SANDBOX_DENIED" in told["results_by_code"]
    assert snapshot(tree) == before
    assert list((tmp_path / "tmp").iterdir()) == []
    assert processes_of(f"INTERLOCK_DEMO_ROOT={tmp_path / 'logs'}") == []


def test_the_killed_agent_uploaded_once_and_went_on(command, tree, tmp_path) -> None:
    root = tmp_path / "logs"
    words = (str(tree), "--agents", "2", "--json", "--root", str(root))
    status, told = command(DEMO, *words).document()
    assert status == 0
    log = JsonlBackend(root).open(told["killed"]["session"])
    log.close()
    [path] = root.glob(f"*/{told['killed']['session']}/session.v3.jsonl*")
    from interlock.backends.reading import read_log

    events = list(read_log(path).events)
    uploads = [e for e in events if e.type == "tool/call" and e.data["name"] == "upload"]
    ends = [e.data["reason"]["kind"] for e in events if e.type == "turn/end"]
    assert len(uploads) == 1
    assert ends == ["interrupted", "completed"]


def test_without_a_terminal_the_demo_tells_in_lines(command, tree) -> None:
    status, out, err = command(DEMO, str(tree), "--agents", "2").end()
    assert (status, err) == (0, "")
    assert "killed in upload; the log holds tool/call" in out
    assert "No violations" in out
    assert "\x1b" not in out
    assert "interlock demo --keep" in out


BREAKS = {
    # The acknowledgement is no longer waited for …
    "actors/dispatcher/log.py": (
        "lambda rid: Append(rid, session, drafts, after, flush, behalf)",
        "lambda rid: Append(rid, session, drafts, after, False, behalf)",
    ),
    # … and no longer looked at.
    "actors/release.py": ("elif self.durable_seq < covers:", "elif self.durable_seq < -1:"),
    # The write that comes by itself comes late, so that this does not depend on speed.
    "actors/writer/commits.py": ("WINDOW = 0.2", "WINDOW = 5.0"),
}


def test_K2_a_build_that_releases_before_the_acknowledgement_is_found_out(
    command, tree, tmp_path
) -> None:
    broken = tmp_path / "broken"
    for part in (interlock.actors, interlock.backends, interlock.sandbox):
        source = Path(next(iter(part.__path__))).resolve()
        ignored = shutil.ignore_patterns("__pycache__")
        target = broken / "interlock" / part.__name__.rpartition(".")[2]
        shutil.copytree(source, target, ignore=ignored)
    for name, (right, wrong) in BREAKS.items():
        file = broken / "interlock" / name
        text = file.read_text()
        assert text.count(right) == 1, f"{name} no longer reads as this test expects"
        file.write_text(text.replace(right, wrong))
    words = (str(tree), "--agents", "2", "--json")
    status, told = command(DEMO, *words, path=[str(broken)]).document()
    assert status == 1
    assert "effect-before-record" in {found["kind"] for found in told["violations"]}


def test_a_tree_that_is_none_gets_one_line(command, tmp_path) -> None:
    status, out, err = command(DEMO, str(tmp_path / "nothing")).end()
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "nothing" in err


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("moment", ["thinks-or-acts", "killed in upload"])
def test_L16_ctrl_c_leaves_no_process_no_lock_and_no_directory(
    command, processes_of, tree, tmp_path, moment: str
) -> None:
    root = tmp_path / "logs"
    running = command(DEMO, str(tree), "--root", str(root))
    running.until("→" if moment == "thinks-or-acts" else moment)
    began = time.monotonic()
    running.interrupt()
    status, _, err = running.end()
    took = time.monotonic() - began
    assert status == 130
    assert "Traceback" not in err
    assert took < 10, "it should take less than 2 s; this bound is for slow machines"
    deadline = time.monotonic() + 10
    while processes_of(f"INTERLOCK_DEMO_ROOT={root}") and time.monotonic() < deadline:
        pass
    assert processes_of(f"INTERLOCK_DEMO_ROOT={root}") == []
    assert list((tmp_path / "tmp").iterdir()) == []
    backend = JsonlBackend(root)
    for listing in backend.list():
        backend.open(listing.header.id).close()  # R2: neither locked nor damaged
