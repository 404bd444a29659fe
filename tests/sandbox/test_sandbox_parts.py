"""The deciding parts on their own: status records, output, filter, grants, guesses, audit."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interlock.sandbox import Limits, Mode, Policy, launcher, probe, seccomp
from interlock.sandbox.audit import compare, snapshot
from interlock.sandbox.denial import evidence
from interlock.sandbox.gaps import GAPS
from interlock.sandbox.landlock import around, files_handled, grants, pins, present
from interlock.sandbox.output import Collector
from interlock.sandbox.policy import PROPERTIES, PROTECTED
from interlock.sandbox.protected import protection
from interlock.sandbox.rlimits import rlimits
from interlock.sandbox.status import read_status


def test_S1_every_gap_has_a_meaning():
    for name, broken_by in PROPERTIES.items():
        assert broken_by <= GAPS.keys(), name
    for report in probe():
        assert set(report.gaps) <= GAPS.keys()


def test_S5_records_come_in_pieces():
    whole = b'{ "child-pid": 7 }\n{ "exit-code": 3, "signal": 0 }\n'
    for cut in range(len(whole)):
        status = read_status(whole[:cut])
        assert status.exit_code in (None, 3)
    assert read_status(whole).child == 7
    assert read_status(whole).ran
    assert not read_status(b"not json").ran


@given(st.lists(st.binary(max_size=40)), st.integers(0, 64))
def test_S8_output_keeps_head_and_tail_and_counts_the_rest(pieces, limit):
    collector = Collector(limit)
    for piece in pieces:
        collector.add(piece)
    whole, kept = b"".join(pieces), collector.result()
    assert kept.total == len(whole)
    assert len(kept.head) + len(kept.tail) == min(limit, len(whole))
    assert kept.cut == len(whole) - len(kept.head) - len(kept.tail)
    assert whole.startswith(kept.head)
    assert whole.endswith(kept.tail)
    if not kept.cut:
        assert kept.head + kept.tail == whole


def decide(program: bytes, number: int, *arguments: int, arch: int = 0xC000003E) -> int:
    """Run a filter the way the kernel does."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments, *[0] * (6 - len(arguments)))
    accumulator, at = 0, 0
    while True:
        code, true, false, k = struct.unpack_from("=HBBI", program, at * 8)
        at += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, k)[0]
        elif code == 0x06:
            return k
        else:
            held = {
                0x15: accumulator == k,
                0x35: accumulator >= k,
                0x45: bool(accumulator & k),
            }[code]
            at += true if held else false


ALLOW, EPERM, ENOSYS, KILL = 0x7FFF0000, 0x50001, 0x50026, 0x80000000


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        ((0,), ALLOW),  # read
        ((165,), EPERM),  # mount
        ((425,), EPERM),  # io_uring_setup
        ((435,), ENOSYS),  # clone3: the library falls back to clone
        ((0x40000000,), ENOSYS),  # x32
        ((56, 0x11), ALLOW),  # fork
        ((56, 0x10000011), EPERM),  # clone(CLONE_NEWUSER)
        ((272, 0x80), EPERM),  # unshare(CLONE_NEWTIME)
        ((272, 0x400), ALLOW),  # unshare(CLONE_FILES)
        ((16, 1, 0x5412), EPERM),  # TIOCSTI
        ((16, 1, 0x100005412), EPERM),  # with rubbish in the high half, which the kernel drops
        ((16, 1, 0x5401), ALLOW),  # TCGETS
        ((41, 1), ALLOW),  # socket(AF_UNIX)
        ((41, 2), EPERM),  # socket(AF_INET)
        ((41, 17), EPERM),  # socket(AF_PACKET)
        ((41, 40), EPERM),  # socket(AF_VSOCK)
        ((53, 1), ALLOW),  # socketpair
        ((90,), ALLOW),  # chmod
    ],
)
def test_S9_the_filter_decides(call, verdict):
    program = seccomp.assemble(seccomp.Filter(internet=False), "x86_64")
    assert decide(program, *call) == verdict


def test_S9_the_filter_knows_its_options():
    strict = seccomp.assemble(
        seccomp.Filter(internet=False, unix=False, metadata=False, ipc=False), "x86_64"
    )
    for call in ((41, 1), (90,), (452,), (188,), (29,), (240,), (16, 1, 0x40086602)):
        assert decide(strict, *call) == EPERM, call
    open_ = seccomp.assemble(seccomp.Filter(internet=True), "x86_64")
    assert [decide(open_, 41, family) for family in (2, 10, 16, 17)] == [ALLOW] * 3 + [EPERM]
    assert decide(open_, 0, arch=0x40000003) == KILL


ASK = 0x7FC00000


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        ((302, 0, 0, 5), ALLOW),  # prlimit of oneself
        ((302, 7, 0, 0), ASK),  # reading another's
        ((302, 7, 0, 5), ASK),
        ((302, 7, 0, 5 << 32), ASK),
        ((141, 0, 0), ALLOW),  # setpriority
        ((141, 0, 4), ASK),
        ((141, 2, 0), EPERM),  # of everything that the user runs
        ((203, 0), ALLOW),  # sched_setaffinity
        ((203, 5), ASK),
        ((251, 1, 0), ALLOW),  # ioprio_set
        ((251, 3, 0), EPERM),
    ],
)
def test_S2_the_filter_leaves_a_process_to_itself(call, verdict):
    wanted = seccomp.Filter(internet=False, others=False, asks=True)
    assert decide(seccomp.assemble(wanted, "x86_64"), *call) == verdict


@pytest.mark.parametrize(("call", "verdict"), [((302, 7, 0, 5), EPERM), ((203, 5), ALLOW)])
def test_S2_without_a_witness_limits_are_refused_and_schedules_left_alone(call, verdict):
    wanted = seccomp.Filter(internet=False, others=False)
    assert decide(seccomp.assemble(wanted, "x86_64"), *call) == verdict


@pytest.mark.parametrize(
    ("call", "verdict"),
    [
        ((257, 0, 0, os.O_RDONLY), ALLOW),  # openat
        ((257, 0, 0, os.O_WRONLY), ASK),
        ((257, 0, 0, os.O_RDONLY | os.O_CREAT), ASK),
        ((2, 0, os.O_RDWR), ASK),
        ((87,), ASK),  # unlink
        ((42,), ASK),  # connect
        ((44, 0, 0, 0, 0, 0), ALLOW),  # sendto without an address
        ((44, 0, 0, 0, 0, 9), ASK),
        ((165,), ALLOW),  # mount: the runner's own filter refuses it
    ],
)
def test_S5_the_witness_is_asked_about_changes(call, verdict):
    assert decide(seccomp.questions(network=True, machine="x86_64"), *call) == verdict


def test_S9_the_filter_for_another_architecture():
    program = seccomp.assemble(seccomp.Filter(internet=False), "aarch64")
    arch = 0xC00000B7
    assert decide(program, 40, arch=arch) == EPERM  # mount
    assert decide(program, 198, 2, arch=arch) == EPERM  # socket(AF_INET)
    assert decide(program, 63, arch=arch) == ALLOW  # read
    assert decide(program, 0) == KILL


def test_S6_grants_go_around_hidden_paths(tmp_path):
    for name in ("a/hidden/x", "a/b", "c"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/link").symlink_to(tmp_path / "a/hidden")
    hidden = [tmp_path / "a/hidden"]
    assert around(tmp_path, hidden) == [tmp_path / "a/b", tmp_path / "c"]
    assert around(tmp_path, []) == [tmp_path]
    assert around(tmp_path / "a/hidden", hidden) == []


def test_S6_no_rule_covers_a_hidden_path(place):
    hidden = place.workspace / "log"
    hidden.mkdir()
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace, hidden=(hidden,))
    read_dir = 1 << 3
    for path, rights, _ in grants(policy, "/var/tmp", [hidden]):
        covers = Path(path) == hidden or Path(path) in hidden.parents
        assert not covers or rights == read_dir or path == "/var/tmp", path


def test_S6_present_and_pins(place):
    (place.workspace / "a/b/log").mkdir(parents=True)
    log, gone = place.workspace / "a/b/log", place.workspace / "gone"
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace, hidden=(log, log / "inner", gone))
    assert present(policy.hidden) == [log]
    assert pins(policy, [log]) == [place.workspace / "a", place.workspace / "a/b"]


def test_S2_every_right_of_the_interface_is_handled():
    assert files_handled(1) == (1 << 13) - 1
    assert [files_handled(n).bit_length() for n in (1, 2, 3, 4, 5, 7)] == [13, 14, 15, 15, 16, 16]


def test_S2_protection_of_git(place):
    ws = place.workspace
    for name in (".git/hooks", ".git/modules/deep/er/hooks", ".git/info", ".agent"):
        (ws / name).mkdir(parents=True)
    for name in (".git/config", ".git/modules/deep/er/config", ".git/modules/deep/er/HEAD"):
        (ws / name).write_text("")
    found = protection(ws, PROTECTED)
    names = {str(p.relative_to(ws)) for p in found.readonly}
    assert {".git/hooks", ".git/config", ".git/modules/deep/er/hooks", ".agent"} <= names
    assert ws / ".git" in found.pinned
    assert ".git/info/attributes" not in names, "nothing is made up that does not exist"
    assert found.loose == ()


def test_S2_protected_links_are_a_gap(place):
    (place.workspace / "real/hooks").mkdir(parents=True)
    (place.workspace / ".git").symlink_to("real")
    found = protection(place.workspace, PROTECTED)
    assert place.workspace / ".git" in found.loose
    assert place.workspace / "real/hooks" in found.readonly


def test_S2_a_gitfile_is_read_only(place):
    (place.workspace / ".git").write_text("gitdir: /elsewhere\n")
    assert protection(place.workspace, PROTECTED).readonly == (place.workspace / ".git",)


def test_S2_limits_become_rlimits():
    import resource

    found = {n: (soft, hard) for n, soft, hard in rlimits(Limits(), namespace=True)}
    assert found == {resource.RLIMIT_CORE: (0, 0)}
    limits = Limits(cpu_seconds=1.5, memory_bytes=10, processes=5, file_bytes=20, open_files=30)
    found = {n: (soft, hard) for n, soft, hard in rlimits(limits, namespace=True)}
    assert found[resource.RLIMIT_CPU] == (2, 3)
    assert found[resource.RLIMIT_DATA] == (10, 10)
    outside = {n: soft for n, soft, _ in rlimits(limits, namespace=False)}
    assert outside[resource.RLIMIT_NPROC] > found[resource.RLIMIT_NPROC][0] - 3


@pytest.mark.parametrize(
    ("backend", "complaint", "refused"),
    [
        ("bwrap", "touch: cannot touch '{out}/x': Read-only file system", True),
        ("bwrap", "sh: 1: cannot create {out}/x: Read-only file system", True),
        ("bwrap", "sh: 1: cannot create ../outside/x: Read-only file system", True),
        ("bwrap", "mv: cannot move '{out}/kept' to '{ws}/k': Invalid cross-device link", True),
        ("bwrap", "touch: cannot touch '{ws}/x': Read-only file system", False),
        ("bwrap", "touch: cannot touch '{out}/none/x': Read-only file system", False),
        ("bwrap", "cat: '{out}/x': Permission denied", False),
        ("landlock", "sh: 1: cannot create {out}/x: Permission denied", True),
        ("landlock", "PermissionError: [Errno 13] Permission denied: '{out}/x'", True),
        ("landlock", "rm: cannot remove '{ws}/x': Permission denied", False),
        ("landlock", "sandbox.txt: all fine", False),
        ("bwrap", "curl: (6) Could not resolve host: example.org", True),
        ("none", "touch: cannot touch '{out}/x': Read-only file system", False),
    ],
)
def test_S5_the_guess_asks_what_would_have_been(place, backend, complaint, refused):
    policy = Policy(Mode.WORKSPACE_WRITE, place.workspace)
    text = complaint.format(out=place.outside, ws=place.workspace)
    assert bool(evidence(text.encode(), policy, backend)) is refused


def test_S2_the_audit_reports_what_could_run_later(place):
    ws = place.workspace
    (ws / "nested/.git/hooks").mkdir(parents=True)
    (ws / ".vscode").mkdir()
    (ws / "old").symlink_to("/etc")
    (ws / ".envrc").write_text("one")
    before = snapshot(ws)
    assert compare(before, snapshot(ws)) == []
    (ws / "nested/.git/hooks/pre-commit").write_text("x")
    (ws / "nested/.git/hooks/pre-commit.sample").write_text("x")
    (ws / ".vscode/tasks.json").write_text("{}")
    (ws / ".envrc").write_text("two")
    (ws / "tool").write_text("")
    (ws / "tool").chmod(0o4755)
    (ws / "away").symlink_to(place.outside)
    (ws / "near").symlink_to("tool")
    os.link(place.outside / "kept", ws / "twin")
    (ws / "plain").write_text("x")
    found = {(f.kind, f.path) for f in compare(before, snapshot(ws))}
    assert found == {
        ("runs-later", "nested/.git/hooks/pre-commit"),
        ("runs-later", ".vscode/tasks.json"),
        ("runs-later", ".envrc"),
        ("setuid", "tool"),
        ("link-out", "away"),
        ("hard-link", "twin"),
    }


def test_S2_an_audit_that_gives_up_says_so(place):
    for n in range(5):
        (place.workspace / str(n)).write_text("")
    whole, part = snapshot(place.workspace), snapshot(place.workspace, limit=3)
    assert [f.kind for f in compare(whole, part)] == ["incomplete"]


def test_S2_the_launcher_needs_nothing_but_the_standard_library():
    errand = launcher.Errand(argv=["/bin/true"], env={}, cwd="/")
    argv, fds = launcher.start(errand, status=-1, alive=-1, supervise=False)
    try:
        done = subprocess.run(
            [argv[0], "-X", "importtime", *argv[1:]],
            pass_fds=fds,
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        for fd in fds:
            os.close(fd)
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "ctypes" in loaded
    assert not loaded & {"typing", "re", "json", "socket", "subprocess", "dataclasses"}


def test_S3_importing_the_package_stays_lean():
    code = (
        "import sys, interlock.sandbox; "
        "print(sorted({'rich', 'typer', 'pydantic', 'pykka', 'zmq'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
