"""Real processes on one root: they race for an id, hold a lock, are stopped and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interlock.backends.codes import Code
from interlock.backends.errors import SessionError
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log

RACER = """
import json, os, sys
from interlock.backends.errors import InterlockError
from interlock.backends.event import draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
root, durability, name = sys.argv[1:]
backend = JsonlBackend(root, durability=durability, segment_size=64 * 1024)
backend.start()
print("ready", flush=True)
for session in sys.stdin:
    session = session.strip()
    try:
        log = backend.create(Header(id=session, created_at=1, cwd="/work"))
        log.append([draft("interlock/notice", {"by": name}, ignorable=True)], 1)
        [outcome] = backend.commit([(log, log.seal())])
        told = "made" if outcome == 0 else outcome.code
        log.close()
    except InterlockError as error:
        told = error.code
    print(told, flush=True)
backend.close()
"""

HOLDER = """
import sys, time
from interlock.backends.event import draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
backend = JsonlBackend(sys.argv[1], durability=sys.argv[2])
log = backend.create(Header(id="s", created_at=1, cwd="/work"))
log.append([draft("interlock/notice", {}, ignorable=True)], 1)
[outcome] = backend.commit([(log, log.seal())])
print(outcome, flush=True)
sys.stdin.read()
"""


def program(text: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("durability", ["file", "journal"])
def test_L7_of_processes_that_race_for_an_id_exactly_one_makes_it(tmp_path, durability) -> None:
    racers = [program(RACER, tmp_path, durability, name) for name in "abc"]
    try:
        assert [hear(racer) for racer in racers] == ["ready"] * 3
        for number in range(40):
            for racer in racers:
                ask(racer, f"s{number}")
            told = [hear(racer) for racer in racers]
            assert sorted(told) == [Code.SESSION_EXISTS, Code.SESSION_EXISTS, "made"], told
            winner = "abc"[told.index("made")]
            [path] = tmp_path.glob(f"*/s{number}/session.v3.jsonl.zstd")
            assert [event.data["by"] for event in read_log(path).events] == [winner]
    finally:
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.close()
            racer.wait(30)
    assert not list((tmp_path / ".interlock" / "journal").glob("*/*"))


@pytest.mark.parametrize("durability", ["file", "journal"])
def test_L11_a_stopped_holder_keeps_its_lock_and_a_killed_one_frees_it(
    tmp_path: Path, durability: str
) -> None:
    holder = program(HOLDER, tmp_path, durability)
    try:
        assert hear(holder) == "0"
        os.kill(holder.pid, signal.SIGSTOP)
        backend = JsonlBackend(tmp_path)
        with pytest.raises(SessionError) as caught:
            backend.open("s", wait=0.2)
        assert caught.value.code == Code.SESSION_LOCKED
        assert caught.value.details["holder"]["pid"] == holder.pid
    finally:
        holder.kill()
        holder.wait()
    log = backend.open("s")
    assert log.fold.next_seq == 1
    log.close()
    backend.close()


READ_ONLY = """
import json, subprocess, sys
from pathlib import Path
from interlock.backends.errors import InterlockError
from interlock.backends.event import draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.verify import verify
disk, durability = Path(sys.argv[1]), sys.argv[2]
root = disk / "root"
said = {}

def remount(how):
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

def note(log):
    log.append([draft("interlock/notice", {}, ignorable=True)], 1)
    return log.seal()

def attempt(name, job):
    try:
        said[name] = job()
    except InterlockError as error:
        said[name] = error.code

backend = JsonlBackend(root, durability=durability, segment_size=64 * 1024)
log = backend.create(Header(id="old", created_at=1, cwd="/work"))
backend.commit([(log, note(log))])
log.close()
backend.close()
remount("ro")
backend = JsonlBackend(root, durability=durability, segment_size=64 * 1024)
attempt("open", lambda: backend.open("old"))
said["verify"] = [entry["status"] for entry in verify(root).sessions]
said["list"] = [listing.header.id for listing in backend.list()]
def create():
    log = backend.create(Header(id="new", created_at=1, cwd="/work"))
    batch = note(log)
    [outcome] = backend.commit([(log, batch)])
    if isinstance(outcome, int):
        return outcome
    said["closed"] = outcome.details["closed"]
    log.unseal(batch)
    raise outcome
attempt("create", create)
remount("rw")
attempt("again", create)
log = backend.open("old")
said["on"] = list(backend.commit([(log, note(log))]))
log.close()
backend.close()
print(json.dumps(said))
"""


@pytest.mark.root
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small disk: needs root"
)
@pytest.mark.parametrize("durability", ["file", "journal"])
def test_F7_a_read_only_disk_is_read_refuses_to_be_written_and_goes_on_later(
    tmp_path: Path, durability: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text(READ_ONLY)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = 'mount -t tmpfs -o size=8m tmpfs "$1" && exec "$2" "$3" "$1" "$4"'
    words = ["sh", "-c", mount, "sh", disk, sys.executable, script, durability]
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.pop("closed", False) is False
    assert said == {
        "open": Code.LOG_WRITE_FAILED,
        "verify": ["ok"],
        "list": ["old"],
        "create": Code.LOG_WRITE_FAILED,
        "again": 0,
        "on": [1],
    }
