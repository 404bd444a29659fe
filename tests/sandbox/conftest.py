"""Real workspaces and real backends; a backend that is not here is skipped with its reason."""

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from interlock.sandbox import Mode, Outcome, Policy, landlock, launcher, probe, run

from .processes import alive


@dataclass(frozen=True)
class Place:
    """A workspace and a directory next to it, both outside /tmp, which bubblewrap replaces."""

    workspace: Path
    outside: Path


@pytest.fixture
def place() -> Iterator[Place]:
    base = Path(tempfile.mkdtemp(prefix="interlock-test-", dir="/var/tmp"))
    for name in ("workspace", "outside"):
        (base / name).mkdir()
    (base / "outside/kept").write_text("kept")
    yield Place(base / "workspace", base / "outside")
    shutil.rmtree(base, ignore_errors=True)


@pytest.fixture(params=["bwrap", "landlock"])
def backend(request: pytest.FixtureRequest) -> str:
    reports = {report.backend: report for report in probe()}
    report = reports.get(request.param)
    if report is None or not report.usable:
        reason = f"{request.param}: {report.reason if report else 'not on this platform'}"
        # A broken profile makes its backend unusable; that must not pass as a missing one.
        assert not could_be_used(request.param), reason
        pytest.skip(reason)
    return request.param


def could_be_used(backend: str) -> bool:
    """Whether the machine has what a backend needs, asked without its code."""
    if backend == "landlock":
        return landlock.abi() >= landlock.LEAST_ABI
    return bare_bwrap()


def bare_bwrap(*flags: str) -> bool:
    """Whether bubblewrap can start anything here, with ``flags``."""
    program = shutil.which("bwrap")
    command = [str(program), "--unshare-user", *flags, "--ro-bind", "/", "/", "true"]
    return program is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def tag() -> Iterator[str]:
    """A word for a process's arguments; processes that still carry it afterwards are killed."""
    made = f"tag-{uuid.uuid4().hex}"
    yield made
    for pid in alive(made):
        os.kill(pid, signal.SIGKILL)


Run = Callable[..., Outcome]


@pytest.fixture
def confined(backend: str, place: Place) -> Run:
    """Run a shell script under the backend at hand; keywords go to the policy or to `run`."""

    def start(script: str | list[str], mode: Mode = Mode.WORKSPACE_WRITE, **settings) -> Outcome:
        known = {"hidden", "network", "env", "limits", "require", "writable", "cwd"}
        policy = Policy(
            mode, place.workspace, **{k: settings.pop(k) for k in known & settings.keys()}
        )
        argv = ["/bin/sh", "-c", script] if isinstance(script, str) else script
        settings.setdefault("timeout", 30)
        return run(argv, policy, backends=(backend,), **settings)

    return start


@pytest.fixture
def python() -> list[str]:
    """An interpreter that a sandbox can start, without the virtual environment."""
    return [launcher.interpreter(), "-I", "-S", "-c"]
