"""F5, S7: whatever of the launcher is killed, its commands end with it, detached children too."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from interlock.sandbox import Mode, Policy, launcher, probe, run, standby

from .processes import DETACHED, alive, descendants, until

pytestmark = pytest.mark.skipif(not standby.possible(), reason="no prepared processes here")


def parts(guardian: int) -> dict[str, int]:
    """The processes of a nursery that runs one command: by what they are."""
    nursery = int(Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()[0])
    busy = max(
        map(int, Path(f"/proc/{nursery}/task/{nursery}/children").read_text().split()),
        key=lambda supervisor: len(descendants(supervisor)),
    )
    return {"guardian": guardian, "nursery": nursery, "supervisor": busy}


@pytest.fixture
def guardian():
    standby.close()  # one of its own for each test
    yield standby.prepare().pid
    standby.close()


@pytest.mark.parametrize("victim", ["guardian", "nursery", "supervisor"])
def test_F5_a_killed_launcher_takes_its_commands_and_their_detached_children(
    backend, place, tag, guardian, victim
):
    outcomes, up = [], threading.Event()
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace)
    argv = [launcher.interpreter(), "-I", "-S", "-c", DETACHED, tag]

    def work():
        outcomes.append(
            run(argv, policy, timeout=60, backends=(backend,), on_output=lambda *_: up.set())
        )

    runner = threading.Thread(target=work)
    runner.start()
    assert up.wait(30)
    assert alive(tag)
    os.kill(parts(guardian)[victim], signal.SIGKILL)
    runner.join(30)
    assert until(lambda: not alive(tag)), "something outlived the launcher"
    # Never silently gone, and never said to have failed by itself.
    assert outcomes[0].status in ("lost", "signalled"), outcomes[0]
    if victim == "supervisor":
        assert outcomes[0].status == "lost", outcomes[0]


@pytest.mark.parametrize("victim", ["guardian", "nursery"])
def test_F5_the_whole_launcher_ends_and_the_next_command_has_a_new_one(place, guardian, victim):
    run(["true"], Policy(Mode.READ_ONLY, place.workspace), timeout=30)  # now they are all there
    everyone = [guardian, *descendants(guardian)]
    os.kill(parts(guardian)[victim], signal.SIGKILL)
    assert until(lambda: not [p for p in everyone if running(p)])
    outcome = run(["true"], Policy(Mode.READ_ONLY, place.workspace), timeout=30)
    assert outcome.status == "exited", outcome
    assert standby.prepare().pid != guardian


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


HOST = """
import os, sys
from pathlib import Path
from interlock.sandbox import Mode, Policy, run
policy = Policy(Mode.WORKSPACE_WRITE, Path(sys.argv[1]))
run(sys.argv[3:], policy, timeout=None, backends=(sys.argv[2],),
    on_output=lambda *_: print("up", flush=True))
"""


def test_F5_a_killed_host_takes_detached_children_along(backend, place, tag):
    argv = [launcher.interpreter(), "-I", "-S", "-c", DETACHED, tag]
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, place.workspace, backend, *argv], stdout=subprocess.PIPE
    )
    with host:
        assert host.stdout.readline() == b"up\n"
        everyone = descendants(host.pid)
        assert alive(tag)
        host.kill()
    assert until(lambda: not alive(tag))
    assert until(lambda: not [p for p in everyone if running(p)])


def test_S7_an_orphan_of_a_killed_supervisor_falls_to_the_guardian(place, tag, guardian):
    """Landlock has no namespace that ends with its first process: the guardian is what is left."""
    reports = {report.backend: report for report in probe()}
    if not reports["landlock"].usable:
        pytest.skip(reports["landlock"].reason)
    up = threading.Event()
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace)
    argv = [launcher.interpreter(), "-I", "-S", "-c", DETACHED, tag]
    settings = {"timeout": 60, "backends": ("landlock",), "on_output": lambda *_: up.set()}
    runner = threading.Thread(target=run, args=(argv, policy), kwargs=settings)
    runner.start()
    assert up.wait(30)
    found = parts(guardian)
    os.kill(found["supervisor"], signal.SIGKILL)
    runner.join(30)
    assert until(lambda: not alive(tag))
    # It ended that one only: the nursery is there for the next command.
    assert running(found["nursery"])
    assert running(found["guardian"])
    assert run(["true"], policy, timeout=30, backends=("landlock",)).exit_code == 0


def test_S8_a_command_outlives_the_thread_that_prepared_its_launcher(place):
    """A parent-death signal follows a thread: the one that started the launcher may end."""
    standby.close()
    thread = threading.Thread(target=standby.prepare)
    thread.start()
    thread.join()
    first = standby.prepare().pid
    outcome = run(["sh", "-c", "exit 4"], Policy(Mode.READ_ONLY, place.workspace), timeout=30)
    assert outcome.exit_code == 4
    assert standby.prepare().pid == first


QUICK = """
import os, select
from interlock.sandbox.prepared import supervisor
from interlock.sandbox.prepared.kernel import send

def child(parent, told):
    send(told, b"ready")
    send(told, b"pid %d" % os.posix_spawn("/bin/sh", ["sh", "-c", "exit 42"], {}))
    os._exit(0)

one = supervisor.Supervisor(os.getppid())
one.start(child)
while one.reap():  # as its rehearsal does, where the machine is slow: everything has ended by then
    select.select([one.wake], [], [])
alive, end = os.pipe()
status, said = os.pipe()
spec = {"runner": False, "witness": None, "scratch": None}
print(one.run(spec, said, alive), os.read(status, 4096).decode())
"""


def test_S5_a_command_that_ends_before_its_supervisor_is_ready_keeps_its_status():
    done = subprocess.run([sys.executable, "-c", QUICK], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("42 "), done.stdout + done.stderr
    assert '"exit-code": 42' in done.stdout
