"""``interlock run`` from end to end: hosting, resuming after a kill, Ctrl-C."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUN = "interlock.actors.hosting"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

TOOLS = '''
"""Tools of the test."""
import os
from interlock.actors import ToolContext, tool

@tool(effect="write")
def mark(ctx: ToolContext, wait: bool = False) -> str:
    """Write a line, then wait for a file named go."""
    path = os.path.join(ctx.cwd, "marks")
    with open(path, "a") as file:
        file.write(ctx.session_id + "\\n")
    while wait and not os.path.exists(os.path.join(ctx.cwd, "go")):
        if ctx.wait_cancelled(0.02):
            ctx.raise_if_cancelled()
    return "marked"
'''

FILE = """
[runtime]
root = "logs"
worker_env = ["TMPDIR"]
[[tools]]
use = "marking_tools:mark"
[[tools]]
use = "read_file"
[[agents]]
id = "marker"
count = 3
prompts = ["Mark.", "Read."]
[agents.model]
kind = "scripted"
[[agents.model.script]]
text = "Marking."
calls = [{ tool = "mark", arguments = { wait = WAIT } }]
[[agents.model.script]]
text = "Marked."
[[agents.model.script]]
calls = [{ tool = "read_file", arguments = { path = "marks" } }]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of three agents whose calls wait until the test lets them go on."""
    (tmp_path / "marking_tools.py").write_text(TOOLS)
    path = tmp_path / "agents.toml"
    path.write_text(FILE.replace("WAIT", "true"))
    return path


def states(told: dict) -> dict[str, str]:
    return {agent["id"]: agent["state"] for agent in told["agents"]}


def started(file: Path) -> int:
    marks = file.parent / "marks"
    return len(marks.read_text().splitlines()) if marks.exists() else 0


def until_started(running, file: Path, count: int) -> None:
    while started(file) < count:
        assert running.process.poll() is None, running.end()


def test_agents_of_a_file_run_to_their_end_and_are_then_done(command, file) -> None:
    (file.parent / "go").touch()
    status, told = command(RUN, str(file), "--json").document()
    assert status == 0
    assert states(told) == dict.fromkeys(["marker-1", "marker-2", "marker-3"], "finished")
    assert told["calls"] == 6
    status, out, _ = command(RUN, str(file)).end()
    assert status == 0
    assert "All 3 agents had finished before" in out
    assert started(file) == 3


def test_F1_after_a_kill_the_same_command_goes_on_and_repeats_nothing(command, file) -> None:
    running = command(RUN, str(file))
    until_started(running, file, 3)
    running.process.kill()
    running.end()
    (file.parent / "go").touch()
    status, told = command(RUN, str(file), "--json").document()
    assert status == 0
    assert states(told) == dict.fromkeys(["marker-1", "marker-2", "marker-3"], "finished")
    assert told["resumed"] == 3
    # P9: each body ran once, in the first process's worker, and its result was recorded.
    assert started(file) == 3
    assert all(agent["results_by_code"] == {"OK": 1} for agent in told["agents"])


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_L16_ctrl_c_leaves_nothing_and_can_be_resumed(command, processes_of, file) -> None:
    running = command(RUN, str(file))
    until_started(running, file, 3)
    running.interrupt()
    status, out, err = running.end()
    assert status == 130
    assert "goes on from here" in err
    assert "Traceback" not in err
    assert "3 interrupted" in out
    assert processes_of(f"TMPDIR={file.parent / 'tmp'}") == []
    (file.parent / "go").touch()
    status, told = command(RUN, str(file), "--json").document()
    assert (status, told["finished"], told["resumed"]) == (0, 3, 3)
    assert started(file) == 3


def test_L17_an_agent_that_fails_does_not_keep_others_from_finishing(command, file) -> None:
    (file.parent / "go").touch()
    failing = '[[agents]]\nid = "failing"\nprompt = "x"\n'
    failing += 'model = { kind = "scripted", script = [{ error = "no answer today" }] }\n'
    file.write_text(file.read_text() + failing)
    status, told = command(RUN, str(file), "--json").document()
    assert status == 1
    assert states(told)["failing"] == "failed"
    assert (told["finished"], told["failed"]) == (3, 1)
    assert "no answer today" in told["agents"][-1]["error"]


def test_D12_an_unknown_key_is_named_in_one_line(command, file) -> None:
    file.write_text(file.read_text().replace("count = 3", "cuont = 3"))
    status, out, err = command(RUN, str(file)).end()
    assert (status, out) == (1, "")
    assert err.count("\n") == 1
    assert "'cuont'" in err
    assert str(file) in err


ASKING = """
[runtime]
root = "logs"
[[tools]]
use = "asking_tools:transfer"
[[agents]]
id = "asker"
prompt = "Pay."
[agents.model]
kind = "scripted"
script = [{ calls = [{ tool = "transfer", arguments = { cents = 500 } }] }]
"""

ASKING_TOOLS = '''
from interlock.actors import tool

@tool(effect="write", approval="ask")
def transfer(cents: int) -> int:
    """Pay."""
    return cents
'''


@pytest.fixture
def asking(tmp_path: Path) -> Path:
    """A file whose one agent asks for an approval."""
    (tmp_path / "asking_tools.py").write_text(ASKING_TOOLS)
    path = tmp_path / "agents.toml"
    path.write_text(ASKING)
    return path


class Terminal:
    """``interlock run`` with a person in front of it: a pseudo-terminal."""

    def __init__(self, file: Path) -> None:
        environment = dict(os.environ) | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", RUN, str(file)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        os.close(theirs)
        self.said = ""

    def until(self, word: str) -> None:
        while word not in self.said:
            assert self._read(), f"it ended without {word!r}: {self.said}"

    def _read(self) -> bool:
        try:
            data = os.read(self._ours, 65536)
        except OSError:  # Linux: the other side is closed
            return False
        self.said += data.decode(errors="replace")
        return bool(data)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> int:
        while self._read():
            pass
        os.close(self._ours)
        return self.process.wait(60)


@pytest.mark.parametrize(("answer", "code"), [("y", "OK"), ("n", "APPROVAL_REJECTED")])
def test_A2_a_person_at_the_terminal_decides_with_the_arguments_in_sight(
    asking: Path, answer: str, code: str
) -> None:
    terminal = Terminal(asking)
    terminal.until("[y/n]")
    assert '{"cents":500}' in terminal.said
    assert "asker asks: may transfer run?" in terminal.said
    terminal.type("what?\n")
    terminal.until("y or n")
    terminal.type(f"{answer}\n")
    assert terminal.end() == 0
    assert f"transfer {code}" in terminal.said


def test_A3_ctrl_c_at_the_question_allows_nothing(command, asking: Path) -> None:
    terminal = Terminal(asking)
    terminal.until("[y/n]")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    asking.write_text(ASKING.replace('id = "asker"', 'id = "asker"\napproval = "never"'))
    status, told = command(RUN, str(asking), "--json").document()
    assert (status, told["resumed"]) == (0, 1)
    assert "OK" not in told["agents"][0]["results_by_code"]
