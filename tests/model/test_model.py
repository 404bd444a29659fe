"""K2, K3, K6, A2 and "no body twice" in every state of a model of the commit path."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).with_name("commit_path.pml")
TOOLS = ("spin", "gcc")
NONE = {"LOSSES": 0, "DUPLICATES": 0, "WRITER_CRASHES": 0, "DISPATCHER_CRASHES": 0}
ONE = dict.fromkeys(NONE, 1)

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in TOOLS), reason="spin or gcc is not installed"
)


def explored(directory: Path, agents: int, bounds: dict[str, int], fault: str | None = None) -> str:
    """Look at every state; what the verifier printed."""
    options = [f"-D{name}={value}" for name, value in (bounds | {"RUNNING": agents}).items()]
    options += [f"-DFAULT_{fault}"] if fault else []
    commands = (
        ["spin", *options, "-a", str(MODEL)],
        ["gcc", "-O1", "-DSAFETY", "-DCOLLAPSE", "-DMEMLIM=2000", "-w", "-o", "pan", "pan.c"],
        ["./pan", "-m100000"],
    )
    for command in commands:
        done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "max search depth too small" not in done.stdout
    assert "out of memory" not in done.stdout
    return done.stdout


def test_one_agent_with_every_fault_breaks_nothing(tmp_path):
    assert "errors: 0" in explored(tmp_path, 1, ONE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", NONE)
def test_two_agents_with_one_kind_of_fault_break_nothing(tmp_path, fault):
    assert "errors: 0" in explored(tmp_path, 2, NONE | {fault: 1})


@pytest.mark.parametrize(
    ("fault", "agents", "bounds"),
    [
        ("EARLY_RELEASE", 1, ONE),
        ("ANY_LIFE", 1, ONE),
        ("ANY_GRANT", 2, NONE),
        ("RELEASE_AGAIN", 1, ONE),
        ("NO_NUMBERS", 1, ONE),
        ("RETRY", 1, ONE),
        ("LATE_ACK", 1, ONE),
    ],
)
def test_a_planted_fault_is_found(tmp_path, fault, agents, bounds):
    said = explored(tmp_path, agents, bounds, fault)
    assert re.search(r"errors: [1-9]", said)
    assert "assertion violated" in said
