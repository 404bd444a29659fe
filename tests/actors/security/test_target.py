"""S6, X: ourselves as the target. A confined command that knows everything tries to get at us.

``attempts.py`` is run once under each backend and mode; each attempt is a test of its own. What a
backend cannot hold it names as a gap, and then that gap, and no other, is what was reached.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Command, Runtime, ToolCall, tool
from interlock.actors.roles import OWNERS, Role
from interlock.actors.runtime_dir import running
from interlock.sandbox import launcher, probe
from security_support import counted
from spine_support import TOOLS, InThread, descendants, until

ATTEMPTS = Path(__file__).with_name("attempts.py")
SECRET = "a-secret-of-the-host-8f1c"
#: What an attempt may reach where the backend names the gap.
GAPS = {"path_sockets": "unix-sockets", "names_listed": "hidden-names"}


@tool(place="sandbox", effect="write")
def confined(argv: list[str], mode: str) -> Command:
    """Run a program in the sandbox."""
    return Command(argv, mode=mode)


@dataclass
class Target:
    """A runtime with an approval that waits, and what a command under it reached."""

    runtime: Runtime
    session: Any
    waiting: InThread
    facts: dict[str, Any]
    mode: str
    said: dict[str, list[str]]
    meta: dict[str, Any]

    def call(self, *argv: str) -> Any:
        return call(self.session, "confined", {"argv": list(argv), "mode": self.mode})


def call(session: Any, name: str, arguments: dict[str, Any]) -> Any:
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", name, arguments)])
        [result] = step.execute()
    return result


def usable(backend: str) -> str:
    """Why the backend cannot be used here; empty where it can."""
    found = {report.backend: report for report in probe()}.get(backend)
    return "not on this platform" if found is None else "" if found.usable else found.reason


@pytest.fixture(
    scope="module",
    params=["bwrap read-only", "bwrap workspace-write", "landlock read-only",
            "landlock workspace-write"],
)  # fmt: skip
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    backend, mode = request.param.split()
    if reason := usable(backend):
        pytest.skip(f"{backend}: {reason}")
    # Outside of /tmp, which bubblewrap replaces. The logs are inside the workspace.
    workspace = Path(tempfile.mkdtemp(prefix="interlock-target-", dir="/var/tmp"))
    with pytest.MonkeyPatch.context() as patch, socket.socket(socket.AF_UNIX) as abstract:
        patch.setenv("INTERLOCK_SANDBOX_BACKENDS", backend)
        patch.setenv("SECRET_TOKEN", SECRET)
        abstract.bind(f"\0interlock-target-{os.getpid()}")
        abstract.listen()
        runtimes = [
            Runtime(workspace / "logs", tools=[*TOOLS, confined], answerer="external", workers=2),
            Runtime(workspace / "others", tools=TOOLS, transport="tcp", workers=1),
        ]
        try:
            yield attacked(runtimes, workspace, mode)
        finally:
            for runtime in runtimes:
                runtime.close(grace=0.0)
            shutil.rmtree(workspace, ignore_errors=True)


def attacked(runtimes: list[Runtime], workspace: Path, mode: str) -> Target:
    runtime, over_tcp = runtimes
    asking = runtime.create("asking", cwd=workspace)
    asking.append("user/message", message("a secret of the log"), flush=True)
    waiting = InThread(lambda: call(asking, "pay", {"cents": 5}))
    until(lambda: counted(runtime, Role.BROKER, "open_approvals")() == 1)
    request = next(e.data["id"] for e in asking.events if e.type == "approval/asked")
    session = runtime.create("attacker", cwd=workspace)
    shutil.copy(ATTEMPTS, workspace / "attempts.py")
    facts = {
        "request": request,
        "sockets": [a.endpoint.removeprefix("ipc://") for a in owners(runtime)]
        + [runtime.address.removeprefix("ipc://")],
        "abstract": f"interlock-target-{os.getpid()}",
        "ports": [int(a.endpoint.rpartition(":")[2]) for a in owners(over_tcp)],
        "processes": {"host": os.getpid(), **runtime.processes}
        | {f"worker {pid}": pid for pid in descendants(runtime.processes["dispatcher"])},
        "files": sorted(ours(runtime, workspace)),
        "directories": sorted({str(Path(f).parent) for f in ours(runtime, workspace)}),
        "code": [os.path.realpath(sys.executable), sys.modules["zmq"].__file__],
        "secrets": [SECRET],
        "interlock": str(Path(sys.executable).with_name("interlock")),
    }
    argv = [launcher.interpreter(), str(workspace / "attempts.py"), json.dumps(facts)]
    result = call(session, "confined", {"argv": argv, "mode": mode})
    assert not result.is_error, result
    said = json.loads(result.value["stdout"])
    return Target(runtime, session, waiting, facts, mode, said, result.meta["sandbox"])


def owners(runtime: Runtime) -> list[Any]:
    return list(runtime._core._starter.addresses.values())


def ours(runtime: Runtime, workspace: Path) -> set[str]:
    """Every file of the runtime: logs, locks, journal, keys, what the owners wrote."""
    bases = (runtime.directory, workspace / "logs", workspace / "others")
    found = {str(p) for base in bases for p in base.rglob("*") if p.is_file()}
    names = {os.path.basename(path) for path in found}
    assert {"answerer.key", "runtime.json", "alive", "session.lock"} <= names, found
    assert any("journal" in path for path in found)
    return found


def message(text: str) -> dict[str, Any]:
    return {
        "id": "u1",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }


ALL = [
    "path_sockets",
    "speaking",
    "abstract_sockets",
    "network",
    "files_read",
    "names_listed",
    "files_written",
    "code_written",
    "process_entries",
    "signals",
    "tracing",
    "meddling",
    "descriptors",
    "environment",
    "answering",
]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("attempt", ALL)
def test_S6_a_confined_command_gets_at_nothing_of_ours(target: Target, attempt: str) -> None:
    assert target.said.keys() == set(ALL), "an attempt is not a test"
    assert target.facts["processes"].keys() > set(map(str, OWNERS)), "no worker was attacked"
    reached = target.said[attempt]
    if GAPS.get(attempt) in target.meta["gaps"]:
        return  # named, and 'speaking' shows that it gives nothing
    assert not reached, f"{target.meta['backend']}: {attempt} reached {reached[:5]}"


#: Attempts that are not made unconfined: they would change files, need the key's holder, or reach
#: nobody. All others must reach us there, or the tests above show nothing.
HARMFUL = {"files_written", "code_written", "answering", "speaking"}
OPEN = [name for name in ALL if name not in HARMFUL]


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may be kept from tracing its own")
def test_the_attempts_reach_everything_where_nothing_is_confined(target: Target) -> None:
    extra = os.open("/dev/null", os.O_RDONLY)
    done = subprocess.run(
        [sys.executable, str(ATTEMPTS), json.dumps(target.facts), *OPEN, "speaking"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        pass_fds=(extra,),
    )
    os.close(extra)
    said = json.loads(done.stdout)
    assert [name for name in OPEN if not said[name]] == []
    assert said["speaking"] == [], "X1: a socket gives nothing without a key, to anybody"


# What it leaves, and what it fills.


def processes_with(mark: str) -> list[int]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in text:
            found.append(int(pid))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("how", ["detached", "holding the output", "three hundred", "stopped"])
def test_S7_S8_no_process_outlives_its_call(target: Target, how: str) -> None:
    mark = f"86{os.getpid()}.{how.replace(' ', '')[:3].encode().hex()[:4]}"  # for `sleep`
    script = {
        "detached": f"(setsid sh -c 'setsid sleep {mark} </dev/null >/dev/null 2>&1 &' &); exit 0",
        "holding the output": f"sleep {mark} & exit 0",
        "three hundred": f"i=0; while [ $i -lt 300 ]; do setsid sleep {mark} & i=$((i+1)); done",
        "stopped": f"sleep {mark} & kill -STOP $!; exit 0",
    }[how]
    result = target.call("/bin/sh", "-c", script)
    assert not result.is_error, result
    assert processes_with(mark) == [], "a process outlived its call"
    works(target)


@pytest.mark.slow
def test_S6_a_flood_of_output_neither_blocks_nor_grows_us(target: Target) -> None:
    pids = list(target.runtime.processes.values())
    before = {pid: peak(pid) for pid in pids}
    result = target.call("/bin/sh", "-c", "head -c 300000000 /dev/zero; echo end >&2")
    assert not result.is_error, result.message[:500]
    assert result.meta["cut_bytes"] >= 299_000_000
    assert "interlock: the first" in str(result.content), "the cut is not stated"
    grown = {pid: peak(pid) - before[pid] for pid in pids}
    assert max(grown.values()) < 50 * 1024, f"KiB: {grown}"
    works(target)


def peak(pid: int) -> int:
    """The most memory (KiB) that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1])


@pytest.mark.slow
def test_S7_what_it_wrote_to_its_temporary_directory_goes_with_it(target: Target) -> None:
    name = f"interlock-filler-{os.getpid()}"
    script = f'head -c 50000000 /dev/zero > "${{TMPDIR:-/tmp}}/{name}" && ls "${{TMPDIR:-/tmp}}"'
    result = target.call("/bin/sh", "-c", script)
    assert name in result.value["stdout"], result
    for base in {tempfile.gettempdir(), "/tmp", "/var/tmp"}:
        left = [p for d in [Path(base), *Path(base).glob("*/")] for p in d.glob(name)]
        assert not left
    works(target)


@pytest.mark.slow
def test_S6_a_command_that_takes_memory_ends_with_it_and_the_others_go_on(target: Target) -> None:
    """While it holds 400 MB, the runtime does its work; then it is gone, and so is what it took."""
    script = "x = bytearray(400_000_000); x[::4096] = bytes(len(x[::4096])); print(len(x))"
    running = InThread(lambda: target.call(launcher.interpreter(), "-c", script))
    works(target, "beside")
    assert running.result().value["stdout"] == "400000000\n"


def works(target: Target, name: str = "works") -> None:
    """The runtime runs another call, nothing was restarted, and the approval still waits."""
    runtime = target.runtime
    session = runtime.create()
    assert call(session, "add", {"a": 20, "b": 22}).value == 42, name
    assert runtime.stats()["restarts"] == []
    assert counted(runtime, Role.BROKER, "open_approvals")() == 1, "somebody has answered"
    assert target.waiting.running
    assert [r.pid for _, r in running() if r.pid == os.getpid()], "the runtime cannot be found"
