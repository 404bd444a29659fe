"""Running commands as a user does: real processes, from another directory."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

#: Seconds after which a command is taken for hung.
PATIENCE = 100


class Command:
    """One ``python -m …`` under way, in a temporary directory of its own."""

    def __init__(self, module: str, *words: str, cwd: Path, path: list[str], tmp: Path) -> None:
        environment = dict(os.environ) | {"TMPDIR": str(tmp), "COLUMNS": "80"}
        environment["PYTHONPATH"] = os.pathsep.join([*path, *(p for p in sys.path if p)])
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, *words],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []

    def until(self, word: str) -> str:
        """Read its lines until one holds ``word``; fail if it ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            if word in line:
                return line
        raise AssertionError(f"it ended without saying {word!r}: {self.said} {self.end()}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end: status, the rest of what it said, and its errors."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, "".join(self.said) + out, err

    def document(self) -> tuple[int, dict[str, Any]]:
        """Wait for its end and read its JSON document."""
        status, out, err = self.end()
        assert out, err
        return status, json.loads(out)


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    """Start commands; what still runs at the end of the test is killed."""
    started: list[Command] = []

    def start(
        module: str, *words: str, cwd: Path | None = None, path: list[str] | None = None
    ) -> Command:
        tmp = tmp_path / "tmp"
        tmp.mkdir(exist_ok=True)
        made = Command(module, *words, cwd=cwd or tmp_path, path=path or [], tmp=tmp)
        started.append(made)
        return made

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture
def processes_of() -> Callable[[str], list[int]]:
    """Find the processes whose environment holds a marker (Linux)."""
    return _processes_of


def _processes_of(marker: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (path / "environ").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found
