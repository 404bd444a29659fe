"""X1, X3, F7: whoever floods us, with connections, bytes or a full disk, stops nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from interlock.actors import Runtime, ToolCall
from interlock.actors.roles import OWNERS, Role
from security_support import counted
from spine_support import until

Start = Callable[..., Runtime]

#: What a connection says before it has proven anything: a ZMTP greeting and no more, one that is
#: cut off, frames that claim to be huge, and noise.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32)
CHANCE = random.Random(11)
OPENINGS = [
    b"",
    GREETING,
    GREETING[:17],
    GREETING + b"\x06" + struct.pack(">Q", 2**62) + b"\x05HELLO" + bytes(1000),
    GREETING + b"\x06" + struct.pack(">Q", 200) + b"\x05HELLO" + CHANCE.randbytes(194),
    GREETING + b"\x04\xc8\x05HELLO\x01\x00" + bytes(192),
    GREETING + b"\x02" + struct.pack(">Q", 2**63) + bytes(5000),
    b"\xff" + CHANCE.randbytes(500),
    CHANCE.randbytes(5000),
    bytes(100_000),
]


class Flood:
    """Connects to sockets as fast as it can, says something, and holds some hundreds open."""

    def __init__(self, paths: list[str], held: int = 200) -> None:
        self._paths, self._most = paths, held
        self._over = threading.Event()
        self.made = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        held: list[socket.socket] = []
        while not self._over.is_set():
            one = socket.socket(socket.AF_UNIX)
            one.settimeout(0.2)
            try:
                one.connect(self._paths[self.made % len(self._paths)])
                one.sendall(OPENINGS[self.made % len(OPENINGS)])
            except OSError:
                one.close()  # a full queue, or it has been shown the door
                continue
            self.made += 1
            held.append(one)
            if len(held) > self._most:
                held.pop(CHANCE.randrange(len(held))).close()
        for one in held:
            one.close()

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def memory(pid: int) -> int:
    """Private memory of a process now, in KiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_X1_X3_a_flood_of_strangers_neither_stops_nor_grows_us(start: Start, place: Path) -> None:
    runtime = start()
    addresses = [a.endpoint for a in runtime._core._starter.addresses.values()]
    paths = [a.removeprefix("ipc://") for a in (*addresses, runtime.address)]
    session = runtime.create(cwd=place)
    descriptors = {pid: len(os.listdir(f"/proc/{pid}/fd")) for pid in runtime.processes.values()}
    before = {pid: memory(pid) for pid in runtime.processes.values()}
    flood = Flood(paths)
    try:
        for number in range(20):
            until(lambda: flood.made > 200 * number)  # noqa: B023 - called at once
            with session.turn("work") as turn, turn.step() as step:
                step.assistant("", [ToolCall("c1", "add", {"a": number, "b": 1})])
                [result] = step.execute()
            assert result.value == number + 1
        with Runtime.connect(runtime.address, runtime.client_key) as client:
            client.create(cwd=place).flush()
    finally:
        flood.end()
    assert runtime.stats()["restarts"] == []
    for role in OWNERS:
        assert counted(runtime, role, "unproven_connections")() > 100, role
        assert counted(runtime, role, "dropped_messages")() == 0, "something was even parsed"
    grown = {pid: memory(pid) - before[pid] for pid in runtime.processes.values()}
    assert max(grown.values()) < 50 * 1024, f"KiB: {grown}"
    for pid, count in descriptors.items():  # nothing of it is kept
        until(lambda: len(os.listdir(f"/proc/{pid}/fd")) < count + 10)  # noqa: B023


@pytest.mark.slow
def test_X3_a_flood_of_answers_of_a_known_key_hides_no_request_and_no_answer(
    start: Start, stranger: Callable[..., object], place: Path
) -> None:
    """An answerer may be broken, or somebody else's: it settles nothing that it was not shown."""
    from interlock.actors import Answering
    from interlock.actors.messages import AnswerApproval, BecomeAnswerer, LeaveAnswering
    from security_support import keys_of
    from spine_support import InThread

    runtime = start(answerer="external")
    session = runtime.create(cwd=place)

    def pay() -> object:
        with session.turn("work") as turn, turn.step() as step:
            step.assistant("", [ToolCall("c1", "pay", {"cents": 5})])
            [result] = step.execute()
        return result

    running = InThread(pay)
    until(lambda: counted(runtime, Role.BROKER, "open_approvals")() == 1)
    one = stranger(runtime, Role.BROKER, keys_of(runtime).answerer)
    words = ("allow", "reject", "failed", "", "ALLOW")
    for number in range(5000):
        one.say(AnswerApproval(number, f"{number:032x}", words[number % 5], "me", "n" * 100))
        one.say(BecomeAnswerer(number, f"{number}", [f"{number}"]))
        if number % 10 == 0:
            one.say(LeaveAnswering(f"{number}"))
    with Answering.connect(runtime.directory, name="a person") as desk:
        request = desk.next(60)
        assert request is not None
        assert desk.allow(request).settled
    assert running.result().value == "paid 5"
    broker = runtime.stats()["broker"]
    assert broker["settled_allowed-once"] == broker["asked_approvals"] == 1
    assert broker["answerers"] <= 256
    assert runtime.stats()["restarts"] == []


FULL = """
import json, os, sys
from pathlib import Path
from interlock.actors import Command, LogError, Runtime, ToolCall, tool

@tool(place="sandbox", effect="write")
def fill() -> Command:
    "Fill the disk that the workspace is on."
    return Command(["/bin/sh", "-c", "cat /dev/zero > filler; echo full"])

@tool(effect="write", approval="ask")
def pay(path: str) -> str:
    "Pay."
    Path(path).write_text("paid")
    return "paid"

def call(name, arguments):
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", name, arguments)])
        [result] = step.execute()
    return result

disk, out = Path(sys.argv[1]), Path(sys.argv[2])
said = {}
work = disk / "work"
work.mkdir()
with Runtime(disk / "logs", tools=[fill, pay], answerer=lambda _: True, workers=1) as runtime:
    session = runtime.create("s", cwd=work)
    said["fill"] = call("fill", {}).code
    said["free"] = os.statvfs(disk).f_bavail
    said["left"] = []
    for number in range(400):
        try:
            result = call("pay", {"path": str(out / f"paid{number}")})
        except LogError as error:
            said["left"].append(error.code)
            break
        said["left"].append(result.code)
        if result.code is not None:
            break
    (work / "filler").unlink()
    said["flush"] = session.flush() >= 0
    said["again"] = runtime.create("t", cwd=work).flush() is not None
    session.close()
    session = runtime.open("s")
    said["pay"] = call("pay", {"path": str(out / "after")}).value
    said["paid"] = sorted(p.name for p in out.iterdir())
    types = [event.type for event in session.events]
    said["calls"] = types.count("tool/call")
    said["results"] = types.count("tool/result")
    said["asked"] = types.count("approval/asked")
    said["granted"] = types.count("approval/decided")
    said["seqs"] = [event.seq for event in session.events] == list(range(len(types)))
    said["restarts"] = runtime.stats()["restarts"]
print(json.dumps(said))
"""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small disk: needs root"
)
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare from util-linux")
def test_F7_A5_a_command_that_fills_the_disk_of_the_logs_gets_no_unrecorded_call(
    tmp_path: Path,
) -> None:
    program, out = tmp_path / "program.py", tmp_path / "out"
    disk = Path("/var/tmp") / f"interlock-disk-{os.getpid()}"  # bubblewrap replaces /tmp
    program.write_text(FULL)
    disk.mkdir()
    out.mkdir()
    # A mount namespace of its own: the mount is gone with the process, whatever happens.
    command = 'mount -t tmpfs -o size=24m tmpfs "$1" && exec "$2" "$3" "$1" "$4"'
    argv = ["sh", "-c", command, "sh", str(disk), sys.executable, str(program), str(out)]
    try:
        done = subprocess.run(
            ["unshare", "-m", "--propagation", "private", *argv],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    finally:
        disk.rmdir()
    assert done.returncode == 0, done.stderr[-4000:]
    said = json.loads(done.stdout)
    assert said["free"] == 0, "the disk was not full"
    *went_on, refused = said["left"]
    assert refused in ("CHECKPOINT_FAILED", "APPROVAL_UNAVAILABLE", "LOG_WRITE_FAILED")
    assert set(went_on) <= {None}
    assert said["paid"] == sorted([*(f"paid{n}" for n in range(len(went_on))), "after"])
    assert (said["flush"], said["again"], said["pay"]) == (True, True, "paid")
    assert said["calls"] == said["results"] == len(went_on) + 3
    assert said["asked"] == said["granted"] > len(went_on)
    assert said["seqs"]
    assert said["restarts"] == []
