"""The real command in processes of its own, on real roots, beside real runtimes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

import pytest
from interlock.backends.event import Draft, draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend

LIVE = Path(__file__).with_name("live_session.py")
#: Seconds after which a command that should long have ended is taken for stuck.
PATIENCE = 60


@dataclass
class Ran:
    status: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    def refused(self, status: int) -> str:
        """The one line on stderr of a command that failed without a traceback."""
        assert self.status == status, (self.status, self.out, self.err)
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("interlock: "), self.err
        return lines[0]


class Cli:
    """Runs ``interlock …`` with a home, a root and a runtime directory of its own."""

    def __init__(self, home: Path, root: Path, runtimes: Path) -> None:
        self.root = root
        self.runtimes = runtimes
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("COLUMNS", "LINES"))}
        self.env |= {
            "HOME": str(home),
            "INTERLOCK_ROOT": str(root),
            "XDG_RUNTIME_DIR": str(runtimes),
            "XDG_STATE_HOME": str(home / "state"),
            "TZ": "UTC",
        }

    @staticmethod
    def argv(*words: object) -> list[str]:
        return [sys.executable, "-m", "interlock.actors.cli", *map(str, words)]

    def __call__(self, *words: object, cwd: Path | None = None, stdin: str = "", **env: str) -> Ran:
        done = subprocess.run(
            self.argv(*words),
            cwd=cwd or self.env["HOME"],
            env=self.env | env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Ran(done.returncode, done.stdout, done.stderr)

    def start(self, *words: object) -> Process:
        return Process(self.argv(*words), self.env)


class Process:
    """A command that goes on; its output is waited for by line."""

    def __init__(self, argv: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv,
            env=env,
            cwd=env["HOME"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines: Queue[str | None] = Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self) -> str:
        found = self._lines.get(timeout=PATIENCE)
        assert found is not None, self.process.stderr.read()
        return found

    def rest(self) -> list[str]:
        """The lines up to the end of its output."""
        return list(iter(lambda: self._lines.get(timeout=PATIENCE), None))

    def interrupt(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.process.stdin, self.process.stderr):
            stream.close()


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    # Outside tmp_path: a socket's path must stay short.
    runtimes = Path(tempfile.mkdtemp(prefix="il-", dir="/tmp"))
    home = tmp_path / "home"
    home.mkdir()
    yield Cli(home, tmp_path / "root", runtimes)
    shutil.rmtree(runtimes, ignore_errors=True)


@pytest.fixture
def start(cli: Cli) -> Iterator[object]:
    started: list[Process] = []

    def begin(*words: object) -> Process:
        started.append(cli.start(*words))
        return started[-1]

    yield begin
    for process in started:
        process.close()


@pytest.fixture
def live(cli: Cli) -> Iterator[Process]:
    """A runtime in a process of its own whose calls wait for approval from outside."""
    process = Process([sys.executable, str(LIVE), str(cli.root)], cli.env)
    assert process.line() == "ready"
    yield process
    try:
        # A call may still wait for its approval: Ctrl-C cancels it and ends the runtime in order.
        process.interrupt()
    finally:
        process.close()


class Maker:
    """Writes logs with the real backend, in this process."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __call__(
        self, session_id: str, *drafts: Draft, cwd: str = "/work", created: int = 1, **how
    ):
        """One batch (one frame) for each draft; returns the log file."""
        backend = JsonlBackend(self.root, **how)
        log = backend.create(Header(id=session_id, created_at=created, cwd=cwd))
        try:
            for one in drafts:
                self.add(log, one)
            if not drafts:
                log.publish_empty()
            return log.path
        finally:
            log.close()
            backend.close()

    @staticmethod
    def add(log, *drafts: Draft, time: int = 1_700_000_000_000) -> None:
        log.append(drafts, time)
        log.acknowledge(log.write(log.seal()))


@pytest.fixture
def make(cli: Cli) -> Maker:
    return Maker(cli.root)


def _user(text: str) -> Draft:
    data = {
        "id": f"u-{text[:8]}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }
    return draft("user/message", data, surface_op="append")


def _assistant(text: str, *call_ids: str, tool: str = "tool", arguments: str = "{}") -> Draft:
    content = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool-call", "id": call_id, "name": tool, "arguments": arguments}
        for call_id in call_ids
    ]
    message = {
        "id": "m",
        "role": "assistant",
        "content": content,
        "source": {"kind": "model", "provider": "external", "model": "none"},
    }
    data = {"turn": 1, "step": 1, "message": message, "stream": []}
    return draft("assistant/message", data, surface_op="append")


def _call(call_id: str, tool: str = "tool", arguments: str = "{}") -> Draft:
    data = {"turn": 1, "step": 1, "callId": call_id, "name": tool, "arguments": arguments}
    return draft("tool/call", data)


def _result(call_id: str, call_seq: int, text: str, code: str | None = None, **meta) -> Draft:
    data = {
        "turn": 1,
        "step": 1,
        "message": {
            "id": f"r-{call_id}",
            "role": "user",
            "source": {"kind": "tool", "callId": call_id},
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": call_id,
                    "content": [{"type": "text", "text": text}],
                    "isError": code is not None,
                }
            ],
        },
    }
    if code is not None:
        data["error"] = {"name": "SomeError", "code": code}
    if meta:
        data["meta"] = meta
    return draft("tool/result", data, surface_op="append", sources=(call_seq,))


TURN = draft("turn/start", {"turn": 1})
STEP = draft("step/start", {"turn": 1, "step": 1})
STEP_END = draft("step/end", {"turn": 1, "step": 1})
TURN_END = draft("turn/end", {"turn": 1, "reason": {"kind": "completed"}})


@dataclass(frozen=True)
class Drafts:
    """What the tests write into logs."""

    turn = TURN
    step = STEP
    step_end = STEP_END
    turn_end = TURN_END
    user = staticmethod(_user)
    assistant = staticmethod(_assistant)
    call = staticmethod(_call)
    result = staticmethod(_result)

    def whole(self) -> list[Draft]:
        """A finished turn with one call, 9 events."""
        return [
            draft("interlock/writer", {"writer": "interlock", "version": "0"}, ignorable=True),
            TURN,
            _user("Pay the invoice"),
            STEP,
            _assistant("I will.", "c1", arguments='{"cents":500}'),
            _call("c1", arguments='{"cents":500}'),
            _result("c1", 5, "paid"),
            STEP_END,
            TURN_END,
        ]

    def cut_in_call(self) -> list[Draft]:
        """The same, ended after its tool/call: nobody knows what the call did."""
        return self.whole()[:6]


@pytest.fixture
def drafts() -> Drafts:
    return Drafts()


@pytest.fixture
def shared_samples() -> list[Path]:
    """Logs that the harness's own packages wrote, every generation."""
    samples = Path(__file__).parents[3] / ".." / "shared" / "dsh" / "samples"
    if not samples.is_dir():
        pytest.skip("../shared is not there")
    found = sorted(samples.glob("migrated/**/session.v3.jsonl*"))
    assert found
    return [path for path in found if path.suffix in (".jsonl", ".zstd")][:12]
