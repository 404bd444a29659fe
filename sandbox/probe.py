"""Which backends hold here, found by trying the real profile, not by finding a program (S3)."""

import contextlib
import math
import os
import platform
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from . import bwrap, landlock, launcher, seatbelt, windows
from .confined import Confined, Enforcement
from .policy import Mode, Policy
from .watch import Ended, watch

#: Seconds that one try may take.
TRY_LIMIT = 5.0
#: Seconds until a backend that did not answer is tried again: the machine may have been busy.
RETRY_AFTER = 60.0


@dataclass(frozen=True)
class BackendReport:
    """What one backend does on this machine.

    usable: whether it held in a try. enforcement, gaps: for a ``workspace-write`` command without
    further wishes. reason: why it is not usable, or what it runs with.
    """

    backend: str
    usable: bool
    enforcement: Enforcement
    gaps: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Finding:
    """A try's full result: the report, and how to build on what was found."""

    report: BackendReport
    rung: bwrap.Rung | None = None
    program: str | None = None
    features: landlock.Features | None = None


#: Findings, each with the time until which it is believed.
_cache: dict[tuple[object, ...], tuple[Finding, float]] = {}
_lock = threading.Lock()


def probe() -> list[BackendReport]:
    """Every backend of this platform, in the order in which they are preferred.

    Takes up to a second the first time and is remembered for this process, user, kernel and
    program.
    """
    return [find(name).report for name in platform_backends()]


def best() -> BackendReport | None:
    """The first usable backend, or None: then nothing can be confined here."""
    return next((report for report in probe() if report.usable), None)


#: Names backends to try instead of the platform's, best first, separated by commas. Each still
#: counts only after a try (S3), so this can narrow the choice and not make it unsafe.
CHOICE = "INTERLOCK_SANDBOX_BACKENDS"


def platform_backends() -> tuple[str, ...]:
    """Names of the backends to try here, best first: the platform's, or those of `CHOICE`."""
    chosen = tuple(n for n in os.environ.get(CHOICE, "").replace(" ", "").split(",") if n)
    return chosen or _platform_backends()


def _platform_backends() -> tuple[str, ...]:
    if sys.platform == "linux":
        return ("bwrap", "landlock")
    if sys.platform == "darwin":
        return ("seatbelt",)
    return ("windows",) if sys.platform == "win32" else ()


def find(name: str) -> Finding:
    """Try one backend, or remember the try."""
    with _lock:
        key = _key(name)
        finding, until = _cache.get(key, (None, 0.0))
        if finding is None or time.monotonic() >= until:
            finding, until = _tried(name)
            _cache[key] = finding, until
        return finding


def _tried(name: str) -> tuple[Finding, float]:
    if name not in _TRIES:
        return _unusable(name, "no such backend"), math.inf
    try:
        return _TRIES[name](), math.inf
    except TimeoutError as error:
        return _unusable(name, str(error)), time.monotonic() + RETRY_AFTER
    except OSError as error:
        return _unusable(name, f"it could not be tried: {error}"), 0.0


def forget() -> None:
    """Try again next time: after a sandbox failed that had held before."""
    with _lock:
        _cache.clear()


def _key(name: str) -> tuple[object, ...]:
    program = shutil.which("bwrap") if name == "bwrap" else None
    changed = None
    if program is not None:
        with contextlib.suppress(OSError):
            changed = os.stat(program).st_mtime_ns
    user = os.geteuid() if hasattr(os, "geteuid") else -1
    return (name, os.getpid(), user, program, changed, platform.release())


def _unusable(name: str, reason: str) -> Finding:
    return Finding(BackendReport(name, False, "none", (), reason))


@dataclass(frozen=True)
class _Scene:
    """A workspace, and a file outside of it that must come to no harm."""

    policy: Policy
    outside: Path

    @property
    def intact(self) -> bool:
        """Whether nothing outside changed."""
        return sorted(os.listdir(self.outside)) == ["kept"] and (
            (self.outside / "kept").read_text() == "kept"
        )

    @property
    def written(self) -> bool:
        """Whether a write inside arrived on the host."""
        return (self.policy.workspace / "in").exists()


@contextlib.contextmanager
def _scene() -> Iterator[_Scene]:
    # Outside /tmp where possible: bubblewrap replaces /tmp, which would prove less.
    place = next((p for p in ("/var/tmp", "/dev/shm") if os.access(p, os.W_OK)), None)  # noqa: S108
    base = Path(tempfile.mkdtemp(prefix="interlock-probe-", dir=place))
    try:
        for name in ("workspace", "outside", "workspace/hidden"):
            (base / name).mkdir()
        (base / "outside/kept").write_text("kept")
        (base / "workspace/hidden/secret").write_text("secret")
        policy = Policy(
            Mode.WORKSPACE_WRITE,
            base / "workspace",
            hidden=(base / "workspace/hidden",),
        )
        yield _Scene(policy, base / "outside")
    finally:
        shutil.rmtree(base, ignore_errors=True)


_BWRAP_TRY = """
echo in > in
(echo out > "$1/out") 2>/dev/null
(cat hidden/secret) 2>/dev/null
readlink /proc/self/ns/pid
grep -E '^(CapEff|NoNewPrivs):' /proc/self/status
tail -n +3 /proc/net/dev
"""


def _try_bwrap() -> Finding:
    reasons: list[str] = []
    with _scene() as scene:
        program = bwrap.find(scene.policy)
        if program is None:
            return _unusable("bwrap", "bwrap was not found in PATH; install bubblewrap")
        for rung in bwrap.LADDER:
            argv = ["/bin/sh", "-c", _BWRAP_TRY, "sh", str(scene.outside)]
            confined = bwrap.build(scene.policy, argv, rung, program)
            ended = _try(confined)
            problem = _judge_bwrap(ended, scene, rung)
            if problem is None:
                report = BackendReport(
                    "bwrap",
                    True,
                    confined.enforcement,
                    tuple(sorted(confined.gaps)),
                    f"{program}, {rung.name}",
                )
                return Finding(report, rung=rung, program=program)
            reasons.append(f"{rung.name}: {problem}")
    return _unusable("bwrap", "; ".join(dict.fromkeys(reasons)) + _hint(reasons))


def _try(confined: Confined) -> Ended:
    ended = watch(confined, timeout=TRY_LIMIT, grace=0)
    if ended.end == "timeout":
        raise TimeoutError(f"{confined.backend} did not answer within {TRY_LIMIT:g} s")
    return ended


def _judge_bwrap(ended: Ended, scene: _Scene, rung: bwrap.Rung) -> str | None:
    """Why the profile did not hold, or None. Exit 0 alone proves nothing."""
    said = ended.stdout.text()
    lines = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
    namespace = said.split("\n", 1)[0]
    checks = (
        (ended.status.ran and ended.status.exit_code == 0, _complaint(ended)),
        (scene.written, "a write inside the workspace did not arrive"),
        (scene.intact, "a write outside the workspace succeeded"),
        ("secret" not in said, "a hidden file could be read"),
        (namespace.startswith("pid:"), "no /proc inside"),
        (namespace != os.readlink("/proc/self/ns/pid"), "processes are not separate"),
        (lines.get("CapEff", "1").strip(" \t0") == "", "capabilities were kept"),
        (lines.get("NoNewPrivs", "").strip() == "1", "privileges can be gained"),
    )
    for held, problem in checks:
        if not held:
            return problem
    interfaces = {name.strip() for name in lines} - {"CapEff", "NoNewPrivs", "pid"}
    if rung.network_namespace and interfaces != {"lo"}:
        return "the network is not separate"
    return None


def _complaint(ended: Ended) -> str:
    said = ended.stderr.text().strip().splitlines()
    reason = ended.error or ended.status.failed or (said[-1] if said else "it failed silently")
    return reason[:300]


def _hint(reasons: list[str]) -> str:
    text = " ".join(reasons)
    if "uid map" in text or "Creating new namespace" in text:
        return (
            " (user namespaces are refused; on Ubuntu install the AppArmor profile "
            "bwrap-userns-restrict instead of changing the sysctl)"
        )
    return ""


_LANDLOCK_TRY = """
import os, socket, sys
def refused(name, action):
    try:
        action()
    except OSError:
        return
    print("passed", name)
out, host = sys.argv[1], int(sys.argv[2])
open("in", "w").close()
refused("a write outside the workspace", lambda: open(out + "/out", "w"))
refused("truncation of a file outside", lambda: os.truncate(out + "/kept", 0))
refused("reading a hidden file", lambda: open("hidden/secret").read())
refused("writing a hidden directory", lambda: open("hidden/new", "w"))
refused("an internet socket", lambda: socket.socket().close())
SCOPES
status = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)
if int(status["CapEff"], 16): print("passed keeping capabilities")
if status["NoNewPrivs"].strip() != "1": print("passed gaining privileges")
print("done")
"""
_SCOPES_TRY = """
refused("a signal to the host", lambda: os.kill(host, 0))
refused("an abstract socket of the host",
        lambda: socket.socket(socket.AF_UNIX).connect("\\0interlock-probe-%d" % host))
"""


def _try_landlock() -> Finding:
    level = landlock.abi()
    if level == 0:
        return _unusable("landlock", "the kernel does not offer Landlock, or it is switched off")
    if level < landlock.LEAST_ABI:
        return _unusable(
            "landlock", f"interface {level} cannot hold truncation; {landlock.LEAST_ABI} is needed"
        )
    problem = None
    for masks in (True, False):
        features = landlock.Features(level, masks)
        with _scene() as scene, _abstract_listener():
            if not masks:
                # Granting around a hidden directory leaves its parent closed: look further down.
                (scene.policy.workspace / "in").touch()
            confined = landlock.build(scene.policy, _landlock_argv(level, scene), features)
            problem = _judge_landlock(_try(confined), scene)
            if problem is None:
                masked = "hidden paths masked" if masks else "hidden paths granted around"
                report = BackendReport(
                    "landlock",
                    True,
                    confined.enforcement,
                    tuple(sorted(landlock.gaps(scene.policy, features))),
                    f"interface {level}, {masked}",
                )
                return Finding(report, features=features)
    return _unusable("landlock", f"interface {level}: {problem}")


def _landlock_argv(level: int, scene: _Scene) -> list[str]:
    scopes = _SCOPES_TRY if landlock.scopes(level) else ""
    script = _LANDLOCK_TRY.replace("SCOPES", scopes)
    facts = [str(scene.outside), str(os.getpid())]
    return [launcher.interpreter(), "-I", "-S", "-E", "-c", script, *facts]


@contextlib.contextmanager
def _abstract_listener() -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0interlock-probe-{os.getpid()}")
        listener.listen()
        yield


def _judge_landlock(ended: Ended, scene: _Scene) -> str | None:
    said = ended.stdout.text().splitlines()
    if passed := [line.removeprefix("passed ") for line in said if line.startswith("passed")]:
        return f"it did not refuse {', '.join(passed)}"
    if "done" not in said:
        return _complaint(ended)
    if not scene.written:
        return "a write inside the workspace did not arrive"
    return None if scene.intact else "something outside the workspace changed"


def _try_elsewhere(name: str, reason: str | None) -> Finding:
    if reason is not None:
        return _unusable(name, reason)
    return Finding(BackendReport(name, True, "partial", seatbelt.GAPS, "sandbox-exec"))


def _try_seatbelt() -> Finding:
    if (reason := seatbelt.absent()) is not None:
        return _try_elsewhere("seatbelt", reason)
    with _scene() as scene:
        script = 'echo in > in; (echo out > "$1/out") 2>/dev/null; cat hidden/secret 2>/dev/null; :'
        argv = ["/bin/sh", "-c", script, "sh", str(scene.outside)]
        ended = _try(seatbelt.build(scene.policy, argv))
        if not scene.written:
            return _try_elsewhere("seatbelt", f"nothing could be written: {_complaint(ended)}")
        if not scene.intact or ended.stdout.total:
            return _try_elsewhere("seatbelt", "it did not refuse a write outside or a hidden file")
    return _try_elsewhere("seatbelt", None)


_TRIES: dict[str, Callable[[], Finding]] = {
    "bwrap": _try_bwrap,
    "landlock": _try_landlock,
    "seatbelt": _try_seatbelt,
    "windows": lambda: _try_elsewhere("windows", windows.REASON),
}
