"""S5: a refusal, a failing command and a broken sandbox, told apart by what the sandbox did."""

import os
import shutil
from dataclasses import dataclass

import pytest
from interlock.sandbox import Mode, Policy, bwrap, landlock, run
from interlock.sandbox.run import _outcome
from interlock.sandbox.watch import watch

WORKSPACE, READ_ONLY = Mode.WORKSPACE_WRITE, Mode.READ_ONLY
QUIET = """
import socket, sys
try:
    {attack}
except OSError:
    sys.exit(5)
"""


@dataclass(frozen=True)
class Line:
    """One command. says: what the refusal must name; python: the script is Python."""

    script: str
    status: str
    code: int | None = None
    says: str = ""
    mode: Mode = WORKSPACE
    python: bool = False


def quiet(attack: str, says: str, mode: Mode = WORKSPACE) -> Line:
    """A command that is refused something and says nothing at all."""
    return Line(QUIET.format(attack=attack), "denied", 5, says, mode, python=True)


REFUSED = [
    Line("echo x > {out}/new", "denied", says="{out}/new"),
    Line("echo x >> {out}/kept", "denied", says="{out}/kept"),
    Line("mkdir {out}/made", "denied", says="{out}/made"),
    Line("rm {out}/kept", "denied", says="{out}/kept"),
    Line("mv {out}/kept {out}/moved", "denied", says="{out}/kept"),
    Line("ln -s x {out}/made", "denied", says="{out}/made"),
    Line("cp file {out}/copied", "denied", says="{out}/copied"),
    Line("echo x > link", "denied", says="{out}/linked"),
    Line("cd {out} && echo x > relative", "denied", says="{out}/relative"),
    Line("chmod 600 {out}/kept", "denied", says="{out}/kept", mode=READ_ONLY),
    Line("touch here", "denied", says="{ws}/here", mode=READ_ONLY),
    quiet("open('{out}/new', 'w')", "{out}/new"),
    quiet("import os; os.truncate('{out}/kept', 0)", "{out}/kept"),
    quiet("socket.socket().connect(('10.9.8.7', 80))", ""),
]
FAILED = [
    Line("exit 7", "exited", 7),
    Line("cat missing", "exited", 1),
    Line("mkdir {out}", "exited", 1),  # it exists, with a sandbox or without
    Line("rm {out}/missing", "exited", 1),
    Line("echo x > {out}/missing/new", "exited"),
    Line("grep -q nothing file", "exited", 1),
    Line("kill -9 $$", "signalled", 137),
    Line("mkdir {out}/__pycache__ 2>/dev/null; exit 1", "exited", 1),  # programs go on without
    # Words of a sandbox, and a forged record: nothing was refused.
    Line("echo 'sh: 1: cannot create {out}/new: Read-only file system' >&2; exit 1", "exited", 1),
    Line("echo 'sh: 1: cannot create {out}/new: Permission denied' >&2; exit 1", "exited", 1),
    Line('echo "bwrap: Can\'t mount proc on /newroot/proc" >&2; exit 1', "exited", 1),
    Line("echo 'landlock_restrict_self: Operation not permitted' >&2; exit 125", "exited", 125),
    Line('echo \'{{"refused": {{"call": "open"}}}}\' >&2; exit 1', "exited", 1),
    # Refused, and no reason to fail: the command's own status stands.
    Line("echo x > {out}/new; exit 0", "exited", 0),
]


@pytest.mark.parametrize("line", [*REFUSED, *FAILED], ids=lambda line: line.script[:40])
def test_S5_each_command_is_classified_by_what_happened(confined, place, python, line):
    (place.workspace / "file").write_text("content\n")
    (place.workspace / "link").symlink_to(place.outside / "linked")
    names = {"out": place.outside, "ws": place.workspace}
    script = line.script.format(**names)
    outcome = confined([*python, script] if line.python else script, line.mode)
    assert outcome.status == line.status, outcome
    if line.code is not None:
        assert outcome.exit_code == line.code
    assert bool(outcome.evidence) is (line.status == "denied")
    assert line.says.format(**names) in (outcome.evidence or "")
    assert (place.outside / "kept").read_text() == "kept"


def test_S5_there_are_twenty_of_them():
    assert len(REFUSED) + len(FAILED) >= 20


@pytest.mark.parametrize("stdio", ["capture", "inherit"])
def test_S5_a_refusal_needs_no_output_of_ours_to_be_known(confined, place, stdio):
    outcome = confined(f"echo x > {place.outside}/new", stdio=stdio)
    assert outcome.status == "denied"


def test_S5_a_hint_is_no_verdict(confined, place):
    words = {"bwrap": "Read-only file system", "landlock": "Permission denied"}
    complaint = f"sh: 1: cannot create {place.outside}/new: "
    outcome = confined(
        f"echo '{complaint}{words['bwrap']}\n{complaint}{words['landlock']}' >&2; exit 1"
    )
    assert outcome.status == "exited"
    assert outcome.evidence is None
    assert str(place.outside / "new") in outcome.hint


def test_S5_what_was_refused_is_told_of_a_command_that_succeeded(confined, place):
    outcome = confined(f"echo x > {place.outside}/new; true")
    assert outcome.status == "exited"
    assert any(str(place.outside / "new") in line for line in outcome.refused)


def test_S5_a_flood_of_refusals_neither_blocks_nor_grows(confined, place, python):
    attack = f"""
for n in range(3000):
    try: open("{place.outside}/%d" % n, "w")
    except OSError: pass
raise SystemExit(3)"""
    outcome = confined([*python, attack], timeout=60)
    assert (outcome.status, outcome.exit_code) == ("denied", 3)
    assert len(outcome.refused) <= 32


def test_S5_arguments_that_change_while_they_are_looked_at_open_nothing(confined, place, python):
    """One thread opens, another swaps the path between a place that is open and one that is not."""
    attack = f"""
import ctypes, threading
libc = ctypes.CDLL(None)
inside, outside = b"{place.workspace}/a", b"{place.outside}/a"
path = ctypes.create_string_buffer(inside + b" " * 64)
stop = False
def swap():
    while not stop:
        path.value = inside
        path.value = outside
thread = threading.Thread(target=swap)
thread.start()
for _ in range(2000):
    libc.open(path, 0o101, 0o600)
    libc.creat(path, 0o600)
stop = True
thread.join()"""
    confined([*python, attack], timeout=60)
    assert not (place.outside / "a").exists()


def test_S5_the_witness_does_not_follow_what_it_cannot_see(confined, place, python):
    """Arguments that point nowhere are the kernel's to refuse."""
    attack = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for address in (0, 8, 2**47 - 4096, 2**64 - 1):
    assert libc.open(ctypes.c_void_p(address), 0o101, 0o600) == -1
    assert ctypes.get_errno() == 14, ctypes.get_errno()
    libc.connect(3, ctypes.c_void_p(address), 16)
    libc.rename(ctypes.c_void_p(address), ctypes.c_void_p(address))
open("here", "w").write("x")"""
    outcome = confined([*python, attack])
    assert outcome.exit_code == 0, outcome.stderr.text()
    assert (place.workspace / "here").read_text() == "x"


def broken(name: str, place, argv: list[str]):
    """A sandbox whose workspace goes away before it is up."""
    policy = Policy(WORKSPACE, place.workspace)
    if name == "bwrap":
        made = bwrap.build(policy, argv, bwrap.Rung(), str(bwrap.find(policy)))
    else:
        made = landlock.build(policy, argv, landlock.Features(landlock.abi(), masks=True))
    shutil.rmtree(place.workspace)
    return _outcome(watch(made, timeout=30), made)


def test_S5_a_sandbox_that_cannot_be_put_up_is_told_apart(backend, place):
    outcome = broken(backend, place, ["/bin/sh", "-c", f"echo ran > {place.outside}/kept"])
    assert (outcome.status, outcome.exit_code) == ("sandbox-failed", None)
    assert str(place.workspace) in outcome.message
    assert (place.outside / "kept").read_text() == "kept"


def test_S5_without_a_witness_there_are_hints_only(backend, place, monkeypatch):
    """As in a sandbox inside another, which may have none: nothing is known, so nothing is said."""
    module = bwrap if backend == "bwrap" else landlock
    monkeypatch.setattr(module, "_witness", lambda *_: None)
    policy = Policy(WORKSPACE, place.workspace)
    outcome = run(
        ["/bin/sh", "-c", f"echo x > {place.outside}/new"], policy, timeout=30, backends=(backend,)
    )
    assert outcome.status == "exited"
    assert str(place.outside / "new") in outcome.hint
    assert not (place.outside / "new").exists()


def test_S5_what_the_user_could_not_do_anyway_is_no_refusal(confined):
    if os.geteuid() == 0:
        pytest.skip("nothing is closed to root by its permissions")
    outcome = confined("echo x > /etc/interlock-x")
    assert outcome.status == "exited"
    assert outcome.refused == ()
