"""The harness's own reader, from npm: its v3 codec and restorer, under Node 24 from npm."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from interlock.backends import payloads, schema

HERE = Path(__file__).parent
HARNESS = HERE / "harness"
#: Where the packages are kept between runs; `make clean` removes it.
CACHE = HERE.parents[1] / "build" / "peers"
#: Seconds that an installation may take.
PATIENCE = 240


class Harness:
    """Asks the harness about logs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def read(self, paths: Iterable[Path]) -> dict[Path, dict]:
        """Return, for each log, how many events it accepts or why it refuses it."""
        known = sorted(payloads.BY_TYPE.keys() | schema.OTHER_TYPES)
        asked = "".join(json.dumps({"path": str(p), "known": known}) + "\n" for p in paths)
        done = subprocess.run(
            [self.directory / "node_modules" / ".bin" / "node", "accept.mjs"],
            cwd=self.directory,
            input=asked,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
        return {Path(told["path"]): told for told in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="session")
def harness() -> Harness:
    if shutil.which("npm") is None:
        pytest.skip("npm is not there")
    files = sorted(path for path in HARNESS.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    directory = CACHE / f"harness-{digest}"
    if not (directory / "ready").exists():
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(HARNESS, directory)
        try:
            subprocess.run(
                ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=True,
            )
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm did not install the harness's packages within {PATIENCE} s")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"npm cannot install the harness's packages: {error.stderr[-300:]}")
        (directory / "ready").touch()
    return Harness(directory)
