"""X1, X2, X5: where secrets are and are not."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Command, Runtime, RuntimeFailureError, ToolCall, ToolContext, tool
from interlock.actors.roles import OWNERS
from interlock.backends.codes import Code
from security_support import keys_of
from spine_support import TOOLS, descendants

Start = Callable[..., Runtime]

ACTORS = Path(__file__).parents[3] / "actors"

SECRETS = [
    "ANTHROPIC_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_CLIENT_SECRET",
    "CLOUDFLARE_API_TOKEN",
    "CONSUL_HTTP_TOKEN",
    "DATABASE_URL",
    "DEEPSEEK_API_KEY",
    "DIGITALOCEAN_TOKEN",
    "DOCKER_AUTH_CONFIG",
    "GCP_SERVICE_ACCOUNT",
    "GITHUB_TOKEN",
    "GITLAB_TOKEN",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "HF_TOKEN",
    "KUBECONFIG",
    "MYSQL_PWD",
    "NETRC",
    "NPM_TOKEN",
    "OPENAI_API_KEY",
    "PGPASSWORD",
    "PYPI_TOKEN",
    "REDIS_URL",
    "SENTRY_DSN",
    "SLACK_BOT_TOKEN",
    "SSH_AUTH_SOCK",
    "STRIPE_API_KEY",
    "TWILIO_AUTH_TOKEN",
    "VAULT_TOKEN",
]


@tool(effect="read")
def environment() -> dict[str, str]:
    """What a worker's body sees."""
    import os

    return dict(os.environ)


@tool(effect="read", isolate=True)
def isolated_environment() -> dict[str, str]:
    """What a body with a process of its own sees."""
    import os

    return dict(os.environ)


@tool(place="sandbox", effect="read")
def confined_environment(ctx: ToolContext, mode: str) -> Command:
    """What a command sees."""
    return Command(["env"], env={"NAMED": "for the command"}, mode=mode, justification="a test")


@tool(place="sandbox", effect="read")
def descriptors() -> Command:
    """What a command has open: its three streams, and the directory that it reads."""
    return Command(["/bin/sh", "-c", "ls -l /proc/$$/fd"])


def call(runtime: Runtime, cwd: Path, name: str, arguments: dict[str, Any]) -> Any:
    session = runtime.create(cwd=cwd)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("call-7", name, arguments)])
        [result] = step.execute()
    assert not result.is_error, result
    return result.value


def printed(environment: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in environment.splitlines() if "=" in line)


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    values = {name: f"secret-{number}" for number, name in enumerate(SECRETS)}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    return values


def test_X5_no_secret_of_the_environment_reaches_a_body(
    secrets: dict[str, str], start: Start, place: Path
) -> None:
    assert len(secrets) == 30
    tools = [environment, isolated_environment, confined_environment]
    runtime = start(tools=tools, worker_env=["VAULT_TOKEN"], answerer=lambda _request: True)
    for name in ("environment", "isolated_environment"):
        seen = call(runtime, place, name, {})
        assert {key for key in seen if key in secrets} == {"VAULT_TOKEN"}, name
        assert seen["VAULT_TOKEN"] == secrets["VAULT_TOKEN"]
        assert not [v for k, v in seen.items() if v.startswith("secret-") and k != "VAULT_TOKEN"]
    for mode in ("read-only", "workspace-write", "danger-full-access"):
        seen = printed(call(runtime, place, "confined_environment", {"mode": mode})["stdout"])
        assert not seen.keys() & secrets.keys(), mode
        assert not [v for v in seen.values() if v.startswith("secret-")], mode
        assert seen["NAMED"] == "for the command"
        assert seen["INTERLOCK_CALL_ID"] == "call-7", "I1: the call's id is not in it"
        assert seen["INTERLOCK_IDEMPOTENCY_KEY"]


SCRIPT = """
import json, os, sys
from pathlib import Path
from interlock.actors import Command, Runtime, ToolCall, tool

@tool(place="sandbox", effect="read")
def descriptors() -> Command:
    "What a command has open."
    return Command(["/bin/sh", "-c", "ls -l /proc/$$/fd"])

os.umask(0)
runtime = Runtime(sys.argv[1], tools=[descriptors], workers=1)
session = runtime.create("s", cwd=sys.argv[2])
with session.turn("work") as turn, turn.step() as step:
    step.assistant("", [ToolCall("c1", "descriptors", {})])
    [result] = step.execute()
print(json.dumps([result.value["stdout"], str(runtime._core.directory)]), flush=True)
sys.stdin.readline()
runtime.close()
"""


@pytest.fixture
def open_host(place: Path, root: Path) -> Any:
    """A host with umask 000, an inheritable descriptor 9, and a runtime directory of its own."""
    work, run = place / "work", place / "run"
    work.mkdir()
    run.mkdir()
    script = place / "host.py"
    script.write_text(SCRIPT)
    secret = place / "secret"
    secret.write_text("s3cret")
    process = subprocess.Popen(
        [
            *("/bin/sh", "-c", 'exec 9<"$0"; exec "$@"', str(secret), sys.executable),
            *(str(script), str(root / "deep" / "er"), str(work)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"XDG_RUNTIME_DIR": str(run), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the host failed"
    yield process, *json.loads(line)
    process.kill()
    process.wait()


def test_S12_a_command_inherits_its_three_streams_and_nothing_else(open_host: Any) -> None:
    process, listing, _ = open_host
    assert os.path.exists(f"/proc/{process.pid}/fd/9"), "the test shows nothing: no descriptor 9"
    numbers = [line.split(" -> ")[0].split()[-1] for line in listing.splitlines() if " -> " in line]
    assert numbers == ["0", "1", "2"], listing
    for pid in descendants(process.pid):
        links = {
            os.readlink(f"/proc/{pid}/fd/{fd}")
            for fd in os.listdir(f"/proc/{pid}/fd")
            if os.path.islink(f"/proc/{pid}/fd/{fd}")
        }
        assert not [link for link in links if link.endswith("/secret")], pid


def test_X1_L7_nobody_else_can_read_what_is_ours_under_umask_000(
    open_host: Any, root: Path
) -> None:
    _, _, directory = open_host
    logs = list(root.rglob("*.zstd"))
    assert len(logs) == 1
    ours = [*root.rglob("*"), root, Path(directory), *Path(directory).rglob("*")]
    ours.append(Path(directory).parent)
    wrong = {}
    for path in ours:
        mode = path.lstat().st_mode
        if path.name != root.name and stat.S_IMODE(mode) & 0o077 and not stat.S_ISSOCK(mode):
            wrong[str(path)] = oct(stat.S_IMODE(mode))
    assert not wrong
    assert stat.S_IMODE(root.lstat().st_mode) == 0o700, "a directory above the root was left open"
    assert (Path(directory) / "answerer.key").stat().st_mode & 0o777 == 0o600
    assert (logs[0].stat().st_mode & 0o777, logs[0].parent.stat().st_mode & 0o777) == (0o600, 0o700)


def secret_keys(runtime: Runtime) -> dict[str, list[bytes]]:
    """Every secret of the runtime in each form it could be written."""
    from zmq.utils import z85

    keys = keys_of(runtime)
    pairs = {"host": keys.host, "client": keys.client, "answerer": keys.answerer} | keys.owners
    return {str(name): [pair.secret, z85.decode(pair.secret)] for name, pair in pairs.items()}


def test_X1_keys_are_in_no_file_but_the_answerers_and_in_no_argv_or_environment(
    start: Start, root: Path, place: Path
) -> None:
    runtime = start()
    call(runtime, place, "add", {"a": 1, "b": 2})
    _ = runtime.client_key
    secrets = secret_keys(runtime)
    files = [
        path
        for base in (root, place, runtime._core.directory)
        for path in base.rglob("*")
        if path.is_file()
    ]
    found = {
        (name, path.name)
        for path in files
        for name, forms in secrets.items()
        if any(form in path.read_bytes() for form in forms)
    }
    assert found == {("answerer", "answerer.key")}
    key_file = runtime._core.directory / "answerer.key"
    assert root not in key_file.parents
    pids = descendants(os.getpid())
    assert len(pids) >= len(OWNERS) + 1
    for pid in pids:
        for part in ("cmdline", "environ"):
            text = b""
            # It has ended since, or is just being replaced by another program: nothing to read.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                text = Path(f"/proc/{pid}/{part}").read_bytes()
            for name, forms in secrets.items():
                assert not any(form in text for form in forms), (name, part)


def test_X1_the_runtime_directory_goes_with_the_runtime(start: Start) -> None:
    runtime = start()
    directory = runtime._core.directory
    assert (directory / "answerer.key").exists()
    runtime.close()
    assert not directory.exists()


def test_X2_only_the_module_that_packs_tools_knows_pickle() -> None:
    knows = set()
    for path in ACTORS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if {name.split(".")[0] for name in names} & {"pickle", "cloudpickle", "dill", "shelve"}:
                knows.add(str(path.relative_to(ACTORS)))
    assert knows == {"tools/pack.py"}


def test_X2_only_a_worker_unpacks_and_only_the_host_packs() -> None:
    users: dict[str, set[str]] = {"pack": set(), "unpack": set()}
    for path in ACTORS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("tools.pack"):
                for alias in node.names:
                    users.setdefault(alias.name, set()).add(str(path.relative_to(ACTORS)))
    assert users["unpack"] == {"worker/actor.py"}
    assert users["pack"] <= {"runtime/config.py", "tools/__init__.py"}


# Forks: the threads and sockets of a runtime stay with the process that made it.

FORK = """
import json, os, sys
from interlock.actors import Runtime, RuntimeFailureError, ToolCall, tool

@tool(place="host", effect="write")
def forks() -> int:
    "Fork in a host body."
    pid = os.fork()
    if pid == 0:
        os._exit(touch())
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

def touch() -> int:
    "How many ways of touching the runtime were refused with RUNTIME_CLOSED."
    refused = 0
    for attempt in (
        runtime.create, runtime.stats, session.flush, lambda: session.events,
        lambda: session.subscribe(), lambda: session.set_approval_policy("never"),
        lambda: runtime.open("other"), lambda: session.append("user/message", {}), session.close,
    ):
        try:
            attempt()
        except RuntimeFailureError as error:
            refused += error.code == "RUNTIME_CLOSED" and "fork" in error.message
    runtime.close()  # nothing to do here, and nothing is done
    return refused

runtime = Runtime(sys.argv[1], tools=[forks], workers=1)
session = runtime.create("s", cwd="/")
with session.turn("work") as turn:
    with turn.step() as step:
        step.assistant("", [ToolCall("c1", "forks", {})])
        [result] = step.execute()
    pid = os.fork()
    if pid == 0:
        os._exit(touch())
    in_script = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    pid = os.fork()
    if pid == 0:
        sys.exit(0)  # an ordinary end, with everything that runs at it
    os.waitpid(pid, 0)
    with turn.step() as step:
        step.assistant("", [ToolCall("c1", "forks", {})])
        [again] = step.execute()
alive = runtime._core.directory.exists()
restarts = len(runtime.stats()["restarts"])
print(json.dumps([result.value, in_script, again.value, alive, restarts, runtime.close()]))
"""


def test_a_fork_leaves_the_runtime_alone_and_the_child_is_told(root: Path, place: Path) -> None:
    script = place / "forks.py"
    script.write_text(FORK)
    done = subprocess.run(
        [sys.executable, str(script), str(root)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    [line] = done.stdout.splitlines()
    body, in_script, again, alive, restarts, durable = json.loads(line)
    assert (body, in_script, again) == (9, 9, 9), "a touch of the runtime was not refused"
    assert alive, "the child removed the runtime's directory"
    assert restarts == 0
    assert durable["s"] > 0


def test_X5_a_secret_is_named_by_its_whole_name(start: Start) -> None:
    with pytest.raises((ValueError, RuntimeFailureError)) as refused:
        start(tools=TOOLS, worker_env=["AWS_*"])
    assert "AWS_*" in str(refused.value)
    assert getattr(refused.value, "code", Code.ACTOR_LOST) == Code.ACTOR_LOST
