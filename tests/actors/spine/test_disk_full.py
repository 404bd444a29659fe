"""F7, L5, L6, K3: a full disk refuses calls and loses nothing; with space the session goes on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys
from pathlib import Path
from interlock.actors import LogError, Runtime, ToolCall, ToolContext, tool

@tool(effect="write")
def touch(ctx: ToolContext, path: str) -> str:
    "Leave a file."
    Path(path).write_text(ctx.call_id)
    return "touched"

disk, out = Path(sys.argv[1]), Path(sys.argv[2])
said = {}
with Runtime(disk / "root", tools=[touch], workers=1) as runtime:
    session = runtime.create("s", cwd=out)
    with session.turn("work") as turn:
        with turn.step() as step:
            step.assistant("", [ToolCall("c1", "touch", {"path": str(out / "one")})])
            session.flush()
            with open(disk / "filler", "wb", buffering=0) as filler:
                try:
                    while True:
                        filler.write(b"x" * 4096)
                except OSError as error:
                    said["filled"] = error.errno
            # More than the room that was set aside for the log while there was some.
            session.append("request/context", {"provider": os.urandom(60000).hex(), "model": "m"})
            [full] = step.execute()
            said["full"] = full.code
            said["ran"] = (out / "one").exists()
            try:
                session.flush()
            except LogError as error:
                said["flush"] = error.code
            os.unlink(disk / "filler")
            said["durable"] = session.flush()
        with turn.step() as step:
            step.assistant("", [ToolCall("c2", "touch", {"path": str(out / "two")})])
            [free] = step.execute()
            said["free"] = free.value
    said["events"] = [event.seq for event in session.events]
print(json.dumps(said))
"""


@pytest.mark.root
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small disk: needs root"
)
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare from util-linux")
def test_F7_a_full_disk_refuses_and_with_space_the_same_session_goes_on(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    disk, out = tmp_path / "disk", tmp_path / "out"
    disk.mkdir()
    out.mkdir()
    # A mount namespace of its own: the mount is gone with the process, whatever happens.
    command = 'mount -t tmpfs -o size=1m,nr_inodes=1000 tmpfs "$1" && exec "$2" "$3" "$1" "$4"'
    done = subprocess.run(
        [
            "unshare",
            "-m",
            "--propagation",
            "private",
            "sh",
            "-c",
            command,
            "sh",
            str(disk),
            sys.executable,
            str(program),
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["filled"] == 28
    assert said["full"] == "CHECKPOINT_FAILED"
    assert said["ran"] is False
    assert said["flush"] == "LOG_WRITE_FAILED"
    assert said["free"] == "touched"
    assert (out / "two").read_text() == "c2"
    assert said["events"] == list(range(len(said["events"])))
