"""The README's example, copied into a file and run as it stands, prints what the README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


def blocks() -> tuple[str, str]:
    text = README.read_text()
    found = re.search(r"```python\n(?P<code>.*?)```.*?```text\n(?P<output>.*?)```", text, re.DOTALL)
    assert found is not None, "the README lost its example"
    return found["code"], found["output"]


@pytest.mark.skipif(sys.platform == "win32", reason="writing logs is not supported on Windows yet")
def test_the_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    code, output = blocks()
    program = tmp_path / "example.py"
    program.write_text(code)
    done = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
