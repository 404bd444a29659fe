"""S2, S6, S9, X5: what a confined command can and cannot touch, under each backend."""

import os
import socket
import sys

import pytest
from interlock.sandbox import Limits, Mode, Policy, run
from interlock.sandbox import landlock as landlock_backend
from interlock.sandbox import watch as watching
from interlock.sandbox.prepared.tree import tasks_of


def test_S2_read_only_writes_nothing(confined, place):
    outcome = confined("touch x; mkdir d; echo y > /var/tmp/interlock-x", Mode.READ_ONLY)
    assert outcome.exit_code != 0
    assert list(place.workspace.iterdir()) == []
    assert not os.path.exists("/var/tmp/interlock-x")


def test_S2_read_only_refuses_metadata_too(confined, place):
    (place.outside / "kept").chmod(0o600)
    before = (place.outside / "kept").stat()
    script = f"chmod 777 {place.outside}/kept; touch -d 2001-01-01 {place.outside}/kept"
    confined(script, Mode.READ_ONLY)
    after = (place.outside / "kept").stat()
    assert (after.st_mode, after.st_mtime) == (before.st_mode, before.st_mtime)


def test_S2_workspace_write_is_inside_only(confined, place):
    script = f"echo in > in && mkdir d && mv in d/in; echo out > {place.outside}/out"
    outcome = confined(script)
    assert (place.workspace / "d/in").read_text() == "in\n"
    assert not (place.outside / "out").exists()
    assert outcome.exit_code != 0


def test_S2_links_and_dotdot_do_not_lead_out(confined, place):
    (place.workspace / "link").symlink_to(place.outside)
    confined("echo x > link/kept; echo x > ../outside/kept; ln ../outside/kept h && echo x > h")
    assert (place.outside / "kept").read_text() == "kept"


def test_S2_extra_writable_roots_are_writable(confined, place):
    outcome = confined(f"echo x > {place.outside}/new", writable=(place.outside,))
    assert outcome.exit_code == 0, outcome.stderr.text()
    assert (place.outside / "new").exists()


def test_S2_temporary_files_work_and_vanish(confined, place):
    outcome = confined('f=$(mktemp) && echo x > "$f" && echo "$f"', Mode.READ_ONLY)
    assert outcome.exit_code == 0, outcome.stderr.text()
    assert not os.path.exists(outcome.stdout.text().strip())


def test_S2_a_workspace_below_tmp_is_seen(backend, tmp_path):
    (tmp_path / "file").write_text("content")
    for mode in (Mode.READ_ONLY, Mode.WORKSPACE_WRITE):
        outcome = run(["cat", "file"], Policy(mode, tmp_path), timeout=30, backends=(backend,))
        assert outcome.stdout.head == b"content", outcome.message


@pytest.fixture
def log_root(place):
    root = place.workspace / "deep/log"
    (root / "sessions").mkdir(parents=True)
    (root / "sessions/one").write_text("the log")
    return root


ATTACKS = (
    "cat deep/log/sessions/one",
    "ls deep/log/sessions | grep one",
    "echo forged >> deep/log/sessions/one",
    "echo new > deep/log/sessions/two",
    "rm -rf deep/log/sessions",
    "mv deep/log deep/gone",
    "mv deep gone",
    "ln deep/log/sessions/one here",
)


@pytest.mark.parametrize("attack", ATTACKS)
def test_S6_a_log_root_in_the_workspace_is_out_of_reach(confined, log_root, attack):
    outcome = confined(attack, hidden=(log_root,))
    if attack.startswith("ls") and "hidden-names" in outcome.gaps:
        pytest.skip("no mount namespace here: the gap hidden-names says that names show")
    assert outcome.exit_code != 0
    assert "the log" not in outcome.stdout.text()
    assert (log_root / "sessions/one").read_text() == "the log"
    assert os.listdir(log_root / "sessions") == ["one"]


def test_S6_work_goes_on_around_a_hidden_path(confined, log_root, place):
    outcome = confined("echo a > new && echo b > deep/new && ls . deep", hidden=(log_root,))
    if "hidden-parents" in outcome.gaps:
        pytest.skip("no mount namespace here: the gap hidden-parents says what cannot be created")
    assert outcome.exit_code == 0, outcome.stderr.text()
    assert (place.workspace / "deep/new").read_text() == "b\n"


def test_S6_hidden_files_are_out_of_reach(confined, place):
    key = place.workspace / "key"
    key.write_text("the key")
    outcome = confined("cat key; echo x > key; mv key away; rm key", hidden=(key,))
    assert "the key" not in outcome.stdout.text()
    assert key.read_text() == "the key"


def test_S6_hidden_paths_outside_cannot_be_read(confined, place):
    outcome = confined(f"cat {place.outside}/kept", Mode.READ_ONLY, hidden=(place.outside,))
    assert outcome.exit_code != 0
    assert not outcome.stdout.total


def test_S6_nothing_is_created_for_a_hidden_path_that_is_missing(confined, place):
    assert confined("true", hidden=(place.workspace / "later",)).exit_code == 0
    assert list(place.workspace.iterdir()) == []


@pytest.mark.parametrize("attack", ATTACKS)
def test_S6_without_a_mount_namespace_hidden_paths_are_granted_around(place, log_root, attack):
    if landlock_backend.abi() < landlock_backend.LEAST_ABI:
        pytest.skip("no Landlock here")
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace, hidden=(log_root,))
    features = landlock_backend.Features(landlock_backend.abi(), masks=False)
    names = attack.startswith("ls")
    confined = landlock_backend.build(policy, ["/bin/sh", "-c", attack], features)
    assert {"hidden-names", "hidden-parents"} <= confined.gaps
    ended = watching.watch(confined, timeout=30)
    assert ended.status.exit_code != 0 or names
    assert b"the log" not in ended.stdout.head
    assert (log_root / "sessions/one").read_text() == "the log"
    assert os.listdir(log_root / "sessions") == ["one"]


CONNECT = """
import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    try:
        s = socket.socket(socket.AF_INET, kind)
        s.settimeout(5)
        s.connect(("127.0.0.1", int(sys.argv[1])))
        s.send(b"x")
        print("sent", kind.name)
    except OSError as e:
        print(e)
"""


def test_S9_network_is_off_unless_allowed(confined, python):
    with socket.create_server(("127.0.0.1", 0)) as server:
        argv = [*python, CONNECT, str(server.getsockname()[1])]
        off = confined(argv, Mode.READ_ONLY)
        on = confined(argv, Mode.READ_ONLY, network=True)
        server.settimeout(5)
        server.accept()[0].close()
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    # A datagram on a network of its own has left for nowhere; what counts is what arrives.
    assert "sent SOCK_STREAM" not in off.stdout.text()
    assert "sent SOCK_STREAM" in on.stdout.text(), on.stdout.text()


ABSTRACT = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
try:
    s.connect("\\0" + sys.argv[1])
    print("reached")
except OSError as e:
    print(e)
"""


@pytest.mark.parametrize("network", [False, True])
def test_S9_abstract_sockets_of_the_host_are_closed(confined, python, network):
    if network and not landlock_backend.scope_layer():
        pytest.skip("this kernel has no Landlock scopes; the gap abstract-sockets says so")
    name = f"interlock-test-{os.getpid()}-{network}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{name}")
        listener.listen()
        outcome = confined([*python, ABSTRACT, name], Mode.READ_ONLY, network=network)
    assert outcome.exit_code == 0
    assert "reached" not in outcome.stdout.text()


def test_S1_requiring_ipc_refuses_unix_sockets(confined, python, place, backend):
    path = place.outside / "s"
    script = ABSTRACT.replace('"\\\\0" + ', "").replace('"\\0" + ', "")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        plain = confined([*python, script, str(path)])
        strict = confined([*python, script, str(path)], require=frozenset({"ipc"}))
    assert "unix-sockets" in plain.gaps
    assert "unix-sockets" not in strict.gaps
    assert "reached" not in strict.stdout.text()


def test_X5_secrets_of_the_environment_stay_outside(confined, monkeypatch):
    monkeypatch.setenv("API_TOKEN", "hunter2")
    outcome = confined("env; cat /proc/1/environ /proc/self/environ", env={"MINE": "yes"})
    assert "hunter2" not in outcome.stdout.text()
    assert "MINE=yes" in outcome.stdout.text()


def test_X5_the_callers_variables_do_not_reach_the_runner(confined, place):
    """A preloaded library would run before the sandbox is up if the runner saw the variable."""
    trace = place.outside / "trace"
    outcome = confined("echo $LD_DEBUG", env={"LD_DEBUG": "libs", "LD_DEBUG_OUTPUT": str(trace)})
    assert outcome.exit_code == 0, outcome.message
    assert sorted(os.listdir(place.outside)) == ["kept"]


def test_X5_variables_are_not_on_anyones_command_line(backend, place):
    from interlock.sandbox import confine

    policy = Policy(Mode.READ_ONLY, place.workspace, env={"TOKEN": "hunter2"})
    with confine(["true"], policy, backends=(backend,)) as made:
        assert "hunter2" not in " ".join(made.argv)
        assert "hunter2" not in " ".join(made.env.values())


def test_S2_no_descriptor_is_inherited(confined, place):
    fd = os.open(place.outside / "kept", os.O_RDWR)
    try:
        os.set_inheritable(fd, True)
        outcome = confined("ls /proc/self/fd")
    finally:
        os.close(fd)
    # ls itself opens one to read the directory.
    assert outcome.stdout.text().split() == ["0", "1", "2", "3"]


def test_S2_no_capability_and_no_new_privileges(confined):
    outcome = confined(
        "grep -E '^(Cap(Eff|Prm|Bnd|Inh|Amb)|NoNewPrivs|Seccomp):' /proc/self/status"
    )
    values = dict(line.split(":\t") for line in outcome.stdout.text().splitlines())
    assert values.pop("NoNewPrivs") == "1"
    assert values.pop("Seccomp") == "2"
    capabilities = {int(values[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")}
    assert capabilities == {0}


def test_S2_git_hooks_and_settings_are_read_only_under_bubblewrap(confined, place, backend):
    if backend != "bwrap":
        pytest.skip("Landlock cannot protect a child of a writable directory: gap protected-paths")
    (place.workspace / ".git/hooks").mkdir(parents=True)
    (place.workspace / ".git/config").write_text("[core]\n")
    attack = "echo x > .git/hooks/pre-commit; echo x > .git/config; mv .git .old; rm -rf .git"
    confined(attack)
    assert list((place.workspace / ".git/hooks").iterdir()) == []
    assert (place.workspace / ".git/config").read_text() == "[core]\n"
    assert confined("echo x > .git/index").exit_code == 0


def test_S2_limits_hold(confined, python):
    big = confined("head -c 3000000 /dev/zero > big", limits=Limits(file_bytes=1_000_000))
    assert big.exit_code != 0
    few = confined("ulimit -n; ulimit -c", limits=Limits(open_files=20))
    assert few.stdout.text().split() == ["20", "0"], few
    memory = confined([*python, "bytearray(400 << 20)"], limits=Limits(memory_bytes=200 << 20))
    assert "MemoryError" in memory.stderr.text()
    spin = confined([*python, "while True: pass"], limits=Limits(cpu_seconds=1))
    assert spin.status == "signalled"


FORK = """
import os, time
n = 0
try:
    for _ in range(60):
        if os.fork() == 0:
            time.sleep(60)
        n += 1
except OSError:
    pass
print(n)
"""


def test_S2_a_process_limit_holds_or_is_named_a_gap(confined, python):
    before = tasks_of(os.getuid())
    outcome = confined([*python, FORK], limits=Limits(processes=30))
    # Without a control group the user's others count as they were at the start.
    ended = max(0, before - tasks_of(os.getuid()))
    if "process-limit" in outcome.gaps:
        assert os.geteuid() == 0, "the kernel counts an ordinary user's"
    else:
        assert 20 < int(outcome.stdout.text()) <= 30 + ended


def test_S2_core_dumps_are_off_without_any_limit(confined):
    assert confined("ulimit -c").stdout.text().strip() == "0"


@pytest.mark.skipif(sys.platform != "linux", reason="the launcher's seal is Linux's")
def test_S2_the_launcher_does_not_come_from_the_workspace(place, backend):
    """Its script travels as sealed bytes: a workspace that holds the package cannot replace it."""
    from interlock.sandbox import confine

    policy = Policy(Mode.READ_ONLY, place.workspace, network=True)
    with confine(["true"], policy, backends=(backend,)) as made:
        assert not any("landlock_exec" in word for word in made.argv)
