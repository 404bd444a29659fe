"""``interlock approvals``: somebody in another terminal decides what a running agent may do."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import sys
from pathlib import Path

import pytest
from interlock.sandbox import best


def ask(cli, live, text="hello"):
    """Have the live session make a call, and return its request once it is open."""
    live.process.stdin.write(f"{text}\n")
    live.process.stdin.flush()
    while not (waiting := cli("approvals", "list", "--json").json["approvals"]):
        pass
    [request] = waiting
    return request


def test_A6_the_list_shows_the_request_and_the_arguments_from_the_log(cli, live):
    request = ask(cli, live)
    while request["arguments"] is None:  # within the write-behind window the log lacks them
        [request] = cli("approvals", "list", "--json").json["approvals"]
    assert request["session"] == "live-1"
    assert request["tool"] == "send"
    assert request["call_id"] == "c1"
    assert request["arguments"] == '{"text":"hello"}'
    assert 0 < request["remaining_s"] <= 600
    assert request["age_s"] >= 0
    out = cli("approvals", "list").out
    for part in (request["id"], "live-1", "c1", "send", request["reason"], '{"text":"hello"}'):
        assert part in out


def test_A2_allowing_by_the_beginning_of_an_id_runs_the_call_once(cli, live):
    request = ask(cli, live)
    ran = cli("approvals", "allow", request["id"][:8], "--note", "checked")
    assert ran.status == 0
    assert "allowed once" in ran.out
    assert live.line() == "call None sent hello"
    out = cli("sessions", "show", "live-1").out
    assert "allowed once by answerer:" in out
    assert "checked" in out


def test_rejecting_keeps_the_body_from_running_and_says_who_and_why(cli, live):
    request = ask(cli, live)
    document = cli("approvals", "reject", request["id"], "--note", "no way", "--json").json
    assert document["settled"] is True
    line = live.line()
    assert line.startswith("call APPROVAL_REJECTED")
    assert document["by"] in line
    assert "no way" in line


def test_A8_an_answer_to_a_settled_or_unknown_request_is_status_1(cli, live):
    request = ask(cli, live)
    assert cli("approvals", "allow", request["id"]).status == 0
    live.line()
    assert "may have been settled" in cli("approvals", "allow", request["id"]).refused(1)
    cli("approvals", "reject", "feedface").refused(1)
    cli("approvals", "reject", "").refused(1)


def test_without_a_runtime_it_says_so_at_once(cli):
    ran = cli("approvals", "list", "--json")
    assert ran.status == 0
    assert ran.json == {"runtimes": [], "approvals": []}
    assert "no runtime" in cli("approvals", "list").err
    assert "no runtime" in cli("approvals", "allow", "x").refused(1)


def test_A10_watch_without_a_terminal_refuses_instead_of_waiting(cli, live):
    assert "needs a terminal" in cli("approvals", "watch").refused(2)


def test_a_runtime_that_does_not_answer_is_said_within_seconds(cli, live):
    request = ask(cli, live)
    [broker] = [pid for pid in _children(live.process.pid) if _is_broker(pid)]
    os.kill(broker, signal.SIGSTOP)
    try:
        ran = cli("approvals", "list", "--json")
        assert ran.status == 1
        assert ran.json["runtimes"][0]["answers"] is False
        assert "does not answer" in ran.err
        assert "did not answer" in cli("approvals", "allow", request["id"]).refused(1)
    finally:
        os.kill(broker, signal.SIGCONT)
    assert cli("approvals", "allow", request["id"]).status == 0


def test_F1_a_broker_that_is_gone_is_said_at_once_and_hides_no_other(cli, live):
    request = ask(cli, live)
    [found] = cli.runtimes.glob("interlock/*/runtime.json")
    gone = found.parent.with_name("0gone")
    gone.mkdir(mode=0o700)
    info = json.loads(found.read_text())
    info |= {"broker": f"ipc://{gone}/broker-1", "pid": 1}
    (gone / "runtime.json").write_text(json.dumps(info))
    (gone / "answerer.key").write_text(found.with_name("answerer.key").read_text())
    ran = cli("approvals", "list", "--json")
    assert ran.status == 0
    assert {r["pid"]: r["answers"] for r in ran.json["runtimes"]} == {
        1: False,
        live.process.pid: True,
    }
    assert "nobody listens" in ran.err
    assert cli("approvals", "allow", request["id"]).status == 0


@pytest.mark.skipif(best() is None, reason="nothing can confine here")
def test_S6_a_confined_command_cannot_answer_its_own_approval(cli, live, tmp_path):
    request = ask(cli, live)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    inside = ("exec", "--mode", "workspace-write", "--net", "--cwd", workspace)
    inside += tuple(f"--env={n}" for n in ("XDG_RUNTIME_DIR", "PYTHONPATH") if n in cli.env)
    seen = cli(*inside, "--", sys.executable, "-c", "import interlock.actors, typer")
    if seen.status != 0:
        pytest.skip("this Python is not visible inside the sandbox")
    ran = cli(*inside, "--", *cli.argv("approvals", "allow", request["id"]))
    assert ran.status == 1, ran.err
    assert "Traceback" not in ran.err
    [still] = cli("approvals", "list", "--json").json["approvals"]
    assert still["id"] == request["id"]


class Terminal:
    """A person at a terminal: reads what is shown, presses keys."""

    def __init__(self, cli, *words):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, cli.argv(*words), cli.env | {"TERM": "xterm"})
        self.shown = ""

    def until(self, text):
        while text not in self.shown:
            ready, _, _ = select.select([self.fd], [], [], 60)
            assert ready, self.shown
            self.shown += os.read(self.fd, 4096).decode(errors="replace")
        _, _, self.shown = self.shown.partition(text)

    def press(self, key):
        os.write(self.fd, key.encode())

    def status(self):
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_watch_shows_requests_as_they_come_and_takes_one_key_for_each(cli, live):
    terminal = Terminal(cli, "approvals", "watch")
    terminal.until("Watching 1 runtimes")
    live.process.stdin.write("first\n")
    live.process.stdin.flush()
    terminal.until('{"text":"first"}')
    terminal.until("[q]uit")
    terminal.press("a")
    terminal.until("allowed once")
    assert live.line() == "call None sent first"
    live.process.stdin.write("second\n")
    live.process.stdin.flush()
    terminal.until('{"text":"second"}')
    terminal.until("[q]uit")
    terminal.press("r")
    terminal.until("rejected")
    assert live.line().startswith("call APPROVAL_REJECTED")
    live.process.stdin.write("third\n")
    live.process.stdin.flush()
    terminal.until('{"text":"third"}')
    terminal.until("[q]uit")
    terminal.press("s")
    terminal.until("skipped")
    [request] = cli("approvals", "list", "--json").json["approvals"]
    terminal.press("q")
    assert terminal.status() == 0
    assert cli("approvals", "allow", request["id"]).status == 0
    assert live.line() == "call None sent third"


def test_F4_watch_follows_a_broker_that_was_replaced(cli, live):
    terminal = Terminal(cli, "approvals", "watch", "--tool", "s?nd", "--session", "live-*")
    terminal.until("Watching 1 runtimes")
    live.process.stdin.write("first\n")
    live.process.stdin.flush()
    terminal.until('{"text":"first"}')
    [broker] = [pid for pid in _children(live.process.pid) if _is_broker(pid)]
    os.kill(broker, signal.SIGKILL)
    assert live.line().startswith("call APPROVAL_UNAVAILABLE")
    terminal.until("its broker was replaced")
    live.process.stdin.write("second\n")
    live.process.stdin.flush()
    terminal.until('{"text":"second"}')
    terminal.until("[q]uit")
    terminal.press("a")
    terminal.until("allowed once")
    assert live.line() == "call None sent second"
    terminal.press("q")
    assert terminal.status() == 0


def test_A8_watch_says_when_somebody_else_decided(cli, live):
    terminal = Terminal(cli, "approvals", "watch")
    terminal.until("Watching 1 runtimes")
    request = ask(cli, live)
    terminal.until(request["id"][:8])
    terminal.until("[q]uit")
    assert cli("approvals", "reject", request["id"]).status == 0
    terminal.until("settled elsewhere: rejected")
    terminal.press("\x03")
    assert terminal.status() == 0


def _children(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def _is_broker(pid):
    return b"interlock.actors.broker" in Path(f"/proc/{pid}/cmdline").read_bytes()
