"""The harness's own packages from npm, kept under ``build/peers`` between runs."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent
_KEPT = _HERE.parent / "build" / "peers"
#: Seconds that an installation may take.
_PATIENCE = 300


class NotThereError(Exception):
    """The peer cannot be measured here; the text says why."""


def installed(programs: Path = _HERE / "harness") -> Path:
    """Return a directory with the programs, their packages and Node; installs them the first time.

    Raises :class:`NotThereError` where npm is not there or cannot install them.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NotThereError("npm is not there")
    files = sorted(path for path in programs.iterdir() if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    home = _KEPT / f"load-{digest}"
    if (home / "ready").exists():
        return home
    shutil.rmtree(home, ignore_errors=True)
    shutil.copytree(programs, home)
    install = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock"]
    try:
        subprocess.run(
            install, cwd=home, capture_output=True, text=True, timeout=_PATIENCE, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise NotThereError(f"npm took more than {_PATIENCE} s") from error
    except subprocess.CalledProcessError as error:
        raise NotThereError(f"npm: {error.stderr.strip()[-200:]}") from error
    (home / "ready").touch()
    return home
