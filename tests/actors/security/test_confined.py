"""S6: a confined command against the runtime that runs it, with every backend that is here.

The workspace contains the log root: the place where a command reaches farthest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Command, Runtime, ToolCall, tool
from interlock.actors.messages import AnswerApproval
from interlock.actors.roles import Role
from interlock.backends.codes import Code
from interlock.backends.reading import read_log
from interlock.sandbox import launcher, probe
from security_support import Stranger, counted, keys_of
from spine_support import TOOLS, InThread, until

Start = Callable[..., Runtime]

PROJECT = Path(__file__).parents[3]
AS_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


@tool(place="sandbox", effect="write")
def sh(script: str) -> Command:
    """Run a shell script in the sandbox."""
    return Command(["/bin/sh", "-c", script])


@tool(place="sandbox", effect="write")
def program(argv: list[str], env: dict[str, str]) -> Command:
    """Run a program in the sandbox."""
    return Command(argv, env=env)


@pytest.fixture(params=["bwrap", "landlock"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name: str = request.param
    found = {report.backend: report for report in probe()}.get(name)
    if found is None or not found.usable:
        pytest.skip(f"{name}: {found.reason if found else 'not on this platform'}")
    monkeypatch.setenv("INTERLOCK_SANDBOX_BACKENDS", name)
    return name


@pytest.fixture
def workspace(place: Path) -> Path:
    path = place / "work"
    path.mkdir()
    return path


@pytest.fixture
def logs(workspace: Path) -> Path:
    return workspace / "state" / "logs"


def call(session: Any, name: str, arguments: dict[str, Any]) -> Any:
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", name, arguments)])
        [result] = step.execute()
    return result


def out(result: Any) -> str:
    """What the command printed, whether it succeeded or not."""
    assert result.code not in (Code.SANDBOX_UNAVAILABLE, Code.TOOL_NOT_STARTED), result
    value = result.value if isinstance(result.value, dict) else {}
    return str(value.get("stdout", "")) or str(result.content)


def contents(logs: Path) -> dict[str, bytes]:
    return {str(p.relative_to(logs)): p.read_bytes() for p in logs.rglob("*") if p.is_file()}


ATTACKS = {
    "read": "find . -type f; cat {logs}/*/* {logs}/*/*/* state/logs/*/*/*",
    "list": "ls -laR . {logs}; find .. -name '*.zstd'",
    "write": "for f in $(find state); do echo MARKER >> $f; done; echo MARKER > {logs}/x",
    "remove": "rm -rf state {logs}",
    "rename": "mv state elsewhere; mv state/logs state/other; mv {logs} stolen",
    "exchange": "mv state aside && mkdir -p state/logs && echo MARKER > state/logs/x",
    "link": "ln state/logs/*/*/*.zstd mine; ln -s {logs} there; cat there/*/*; cp -r there/. copy",
    "open up": "chmod -R 777 state {logs}; cat state/logs/*/*/*",
    "by the process": "cat /proc/*/root{logs}/*/*/* /proc/*/cwd/state/logs/*/*/*; "
    "for fd in /proc/[0-9]*/fd/*; do readlink $fd; done",
    "unmount": "umount {logs}; umount -l state/logs; mount -t tmpfs x state; cat state/logs/*/*/*",
}


def test_S6_a_command_neither_reads_nor_writes_logs_in_its_workspace(
    backend: str, start: Start, workspace: Path, logs: Path
) -> None:
    runtime = start(root=logs, tools=[sh])
    session = runtime.create("s", cwd=workspace)
    first = call(session, "sh", {"script": "echo begun > begun"})
    assert f"'{backend}'" in str(first.meta), first.meta
    assert (workspace / "begun").exists(), first
    session.append("user/message", message("THE-SECRET-WORD"), flush=True)
    for attack, template in ATTACKS.items():
        before = contents(logs)
        script = template.format(logs=logs)
        command = f"({script}) 2>&1 </dev/null | tail -c 60000; true"
        seen = out(call(session, "sh", {"script": command}))
        # A second command may find what the first one moved out of the way.
        again = out(call(session, "sh", {"script": "find . -name '*.zstd'; cat $(find . -type f)"}))
        session.flush()
        for text in (seen, again):
            for mark in ("THE-SECRET-WORD", "session.v3"):
                assert mark not in text, f"{attack}: it could read the log"
        after = contents(logs)
        for name, data in before.items():
            assert name in after, f"{attack}: {name} is gone"
            if name.endswith(".zstd"):
                assert after[name].startswith(data), f"{attack}: the log was changed"
        assert after.keys() == before.keys(), attack
        assert not [name for name, data in after.items() if b"MARKER" in data], attack
        assert stat.S_IMODE(logs.stat().st_mode) == 0o700, attack
    types = [event.type for event in read_log(session.path).events]
    assert types.count("tool/result") == 1 + 2 * len(ATTACKS)
    copies = [p for p in workspace.rglob("*") if p.is_file() and logs not in p.parents]
    assert not [p for p in copies if b"THE-SECRET" in p.read_bytes()]


def test_S6_the_logs_of_this_users_other_runtimes_are_hidden_as_well(
    backend: str, start: Start, workspace: Path, root: Path
) -> None:
    other = start(root=workspace / "others")
    other.create("theirs", cwd=workspace).flush()
    assert list(workspace.rglob("*.zstd"))
    session = start(root=root, tools=[sh]).create(cwd=workspace)
    seen = out(call(session, "sh", {"script": "find . ; echo done"}))
    assert "done" in seen
    assert "zstd" not in seen


def message(text: str) -> dict[str, Any]:
    return {
        "id": "u1",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }


@pytest.fixture
def site(place: Path) -> Path:
    """The command line and what it needs, where a confined command can read it."""
    path = place / "site"
    copy_packages(path, "pykka", "pyzmq", "msgspec", "typer", "rich", "zstandard")
    return path


def copy_packages(path: Path, *names: str) -> None:
    """Copy this project and the distributions ``names`` with what they need to ``path``."""
    for name in ("actors", "backends", "sandbox"):
        shutil.copytree(PROJECT / name, path / "interlock" / name, ignore=_no_cache)
    if "interlock" in names:
        text = (PROJECT / "pyproject.toml").read_text()
        names += tuple(tomllib.loads(text)["project"]["dependencies"])
    for name in _needed(*names):
        for file in metadata.files(name) or ():
            source = Path(str(file.locate()))
            if ".." not in file.parts and "__pycache__" not in file.parts and source.is_file():
                (path / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, path / file)


def _no_cache(_directory: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__"}


def _needed(*names: str) -> set[str]:
    """The distributions ``names`` and what they need, without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = _name_of(waiting.pop())
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in found:
            found.add(name)
            waiting += [r for r in requires if "extra ==" not in r]
    return found


def _name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    return found.group() if found else requirement


DIRECT = """
import json, sys
sys.path.insert(0, sys.argv[1])
endpoint, key_file, request = sys.argv[2:]
told = {}
try:
    told["key"] = open(key_file).read()
except OSError as error:
    told["key_error"] = error.strerror
import zmq
public, secret = zmq.curve_keypair()
for name, keys in (("none", None), ("own", (public, secret))):
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    if keys:
        socket.curve_publickey, socket.curve_secretkey = keys
        socket.curve_serverkey = sys.stdin.readline().strip().encode() or public
    socket.connect(endpoint)
    try:
        socket.send(b"AnswerApproval", zmq.NOBLOCK)
    except zmq.Again:
        pass
    told[name] = socket.poll(500)
print(json.dumps(told))
"""


def test_S6_a_confined_command_cannot_answer_its_own_approval(
    backend: str,
    start: Start,
    stranger: Callable[..., Stranger],
    workspace: Path,
    logs: Path,
    site: Path,
) -> None:
    runtime = start(root=logs, tools=[*TOOLS, program], answerer="external", workers=2)
    asking = runtime.create(cwd=workspace)
    waiting = InThread(lambda: call(asking, "pay", {"cents": 5}))
    until(lambda: counted(runtime, Role.BROKER, "open_approvals")() == 1)
    request = next(e.data["id"] for e in asking.events if e.type == "approval/asked")
    session = runtime.create(cwd=workspace)
    python = launcher.interpreter()
    env = {"PYTHONPATH": str(site), "XDG_RUNTIME_DIR": os.environ.get("XDG_RUNTIME_DIR", "")}

    cli = [python, "-m", "interlock.actors.cli", "approvals"]
    listed = call(session, "program", {"argv": [*cli, "list", "--json"], "env": env})
    assert request not in out(listed), "a command can see what is asked"
    answered = call(session, "program", {"argv": [*cli, "allow", request], "env": env})
    assert answered.is_error
    words = ("no runtime of this user is running", "/interlock-", "/interlock: ")
    assert any(word in str(answered.content) for word in words), answered

    script = workspace / "direct.py"
    script.write_text(DIRECT)
    directory = runtime._core.directory
    endpoint = runtime._core._starter.addresses[Role.BROKER].endpoint
    argv = [python, str(script), str(site), endpoint, str(directory / "answerer.key"), request]
    told = json.loads(out(call(session, "program", {"argv": argv, "env": {}})))
    assert "key" not in told, "a command could read the answerer's key"
    assert (told["none"], told["own"]) == (0, 0), "a command was answered"

    assert waiting.running, "somebody has answered"
    assert counted(runtime, Role.BROKER, "open_approvals")() == 1
    one = stranger(runtime, Role.BROKER, keys_of(runtime).answerer)
    assert one.ask(AnswerApproval(1, request, "allow", "a person")).taken
    result = waiting.result()
    assert result.value == "paid 5"
    [decided] = [
        e.data
        for e in asking.events
        if e.type == "interlock/approval" and e.data["state"] == "decided"
    ]
    assert decided["by"] == "answerer:a person"


def test_S3_without_bubblewrap_landlock_is_taken(
    start: Start, workspace: Path, root: Path, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    found = {report.backend: report for report in probe()}
    if not found["landlock"].usable:
        pytest.skip(found["landlock"].reason)
    path = place / "bin"
    path.mkdir()
    for name in ("sh", "cat", "touch"):
        (path / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    monkeypatch.setenv("PATH", str(path))
    assert shutil.which("bwrap") is None
    runtime = start(tools=[sh])
    session = runtime.create(cwd=workspace)
    call(session, "sh", {"script": "touch inside; touch ../outside; true"})
    assert (workspace / "inside").exists()
    assert not (place / "outside").exists()
    [result] = [e.data for e in session.events if e.type == "tool/result"]
    assert '"landlock"' in json.dumps(result)


def test_S3_a_backend_that_is_not_there_runs_nothing(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_SANDBOX_BACKENDS", "nothing")
    session = start(tools=[sh]).create(cwd=workspace)
    result = call(session, "sh", {"script": "touch ran"})
    assert result.code == Code.SANDBOX_UNAVAILABLE
    assert not (workspace / "ran").exists()


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.timeout(240)
def test_S6_all_of_it_holds_for_an_ordinary_user(place: Path) -> None:
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("the tests run as an ordinary user already, or setpriv is missing")
    python = next((p for p in ("/usr/bin/python3", "/usr/local/bin/python3") if usable(p)), None)
    if python is None:
        pytest.skip("no interpreter of this version that an ordinary user can start")
    place.chmod(0o755)
    copy_packages(place / "site", "interlock", "pytest", "pytest-timeout")
    # Once for the many processes to come, whose user could not keep what it compiles.
    compiled = [python, "-m", "compileall", "-q", "-j", "0", str(place / "site")]
    subprocess.run(compiled, capture_output=True, check=False)
    for name in ("actors", "backends", "sandbox"):
        (place / name).symlink_to(place / "site" / "interlock" / name)
    deep = place / "tests" / "actors"
    shutil.copytree(PROJECT / "tests" / "actors" / "security", deep / "security", ignore=_no_cache)
    shutil.copytree(PROJECT / "tests" / "actors" / "spine", deep / "spine", ignore=_no_cache)
    temp = f"/var/tmp/ilk-{os.getpid()}"
    options = ("-q", "--import-mode=importlib", "-p", "no:cacheprovider", "--basetemp", temp)
    wanted = "reads or umask or environment or (approval and bwrap)"
    env = {k: v for k, v in os.environ.items() if k != "XDG_RUNTIME_DIR"}
    done = subprocess.run(
        [
            *(*AS_NOBODY, python, "-m", "pytest", *options, "--rootdir", str(place)),
            *("-k", f"({wanted}) and not ordinary", "-rs", str(deep / "security")),
        ],
        cwd="/",
        env=env
        | {
            "HOME": "/nonexistent",
            "PYTHONPATH": str(place / "site"),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=230,
        check=False,
    )
    shutil.rmtree(temp, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


def usable(python: str) -> bool:
    """Whether an ordinary user can run our copy of the packages with it (same version)."""
    ask = [*AS_NOBODY, python, "-c", "import sys; print(sys.version_info[:2])"]
    done = subprocess.run(ask, capture_output=True, text=True, cwd="/", check=False)
    return done.stdout.strip() == str(sys.version_info[:2])
