"""``interlock exec``: one confined command, its status, and what it cannot reach."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time

import pytest
from interlock.sandbox import best

pytestmark = pytest.mark.skipif(best() is None, reason="nothing can confine here")


@pytest.fixture
def workspace(tmp_path):
    path = tmp_path / "workspace"
    path.mkdir()
    return path


def test_S2_read_only_leaves_no_file_and_says_what_was_refused(cli, workspace):
    ran = cli("exec", "--mode", "read-only", "--", "touch", "x", cwd=workspace)
    assert ran.status == 1
    assert not (workspace / "x").exists()
    assert "refused" in ran.err.splitlines()[-1]


def test_S2_workspace_write_writes_inside_and_not_outside(cli, workspace, tmp_path):
    mode = ("exec", "--mode", "workspace-write", "--")
    assert cli(*mode, "touch", "x", cwd=workspace).status == 0
    assert (workspace / "x").exists()
    # Its /tmp may be one of its own, so only the host can say whether that one was written.
    cli(*mode, "touch", tmp_path / "outside", cwd=workspace)
    assert not (tmp_path / "outside").exists()
    assert cli(*mode, "touch", "/usr/interlock-outside", cwd=workspace).status == 1
    other = tmp_path / "other"
    other.mkdir()
    ran = cli(*mode[:-1], "--writable", other, "--", "touch", other / "y", cwd=workspace)
    assert ran.status == 0
    assert (other / "y").exists()


def test_the_command_has_our_streams_and_its_own_status(cli, workspace):
    ran = cli("exec", "--", "sh", "-c", "cat; echo oops >&2; exit 7", cwd=workspace, stdin="given")
    assert (ran.status, ran.out, ran.err) == (7, "given", "oops\n")


@pytest.mark.parametrize(
    ("script", "status"),
    [("exit 0", 0), ("exit 3", 3), ("kill -TERM $$", 143), ("kill -KILL $$", 137)],
)
def test_statuses_of_what_ran(cli, workspace, script, status):
    assert cli("exec", "--", "sh", "-c", script, cwd=workspace).status == status


def test_S5_not_found_not_executable_and_a_sandbox_that_cannot_be_set_up(cli, workspace):
    (workspace / "plain").write_text("no program")
    assert cli("exec", "--", "surely-not-here", cwd=workspace).status == 127
    assert cli("exec", "--", "./plain", cwd=workspace).status == 126
    assert cli("exec", "--cwd", "/proc", "--", "true").status == 125
    assert "No such file" in cli("exec", "--cwd", workspace / "gone", "--", "true").refused(125)


def test_S6_a_workspace_inside_the_root_is_refused_and_nothing_runs(cli):
    cli.root.mkdir()
    line = cli("exec", "--cwd", cli.root, "--", "touch", "x").refused(125)
    assert "hides" in line
    assert not (cli.root / "x").exists()


def test_a_timeout_ends_the_command_with_124(cli, workspace):
    ran = cli("exec", "--timeout", "0.3", "--", "sh", "-c", "sleep 600", cwd=workspace)
    assert ran.status == 124
    assert "longer than allowed" in ran.err


def test_S6_a_workspace_that_contains_the_root_works_and_hides_it(cli, make, drafts, workspace):
    cli.env["INTERLOCK_ROOT"] = str(workspace / "logs")
    make.root = workspace / "logs"
    path = make("a", *drafts.whole())
    mode = ("exec", "--mode", "workspace-write", "--cwd", workspace, "--")
    assert cli(*mode, "touch", "fine").status == 0
    assert (workspace / "fine").exists()
    before = path.read_bytes()
    assert cli(*mode, "cat", path).status != 0
    assert cli(*mode, "sh", "-c", f"echo x >> {path}").status != 0
    assert cli(*mode, "rm", "-rf", path.parent).status != 0 or path.exists()
    assert path.read_bytes() == before


def test_S6_the_answerers_key_cannot_be_read(cli, live, workspace):
    keys = list(cli.runtimes.rglob("answerer.key"))
    assert len(keys) == 1
    ran = cli("exec", "--mode", "workspace-write", "--cwd", workspace, "--", "cat", keys[0])
    assert ran.status != 0
    assert ran.out == ""


def test_S7_nothing_it_started_is_left(cli, workspace):
    marker = f"sleep 4{os.getpid()}"
    script = f"setsid {marker} >/dev/null 2>&1 & echo up"
    ran = cli("exec", "--cwd", workspace, "--", "sh", "-c", script)
    assert ran.out == "up\n"
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert not [line for line in listed.stdout.splitlines() if line == marker]


def test_S7_ending_the_command_line_ends_the_command(start, workspace):
    process = start("exec", "--cwd", workspace, "--", "sh", "-c", "echo $$; exec sleep 4242")
    process.line()
    process.process.kill()
    process.process.wait()
    deadline = time.monotonic() + 20
    while _children_of_nobody("sleep 4242"):
        assert time.monotonic() < deadline


def _children_of_nobody(args):
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in listed.stdout.splitlines() if line == args]


def test_X5_only_named_variables_reach_it(cli, workspace):
    script = ("--", "sh", "-c", "echo $TOKEN/$OTHER/$GIVEN")
    env = {"TOKEN": "secret", "OTHER": "named"}
    assert cli("exec", *script, cwd=workspace, **env).out == "//\n"
    named = ("--env", "OTHER", "--env", "GIVEN=x=y")
    assert cli("exec", *named, *script, cwd=workspace, **env).out == "/named/x=y\n"
    assert "no such variable" in cli("exec", "--env", "ABSENT", *script).refused(2)


def test_S9_the_network_is_off_unless_asked_for(cli, workspace):
    script = ("--", "sh", "-c", "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' \\n'")
    if best().backend != "bwrap":
        pytest.skip("without a network namespace the interfaces stay visible")
    assert cli("exec", *script, cwd=workspace).out == "lo"
    host = subprocess.run(script[1:], capture_output=True, text=True, check=True).stdout
    assert cli("exec", "--net", *script, cwd=workspace).out == host


def test_json_is_one_document_with_what_held_it(cli, workspace):
    ran = cli("exec", "--json", "--", "sh", "-c", "echo hi; touch x; exit 4", cwd=workspace)
    assert ran.status == 4
    document = ran.json
    assert document["stdout"] == "hi\n"
    assert (document["status"], document["exit_code"]) == ("denied", 4)
    assert document["backend"] == best().backend
    assert document["code"] == "SANDBOX_DENIED"
    assert str(workspace / "x") in document["evidence"]
    refused = cli("exec", "--json", "--cwd", "/proc", "--", "true")
    assert refused.status == 125
    assert refused.json["status"] == "refused"


def test_S2_full_access_is_said_to_be_no_sandbox(cli, workspace):
    ran = cli("exec", "--mode", "danger-full-access", "--", "touch", workspace / "x")
    assert ran.status == 0
    assert (workspace / "x").exists()
    assert "not confined" in ran.err


def test_a_command_at_a_terminal_sees_one(cli, workspace):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(workspace)
        script = "test -t 0 && test -t 1 && test -t 2 && echo all; echo e >&2; exit 5"
        os.execve(sys.executable, cli.argv("exec", "--", "sh", "-c", script), cli.env)
    said = b""
    try:
        while piece := os.read(terminal, 4096):
            said += piece
    except OSError:
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    assert said.split() == [b"all", b"e"]
