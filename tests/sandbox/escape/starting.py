"""Starting the suite: as ourselves, or where that is root as an ordinary user too."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interlock.sandbox import Mode

PROJECT = Path(__file__).parents[3]
SHARED = PROJECT.parent / "shared/sandbox/probes"
OWN = Path(__file__).with_name("probes")
NOBODY = 65534
#: Seconds that one run of all probes may take.
RUN_LIMIT = 240


def users() -> list[str]:
    """Who the suite can run as here: ``root`` and ``user``."""
    if os.geteuid() != 0:
        return ["user"]
    return ["root", "user"] if shutil.which("setpriv") and plain_python() else ["root"]


def plain_python() -> str | None:
    """An interpreter that an ordinary user can start."""
    ids = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
    for path in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        # By way of a shell: setpriv itself may still go where the user may not.
        check = f"{path} -c 'import sys; sys.exit(sys.version_info < (3, 11))'"
        tried = ["setpriv", *ids, "/bin/sh", "-c", check]
        if subprocess.run(tried, capture_output=True, cwd="/").returncode == 0:
            return path
    return None


def folders() -> list[Path]:
    """Where probes are: our own, and the shared ones where they are at hand."""
    return [OWN, *([SHARED] if SHARED.is_dir() else [])]


class Starter:
    """A copy of what the suite needs, where everybody may read it."""

    def __init__(self, base: Path, run_dir: Path | None) -> None:
        self._base, self._run_dir = base, run_dir
        base.chmod(0o755)
        shutil.copytree(PROJECT / "sandbox", base / "interlock/sandbox")
        for name in ("suite.py", "switches.py"):
            shutil.copy(Path(__file__).with_name(name), base)
        self._folders = []
        for number, folder in enumerate(folders()):
            self._folders.append(shutil.copytree(folder, base / f"probes{number}"))

    def run(self, backend: str, what: Mode | str, user: str, *, network: bool = False) -> Any:
        """One run; what it printed. Raises AssertionError with its complaint where it broke."""
        python, prefix = sys.executable, []
        if user == "user" and os.geteuid() == 0:
            python = plain_python() or python
            prefix = ["setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        elif os.geteuid() == 0:
            # A probe that gets through unmounts /dev: in a mount namespace that ends with it.
            prefix = ["unshare", "-m", "--propagation", "private"]
        env = os.environ | {"PYTHONPATH": str(self._base), "PYTHONDONTWRITEBYTECODE": "1"}
        if self._run_dir is not None:
            env["ESCAPE_RUN"] = str(self._run_dir)
        told = [backend, str(what), "net" if network else "no-net", *map(str, self._folders)]
        done = subprocess.run(
            [*prefix, python, str(self._base / "suite.py"), *told],
            env=env,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=RUN_LIMIT,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)


@contextmanager
def starter() -> Iterator[Starter]:
    """Make a `Starter`, and remove what it made."""
    run_dir = None
    with tempfile.TemporaryDirectory(prefix="interlock-escape-", dir="/var/tmp") as name:
        try:
            if os.geteuid() == 0:
                run_dir = Path(tempfile.mkdtemp(prefix="interlock-escape-", dir="/run"))
                run_dir.chmod(0o777)
            yield Starter(Path(name), run_dir)
        finally:
            if run_dir is not None:
                shutil.rmtree(run_dir, ignore_errors=True)
