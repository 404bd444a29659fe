"""S6: modules that a confined command plants beside the host's program reach no owner.

The directory of the program that hosts a runtime is often the workspace itself, and stands first on
its ``sys.path``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from interlock.actors.search_path import owners_path, standard_library_first

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from interlock.actors import Command, Runtime, ToolCall, tool

NAMES = ["zmq", "msgspec", "zstandard", "pykka", "pydantic", "cloudpickle", "typing", "logging",
         "sitecustomize", "usercustomize", "jsonschema_rs", "encodings", "interlock", "asyncio",
         "sqlite3", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"]

@tool(place="sandbox", effect="write")
def plant(names: list[str], mark: str) -> Command:
    "Plant modules, as a file and as a package."
    code = f"open({mark!r}, 'a').write(__name__ + chr(10))"
    script = 'c="$1"; shift; for n in "$@"; do mkdir -p "$n"; echo "$c" > "$n/__init__.py"; '
    script += 'echo "$c" > "$n.py"; done'
    return Command(["/bin/sh", "-c", script, "sh", code, *names])

@tool(effect="write", isolate=True)
def add(a: int, b: int) -> int:
    "Add, in a process of its own."
    import asyncio, logging, sqlite3
    return a + b

def call(session, name, arguments):
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", name, arguments)])
        [result] = step.execute()
    return result

root, mark = sys.argv[1:]
said = {}
with Runtime(root, tools=[plant, add], workers=1) as runtime:
    session = runtime.create("s", cwd=".")
    said["planted"] = call(session, "plant", {"names": NAMES, "mark": mark}).code
    session.close()
    for role, pid in runtime.processes.items():
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while len(runtime.stats()["restarts"]) < len(said) or any(
            "error" in runtime.stats()[r] for r in runtime.processes
        ):
            assert time.monotonic() < deadline, role
        result = call(runtime.create(cwd="."), "add", {"a": 20, "b": 22})
        said[role] = result.message or result.value
print(json.dumps(said))
"""


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_S6_no_owner_and_no_worker_starts_with_a_module_that_a_command_planted(
    place: Path, root: Path
) -> None:
    program, mark = place / "program.py", root.parent / "mark"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(root), str(mark)],
        cwd=place,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (place / "zmq" / "__init__.py").exists(), done.stdout
    said = json.loads(done.stdout)
    assert said == {"planted": None} | dict.fromkeys(
        ("writer", "dispatcher", "broker", "launcher"), 42
    )
    assert not mark.exists(), f"planted code ran: {mark.read_text().split()}"


def test_S6_an_owner_starts_with_installed_packages_and_not_with_the_hosts_directory(
    tmp_path: Path,
) -> None:
    (tmp_path / "zmq.py").write_text("")
    entries = [str(tmp_path), "", *sys.path]
    found = owners_path(entries)
    assert str(tmp_path) not in found
    assert "" not in found
    assert [e for e in found if os.path.basename(e) in ("site-packages", "dist-packages")]


def test_an_owner_finds_what_it_needs_where_that_is_in_no_usual_directory(tmp_path: Path) -> None:
    target = tmp_path / "vendored"
    (target / "zmq").mkdir(parents=True)
    (target / "zmq" / "__init__.py").write_text("")
    plain = [e for e in sys.path if os.path.basename(e) not in ("site-packages", "dist-packages")]
    assert str(target) in owners_path([str(tmp_path), str(target), *plain])


def test_in_a_worker_the_standard_library_comes_before_the_hosts_directory(tmp_path: Path) -> None:
    found = standard_library_first([str(tmp_path), *sys.path])
    at = found.index(str(tmp_path))
    standard = [e for e in sys.path if e.endswith(("lib-dynload", ".zip"))]
    assert standard
    assert all(found.index(e) < at for e in standard)
    assert set(found) == {str(tmp_path), *sys.path}
