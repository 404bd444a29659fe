"""S1, S3: which backend is used, what counts as one, and what happens where none holds."""

import os
import pickle
import shutil
import subprocess
import sys

import pytest
from interlock.sandbox import Mode, Policy, PolicyError, SandboxUnavailable, best, confine, run
from interlock.sandbox.probe import find, forget


@pytest.fixture
def path_with_bwrap(place, monkeypatch):
    """Put a bwrap of our own first in PATH."""

    def install(body: str) -> None:
        program = place.outside / "bwrap"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{place.outside}:{os.environ['PATH']}")

    forget()
    yield install
    forget()


PERMISSIVE = """while [ "$1" != -- ]; do [ "$1" = --json-status-fd ] && fd=/proc/self/fd/$2
[ "$1" = --chdir ] && cd "$2"; shift; done; shift
echo '{"child-pid": 1}' > $fd; "$@"; code=$?
echo "{\\"exit-code\\": $code}" > $fd; exit $code"""


@pytest.mark.parametrize("body", [PERMISSIVE, "exit 0", "exit 1", "sleep 600"])
def test_S3_a_program_that_does_not_confine_is_no_backend(place, path_with_bwrap, body):
    path_with_bwrap(body)
    report = find("bwrap").report
    assert not report.usable
    assert report.enforcement == "none"
    with pytest.raises(SandboxUnavailable) as caught:
        confine(["touch", "x"], Policy(Mode.WORKSPACE_WRITE, place.workspace), backends=["bwrap"])
    assert caught.value.tried == [("bwrap", report.reason)]
    assert list(place.workspace.iterdir()) == []


def test_S3_the_reason_says_what_did_not_hold(path_with_bwrap):
    path_with_bwrap(PERMISSIVE)
    assert "a write outside the workspace succeeded" in find("bwrap").report.reason


def test_S3_landlock_is_used_where_bubblewrap_does_not_hold(place, path_with_bwrap):
    path_with_bwrap("exit 1")
    if not find("landlock").report.usable:
        pytest.skip("no Landlock here")
    outcome = run(["true"], Policy(Mode.READ_ONLY, place.workspace), timeout=30)
    assert (outcome.status, outcome.backend) == ("exited", "landlock")


def test_S3_a_bwrap_in_the_workspace_is_passed_over(place, monkeypatch):
    from interlock.sandbox import bwrap

    program = place.workspace / "bwrap"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    (place.outside / "bwrap").symlink_to(program)
    monkeypatch.setenv("PATH", f"{place.workspace}:{place.outside}:.:{os.environ['PATH']}")
    found = bwrap.find(Policy(Mode.READ_ONLY, place.workspace))
    assert found is None or not found.startswith(str(place.workspace.parent))


def test_S3_nothing_runs_without_a_backend(place):
    with pytest.raises(SandboxUnavailable) as caught:
        run(["touch", "x"], Policy(Mode.READ_ONLY, place.workspace), timeout=30, backends=())
    assert caught.value.code == "SANDBOX_UNAVAILABLE"
    assert caught.value.mode == "read-only"
    assert list(place.workspace.iterdir()) == []


def test_S3_the_error_survives_a_process_boundary():
    error = SandboxUnavailable("read-only", [("bwrap", "absent")])
    again = pickle.loads(pickle.dumps(error))
    assert (again.mode, again.tried, str(again)) == (error.mode, error.tried, str(error))
    assert "absent" in str(error)


def test_S3_windows_refuses_with_the_reason(place):
    with pytest.raises(SandboxUnavailable, match="use WSL"):
        confine(["x"], Policy(Mode.READ_ONLY, place.workspace), backends=["windows"])


def test_S1_a_requirement_that_cannot_be_met_refuses(place):
    if not find("landlock").report.usable:
        pytest.skip("no Landlock here")
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace, require=frozenset({"processes"}))
    with pytest.raises(SandboxUnavailable, match="process-visibility"):
        confine(["true"], policy, backends=["landlock"])
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace, require=frozenset({"files"}))
    with pytest.raises(SandboxUnavailable, match="metadata"):
        confine(["true"], policy, backends=["landlock"])


def test_S1_a_refused_backend_gives_way_to_one_that_can(place):
    if not all(find(name).report.usable for name in ("landlock", "bwrap")):
        pytest.skip("needs both backends")
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace, require=frozenset({"processes"}))
    with confine(["true"], policy, backends=["landlock", "bwrap"]) as made:
        assert made.backend == "bwrap"


def test_S1_how_complete_it_is_is_said(place):
    for mode, require, expected in (
        (Mode.WORKSPACE_WRITE, frozenset(), "partial"),
        (Mode.READ_ONLY, frozenset(), "partial"),
        (Mode.READ_ONLY, frozenset({"files"}), "full"),
    ):
        if not find("landlock").report.usable:
            pytest.skip("no Landlock here")
        policy = Policy(mode, place.workspace, require=require)
        with confine(["true"], policy, backends=["landlock"]) as made:
            assert made.enforcement == expected, mode
            assert "process-visibility" in made.gaps


@pytest.mark.parametrize("argv", [[], "ls -l", [""], ["a\0b"], [1]])
def test_S1_a_command_is_a_list_of_words(place, argv):
    with pytest.raises(PolicyError):
        confine(argv, Policy(Mode.READ_ONLY, place.workspace))


def test_S1_the_argv_works_with_popen(backend, place):
    """`confine` alone is enough for a caller who has a way of running things."""
    policy = Policy(Mode.READ_ONLY, place.workspace)
    with confine(["/bin/sh", "-c", "echo ran; touch x"], policy, backends=[backend]) as made:
        done = subprocess.run(
            made.argv,
            env=made.env,
            cwd=made.cwd,
            pass_fds=made.pass_fds,
            capture_output=True,
            start_new_session=True,
            timeout=30,
            check=False,
        )
    assert done.stdout == b"ran\n"
    assert done.returncode == 1
    assert list(place.workspace.iterdir()) == []


def test_S3_the_complete_profile_is_used_where_it_can_be():
    program = shutil.which("bwrap")
    needed = ["--unshare-user", "--unshare-net", "--unshare-pid", "--disable-userns"]
    command = [str(program), *needed, "--ro-bind", "/", "/", "--proc", "/proc", "true"]
    if program is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("bubblewrap cannot make all namespaces here")
    assert "complete profile" in find("bwrap").report.reason


def test_S3_best_is_the_first_usable():
    report = best()
    if report is None:
        pytest.skip("nothing is usable here")
    assert report.usable
    assert report.backend == next(n for n in ("bwrap", "landlock") if find(n).report.usable)


FOREIGN = """
import sys, builtins
platform = sys.argv[1]
for name in ("fcntl", "resource", "termios", "pwd"):
    if platform == "win32":
        sys.modules[name] = None
import interlock.sandbox
real = sys.platform
sys.platform = platform
print([(r.backend, r.usable) for r in interlock.sandbox.probe()])
"""


@pytest.mark.parametrize("platform", ["win32", "darwin", "aix"])
def test_S3_elsewhere_it_imports_and_refuses(platform):
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN, platform], capture_output=True, text=True, check=True
    )
    expected = {"win32": "[('windows', False)]", "darwin": "[('seatbelt', False)]", "aix": "[]"}
    assert done.stdout.strip() == expected[platform]


def test_S5_a_runner_cannot_make_us_touch_a_process_that_is_not_its_own(place):
    """Its word for the sandbox's first process is checked before limits or signals go there."""
    import resource

    from interlock.sandbox import Limits, bwrap
    from interlock.sandbox.watch import watch

    program = place.outside / "bwrap"
    with subprocess.Popen(["sleep", "600"]) as stranger:
        program.write_text(
            "#!/bin/sh\n"
            'while [ "$1" != -- ]; do [ "$1" = --json-status-fd ] && fd=$2; shift; done\n'
            f"echo '{{\"child-pid\": {stranger.pid}}}' > /proc/self/fd/$fd; sleep 0.2\n"
        )
        program.chmod(0o755)
        before = resource.prlimit(stranger.pid, resource.RLIMIT_NOFILE)
        policy = Policy(Mode.READ_ONLY, place.workspace, limits=Limits(open_files=33))
        ended = watch(bwrap.build(policy, ["true"], bwrap.Rung(), str(program)), timeout=30)
        assert resource.prlimit(stranger.pid, resource.RLIMIT_NOFILE) == before
        assert stranger.poll() is None
        stranger.kill()
    assert not ended.status.ran
