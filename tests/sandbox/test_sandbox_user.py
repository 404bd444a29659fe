"""The same clauses as an ordinary user, where the tests run as root."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
#: Not what has a run of its own as a plain user, nor what does not depend on who runs it.
MODULES = [
    f"test_sandbox_{name}.py"
    for name in ("policy", "choice", "reach", "run", "verdicts", "guardian")
]
PYTHONS = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
#: A copy of the test runner, since the environment may lie below root's home.
PYTEST = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "py")
AS_NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("module", MODULES)
def test_all_clauses_hold_for_an_ordinary_user(module):
    if sys.platform != "linux" or os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("the tests run as an ordinary user already, or setpriv is missing")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        base = Path(name)
        base.chmod(0o755)
        shutil.copytree(PROJECT / "sandbox", base / "interlock/sandbox")
        (base / "tests").mkdir()
        for file in ("conftest.py", "processes.py", module):
            shutil.copy(Path(__file__).with_name(file), base / "tests")
        for package in PYTEST:
            found = importlib.util.find_spec(package)
            if found is not None and Path(found.origin).name == "__init__.py":
                shutil.copytree(Path(found.origin).parent, base / package)
            elif found is not None:
                shutil.copy(found.origin, base)
        python = next((p for p in PYTHONS if can_start(p, PYTHONPATH=name)), None)
        if python is None:
            pytest.skip("no interpreter that an ordinary user can start")
        options = ["-q", "--import-mode=importlib", "-p", "no:cacheprovider", "--rootdir", name]
        command = [python, "-m", "pytest", *options, "--basetemp", f"/var/tmp/ilk-{os.getpid()}"]
        done = run_as_nobody([*command, str(base / "tests")], PYTHONPATH=name)
        shutil.rmtree(f"/var/tmp/ilk-{os.getpid()}", ignore_errors=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def can_start(python: str, **env: str) -> bool:
    # By way of a shell: setpriv itself may still go where the user may not.
    return run_as_nobody(["/bin/sh", "-c", f"{python} -c 'import pytest'"], **env).returncode == 0


def run_as_nobody(command: list[str], **env: str) -> "subprocess.CompletedProcess[str]":
    clean = os.environ | {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"} | env
    return subprocess.run(
        [*AS_NOBODY, *command], cwd="/", env=clean, capture_output=True, text=True, timeout=110
    )
