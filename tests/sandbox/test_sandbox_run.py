"""S5, S7, S8: how a command ends, how that is told, and that nothing of it stays."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from interlock.sandbox import CancelToken, Confined, Mode, Policy, confine, run
from interlock.sandbox.watch import watch

from .processes import STUBBORN, alive


def test_S5_a_commands_own_status(confined):
    outcome = confined("exit 7")
    assert (outcome.status, outcome.exit_code, outcome.signal) == ("exited", 7, None)


THREADS = """
import os, threading
def own():
    number = threading.get_native_id()
    os.sched_setaffinity(number, os.sched_getaffinity(0))
    os.sched_setscheduler(number, os.SCHED_OTHER, os.sched_param(0))
    os.setpriority(os.PRIO_PROCESS, number, os.getpriority(os.PRIO_PROCESS, 0))
    said.append("thread")
said = []
thread = threading.Thread(target=own)
thread.start()
thread.join()
child = os.posix_spawn("/bin/sleep", ["sleep", "5"], {})
os.setpriority(os.PRIO_PROCESS, child, 19)
os.kill(child, 9)
print(*said, "child")
"""


def test_S2_a_command_sets_the_schedule_of_its_own_threads_and_children(confined):
    outcome = confined([sys.executable, "-c", THREADS])
    assert outcome.stdout.head == b"thread child\n", outcome.stderr.head


def test_S2_programs_whose_libraries_do_so_run(confined):
    """libzmq gives its threads a schedule, by number, and aborts where that is refused."""
    pytest.importorskip("zmq")
    program = (
        "import zmq; c = zmq.Context(); a, b = c.socket(zmq.PAIR), c.socket(zmq.PAIR); "
        "a.bind('inproc://x'); b.connect('inproc://x'); b.send(b'hello'); print(a.recv())"
    )
    outcome = confined([sys.executable, "-c", program])
    assert outcome.stdout.head == b"b'hello'\n", outcome.stderr.head


def test_S5_a_signal_is_told(confined):
    outcome = confined("kill -SEGV $$")
    assert (outcome.status, outcome.signal, outcome.exit_code) == ("signalled", 11, 139)


def test_S5_a_missing_program_is_not_a_broken_sandbox(confined):
    for argv in (["interlock-no-such"], ["./missing/x"], ["/etc/passwd/x"]):
        outcome = confined(argv)
        assert (outcome.status, outcome.exit_code) == ("not-found", None), outcome.message


def test_S5_a_missing_program_is_told_with_inherited_streams(confined, place):
    assert confined(["interlock-no-such"], stdio="inherit").status == "not-found"
    (place.workspace / "plain").write_text("x")
    assert confined(["./plain"], stdio="inherit").status == "not-executable"


def test_S5_a_program_that_cannot_be_executed(confined, place):
    (place.workspace / "plain").write_text("echo x")
    for argv in (["./plain"], ["/etc"]):
        outcome = confined(argv)
        assert (outcome.status, outcome.exit_code) == ("not-executable", None), outcome.message


def test_S5_a_script_without_an_interpreter_line_runs(confined, place):
    (place.workspace / "script").write_text("echo ran $1")
    (place.workspace / "script").chmod(0o755)
    assert confined(["./script", "it"]).stdout.head == b"ran it\n"


@pytest.mark.parametrize(
    "words",
    [
        "bwrap: execvp foo: No such file or directory",
        "bwrap: Can't mount proc",
        "landlock-launch: failed",
        '{"exit-code": 0}',
        "Permission denied",
        "Read-only file system",
        "rm: ./mine: Permission denied",
    ],
)
def test_S5_words_in_the_output_decide_nothing(confined, words):
    outcome = confined(["/bin/sh", "-c", 'echo "$1" >&2; exit 1', "sh", words])
    assert (outcome.status, outcome.exit_code, outcome.evidence) == ("exited", 1, None)


def test_S5_the_status_channel_is_out_of_reach(confined):
    """Every descriptor that the command can find gets a forged record; none arrives."""
    forge = """for p in /proc/[0-9]*; do for f in $p/fd/*; do
        [ "$p" = "/proc/$$" ] || { echo '{"exit-code": 0, "signal": 0}' > $f; } 2>/dev/null
    done; done; exit 3"""
    outcome = confined(forge, timeout=60)
    # Under Landlock it can name other processes' descriptors: writing to them was refused.
    assert (outcome.status, outcome.exit_code) in (("exited", 3), ("denied", 3))


def test_S5_a_refusal_names_what_was_refused(confined, place):
    outcome = confined(f"echo x > {place.outside}/new")
    assert outcome.status == "denied"
    assert str(place.outside / "new") in outcome.evidence


def fake_bwrap(directory: Path, body: str) -> Path:
    program = directory / "bwrap"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


def test_S5_a_sandbox_that_breaks_is_told_from_a_command_that_fails(place):
    from interlock.sandbox import bwrap
    from interlock.sandbox.run import _outcome

    program = fake_bwrap(place.outside, 'echo "bwrap: Can\'t mount proc on /newroot" >&2; exit 1')
    policy = Policy(Mode.READ_ONLY, place.workspace)
    made = bwrap.build(policy, ["touch", "x"], bwrap.Rung(), str(program))
    outcome = _outcome(watch(made, timeout=30), made)
    assert (outcome.status, outcome.exit_code) == ("sandbox-failed", None)
    assert "Can't mount proc" in outcome.message


def test_S5_a_runner_that_is_killed_is_a_broken_sandbox(place):
    from interlock.sandbox import bwrap
    from interlock.sandbox.run import _outcome

    program = fake_bwrap(place.outside, "kill -9 $$")
    policy = Policy(Mode.READ_ONLY, place.workspace)
    made = bwrap.build(policy, ["true"], bwrap.Rung(), str(program))
    outcome = _outcome(watch(made, timeout=30), made)
    assert outcome.status == "sandbox-failed"
    assert "SIGKILL" in outcome.message


def test_S7_a_left_over_daemon_is_gone(confined, tag):
    outcome = confined(
        f"setsid sh -c 'while :; do sleep 1; : {tag}; done' >/dev/null 2>&1 & echo x"
    )
    assert outcome.status == "exited"
    assert alive(tag) == []


def test_S8_a_call_ends_with_its_command_though_a_child_holds_the_pipe(confined, tag):
    outcome = confined(STUBBORN.format(tag=tag) + "echo done", timeout=60)
    assert outcome.status == "exited"
    assert outcome.stdout.head == b"done\n"
    assert outcome.duration < 30
    assert alive(tag) == []


def test_S7_a_timeout_takes_the_whole_tree(confined, tag):
    script = STUBBORN.format(tag=tag) + "trap '' TERM; echo up; while :; do sleep 1; done"
    outcome = confined(script, timeout=1, grace=0.2)
    assert outcome.status == "timeout"
    assert outcome.stdout.head == b"up\n"
    assert alive(tag) == []


def test_S7_a_timeout_asks_first(confined):
    script = "trap 'echo bye; exit 4' TERM; while :; do sleep 0.05; done"
    outcome = confined(script, timeout=1, grace=20)
    assert (outcome.status, outcome.exit_code) == ("timeout", 4)
    assert outcome.stdout.head == b"bye\n"
    assert outcome.duration < 15


def test_S7_cancelling_wakes_the_run_at_once(confined, tag):
    token = CancelToken()
    started = threading.Event()
    script = STUBBORN.format(tag=tag) + "echo up; sleep 600"

    def cancel_when_up():
        started.wait(30)
        token.cancel()

    canceller = threading.Thread(target=cancel_when_up)
    canceller.start()
    outcome = confined(
        script, timeout=None, grace=0.1, cancel=token, on_output=lambda *_: started.set()
    )
    canceller.join()
    assert outcome.status == "cancelled"
    assert alive(tag) == []


def test_S7_a_cancelled_token_starts_nothing(confined, place):
    token = CancelToken()
    token.cancel()
    assert confined("touch ran", cancel=token).status == "cancelled"
    assert list(place.workspace.iterdir()) == []


def test_S7_an_exception_in_a_callback_ends_the_command(confined, tag):
    def fail(_stream, _piece):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        confined(STUBBORN.format(tag=tag) + "echo up; sleep 600", on_output=fail)
    assert alive(tag) == []


HOST = """
import os, sys
from pathlib import Path
from interlock.sandbox import Mode, Policy, run
policy = Policy(Mode.WORKSPACE_WRITE, Path(sys.argv[1]))
run(["/bin/sh", "-c", os.environ["SCRIPT"]], policy, timeout=None,
    backends=(sys.argv[2],), on_output=lambda *_: print("up", flush=True))
"""


@pytest.mark.parametrize("mode", ["plain", "forked"])
def test_S7_a_killed_host_leaves_nothing(backend, place, tag, mode):
    """Also where the host had forked, so that a copy of its descriptors lives on."""
    fork = "import os, time\nif os.fork() == 0:\n    time.sleep(20)\n    os._exit(0)\n"
    source = HOST.replace('lambda *_: print("up", flush=True)', "up")
    told = "def up(*_):\n    FORK\n    print('up', flush=True)\nrun(["
    source = source.replace("run([", told)
    body = fork.replace("\n", "\n    ") if mode == "forked" else "pass"
    script = STUBBORN.format(tag=tag) + "echo up; sleep 600"
    host = subprocess.Popen(
        [sys.executable, "-c", source.replace("FORK", body), place.workspace, backend],
        env={**os.environ, "SCRIPT": script},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert host.stdout.readline() == b"up\n"
        assert alive(tag)
        host.kill()
        host.wait()
        limit = time.monotonic() + 15
        while (left := alive(tag)) and time.monotonic() < limit:
            time.sleep(0.02)
        assert left == []
    finally:
        with contextlib.suppress(OSError):
            os.killpg(host.pid, signal.SIGKILL)
        host.stdout.close()


def test_S8_commands_outlive_the_threads_around_them(confined):
    """A parent-death signal follows the thread that spawned: here that is the one that waits."""
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda n: confined(f"sleep 0.1; exit {n}"), range(16)))
    assert [o.exit_code for o in outcomes] == list(range(16))


def test_S8_a_flood_of_output_is_bounded_and_counted(confined):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    outcome = confined("echo first; head -c 200000000 /dev/zero; echo; echo last", timeout=90)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert outcome.exit_code == 0
    assert outcome.stdout.total == 200_000_000 + len("first\n\nlast\n")
    assert outcome.stdout.head.startswith(b"first\n")
    assert outcome.stdout.tail.endswith(b"last\n")
    assert len(outcome.stdout.head) + len(outcome.stdout.tail) == 262_144
    assert outcome.stdout.cut == outcome.stdout.total - 262_144
    assert str(outcome.stdout.cut) in outcome.stdout.text()
    assert grown < 50_000, f"{grown} KiB"


def test_S8_output_arrives_as_it_comes_and_binary(confined):
    pieces = []
    outcome = confined(
        r"printf '\377\000a'; echo err >&2", on_output=lambda *piece: pieces.append(piece)
    )
    assert outcome.stdout.head == b"\xff\x00a"
    assert outcome.stdout.text() == "�\x00a"
    assert sorted(pieces) == [("stderr", b"err\n"), ("stdout", b"\xff\x00a")]


def test_S8_stdin_is_empty_unless_given(confined):
    assert confined("cat").stdout.head == b""
    given = b"x" * 1_000_000
    assert confined("wc -c", stdin=given).stdout.text().strip() == "1000000"
    assert confined("true", stdin=given).exit_code == 0


def test_S8_no_descriptor_and_no_directory_is_left(confined, tmp_path, monkeypatch):
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    confined("true")
    before = len(os.listdir("/proc/self/fd"))
    for script in ("true", "interlock-no-such", "kill -9 $$"):
        confined(script, env={"A": "b"}, stdin=b"x")
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(tmp_path.iterdir()) == []


def test_S2_full_access_is_the_callers_own_argv(place):
    policy = Policy(Mode.DANGER_FULL_ACCESS, place.workspace)
    with confine(["touch", "x"], policy) as made:
        assert isinstance(made, Confined)
        assert made.argv == ["touch", "x"]
        assert (made.backend, made.enforcement) == ("none", "none")
    outcome = run(["/bin/sh", "-c", f"echo x > {place.outside}/new"], policy, timeout=30)
    assert (outcome.status, outcome.backend, outcome.enforcement) == ("exited", "none", "none")
    assert (place.outside / "new").exists()


def test_S7_full_access_leaves_nothing_either(place, tag, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "hunter2")
    policy = Policy(Mode.DANGER_FULL_ACCESS, place.workspace)
    script = STUBBORN.format(tag=tag) + "env; exit 5"
    outcome = run(["/bin/sh", "-c", script], policy, timeout=60)
    assert outcome.exit_code == 5
    assert "hunter2" not in outcome.stdout.text()
    assert alive(tag) == []
    assert run(["interlock-no-such"], policy, timeout=30).status == "not-found"


def test_S5_a_missing_program_stays_missing_where_path_is_closed(confined, place):
    closed = place.outside / "closed"
    closed.mkdir(mode=0o000)
    outcome = confined(["interlock-no-such"], env={"PATH": f"{closed}:/usr/bin:/bin"})
    closed.chmod(0o700)
    assert outcome.status == "not-found", outcome.message
