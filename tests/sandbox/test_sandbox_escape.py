"""The escape probes against every backend and mode, judged from the host (S2, S6, S7, S9).

What may reach the host is decided by the policy, not by what a backend happens to do: each entry
names the gap that the backend declares, or the reason why the mode allows it.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from interlock.sandbox import Mode, probe

PROJECT = Path(__file__).parents[2]
PROBES = PROJECT.parent / "shared/sandbox/probes"
NOBODY = 65534

#: Modes govern writes; reading is open except for hidden paths.
ALLOWED = {"read-secrets": "reading is allowed"}
#: The workspace is writable: a file in it that is also elsewhere, and files that tools run later.
#: The audit reports them.
ALLOWED_WRITES = dict.fromkeys(("hardlink-pre", "git-nested", "editor-config", "envrc"), "audit")
GAPS = {
    "unix-outside": "unix-sockets",
    "see-host-procs": "process-visibility",
    "unix-run": "unix-sockets",
    "unix-tmp": "unix-sockets",
    **dict.fromkeys(("chmod-out", "chown-out", "utime-out", "xattr-out"), "metadata"),
    **dict.fromkeys(
        ("git-hook", "git-config-rename", "git-dir-swap", "agent-config"), "protected-paths"
    ),
    "fork-bomb": "running-as-root",
}
#: What a backend cannot do for a command, by mode. Read-only commands cannot write their workspace.
READ_ONLY_FAILS = {"git-commit-works", "fn-write-ws", "fn-chmod-ws", "fn-rename-ws"}
LANDLOCK_FAILS = {"fn-threads": "no /dev/shm", "fn-loopback": "no sockets without the network"}
#: Proves nothing, also unconfined: the attack itself is refused by every kernel.
NO_ATTACK = {"ftruncate-rofd"}


def declared_gaps(backend: str, mode: Mode, *, root: bool) -> set[str]:
    gaps = {"unix-sockets"}
    if backend == "landlock":
        gaps |= {"process-visibility"}
        gaps |= {"metadata", "protected-paths"} if mode is Mode.WORKSPACE_WRITE else set()
    return gaps | ({"running-as-root"} if root else set())


def expected_escapes(backend: str, mode: Mode, *, root: bool) -> set[str]:
    allowed = set(ALLOWED) | (set(ALLOWED_WRITES) if mode is Mode.WORKSPACE_WRITE else set())
    gaps = declared_gaps(backend, mode, root=root)
    escapes = allowed | {name for name, gap in GAPS.items() if gap in gaps}
    if backend == "bwrap":
        # It has a /run and a /tmp of its own. As a plain user we cannot listen in the host's /run:
        # then that socket lies outside, next to the workspace.
        escapes -= {"unix-tmp"} | ({"unix-run"} if root else set())
    return escapes


def expected_failures(backend: str, mode: Mode) -> set[str]:
    failures = set(READ_ONLY_FAILS) if mode is Mode.READ_ONLY else set()
    return failures | (set(LANDLOCK_FAILS) if backend == "landlock" else set())


@pytest.fixture(params=["me", "nobody"])
def starter(request):
    """How to start the suite: as who runs the tests, and where that is root as a plain user too."""
    if not PROBES.is_dir():
        pytest.skip("../shared/sandbox/probes is not here")
    root = os.geteuid() == 0
    if request.param == "nobody" and not (root and shutil.which("setpriv")):
        pytest.skip("already a plain user")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        base = Path(name)
        base.chmod(0o755)
        shutil.copytree(PROJECT / "sandbox", base / "interlock/sandbox")
        shutil.copy(Path(__file__).with_name("escape_suite.py"), base)
        shutil.copytree(PROBES, base / "probes")
        python = sys.executable
        prefix: list[str] = []
        if request.param == "nobody":
            ids = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
            python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or python
            prefix = ["setpriv", *ids]
        elif root:
            # A probe that gets through unmounts /dev: in a mount namespace that ends with it.
            prefix = ["unshare", "-m", "--propagation", "private"]
        command = [*prefix, python, str(base / "escape_suite.py"), str(base / "probes")]
        env = os.environ | {"PYTHONPATH": str(base), "PYTHONDONTWRITEBYTECODE": "1"}
        yield command, env, root and request.param == "me"


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.READ_ONLY, Mode.WORKSPACE_WRITE])
def test_S2_only_what_is_declared_reaches_the_host(backend, mode, starter):
    command, env, root = starter
    done = subprocess.run(
        [*command, backend, mode], env=env, cwd="/", capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert len(results) > 70
    escaped = {name for name, result in results.items() if result.startswith("ESCAPE")}
    failed = {name for name, result in results.items() if result == "FAIL"}
    odd = {
        name: result
        for name, result in results.items()
        if result not in ("OK", "FAIL", "INFO", "BLOCKED") and not result.startswith("ESCAPE")
    }
    if mode is Mode.WORKSPACE_WRITE and results["xattr-out"] == "INFO":
        escaped.add("xattr-out")
    expected = expected_escapes(backend, mode, root=root)
    assert escaped <= expected, f"reached the host undeclared: {escaped - expected}"
    assert expected - escaped <= {"xattr-out", "utime-out"}, "a declared gap was not real"
    assert failed == expected_failures(backend, mode)
    assert odd.keys() <= NO_ATTACK, odd


def test_S1_the_gaps_of_the_table_are_the_ones_reported():
    for report in probe():
        if report.usable:
            expected = declared_gaps(report.backend, Mode.WORKSPACE_WRITE, root=os.geteuid() == 0)
            assert set(report.gaps) == expected
