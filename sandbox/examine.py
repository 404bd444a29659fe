"""Every attempt against every backend: what is refused, what is not, and what follows from that.

A backend's enforcement is `full` where nothing got through but what `NO_BREAK` names, `partial`
where the gaps that showed are gaps it declares, and it is no backend where anything else did.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from . import launcher
from .attempts import ATTEMPTS, SCRIPT, Attempt
from .calls import ARCHES
from .confined import Enforcement
from .errors import SandboxUnavailable
from .policy import Limits, Mode, Policy
from .probe import BackendReport, probe
from .run import run

#: Gaps that do not make an enforcement partial: what the modes leave open to everybody.
NO_BREAK = frozenset({"unix-sockets", "running-as-root"})
#: Seconds that all attempts against one backend may take.
TRY_LIMIT = 60.0
_CALLS = ("bpf", "io_uring_setup", "add_key", "ptrace", "perf_event_open", "userfaultfd")
_FORMAT = 1


@dataclass(frozen=True)
class Row:
    """One attempt against one backend. gap: the gap that it shows where it was not refused."""

    attempt: str
    tries: str
    refused: bool
    means: str
    gap: str | None


@dataclass(frozen=True)
class Examination:
    """What one backend was tried with, in mode ``workspace-write`` with the network off.

    enforcement: what follows from the rows. problem: why it is no sandbox, or could not be tried.
    cached: whether this was found earlier since the machine was started.
    """

    backend: str
    enforcement: Enforcement
    gaps: tuple[str, ...]
    rows: tuple[Row, ...]
    problem: str | None = None
    cached: bool = False


def examine(cache: Path | None = None, *, anew: bool = False) -> list[Examination]:
    """Try every usable backend with everything; takes seconds the first time.

    cache: a file to remember the result in, for this boot, user, kernel, backend and version of
        this package. It must lie where no confined command can write. anew: ignore what it holds.
    """
    known = {} if cache is None or anew else _read(cache)
    found: dict[str, Examination] = {}
    for report in probe():
        if report.usable:
            key = _key(report)
            found[key] = known.get(key) or _try(report)
    if cache is not None:
        _write(cache, {key: each for key, each in found.items() if not each.problem})
    return list(found.values())


def judge(report: BackendReport, results: dict[str, bool]) -> Examination:
    """What follows from which attempts were refused (name to whether)."""
    rows = tuple(
        Row(a.name, a.tries, results[a.name], a.means, a.gap) for a in ATTEMPTS if a.name in results
    )
    through = [row for row in rows if not row.refused]
    broken = [row.tries for row in through if row.gap is None]
    shown = {row.gap for row in through if row.gap is not None}
    gaps = shown | {gap for gap in report.gaps if gap not in _SHOWABLE}
    problem = f"it did not refuse to {', '.join(broken)}" if broken else None
    enforcement: Enforcement = "full" if not gaps - NO_BREAK else "partial"
    return Examination(
        report.backend,
        "none" if problem else enforcement,
        tuple(sorted(gaps)),
        rows,
        problem,
    )


_SHOWABLE = frozenset(attempt.gap for attempt in ATTEMPTS)


def _try(report: BackendReport) -> Examination:
    with _scene() as scene:
        try:
            outcome = run(
                [launcher.interpreter(), "-I", "-S", "-c", SCRIPT, scene.told(ATTEMPTS)],
                scene.policy,
                timeout=TRY_LIMIT,
                grace=0,
                backends=(report.backend,),
            )
        except SandboxUnavailable as error:
            return Examination(report.backend, "none", (), (), str(error))
        lines = [line.split() for line in outcome.stdout.text().splitlines()]
        if ["done"] not in lines:
            problem = f"its attempts did not end: {outcome.message}"
            return Examination(report.backend, "none", (), (), problem)
        results = {line[0]: line[1] == "refused" for line in lines if len(line) == 2}
        seen = scene.seen()
        results |= {a.name: not seen[a.name] for a in ATTEMPTS if a.seen}
    return judge(report, results)


class _Scene:
    """What there is to attack, and what the host sees of it afterwards."""

    def __init__(self, base: Path) -> None:
        self.out = base / "out"
        self.key = int.from_bytes(os.urandom(3), "little") | 1 << 24
        self.tag = f"interlock-tried-{os.getpid()}-{self.key}"
        workspace = base / "workspace"
        for path in (self.out, workspace / "deep/hidden", workspace / ".git/hooks"):
            path.mkdir(parents=True)
        for path in (self.out / "kept", self.out / "meta", workspace / "deep/hidden/file"):
            path.write_text("kept")
        self.policy = Policy(
            Mode.WORKSPACE_WRITE,
            workspace,
            hidden=(workspace / "deep/hidden",),
            limits=Limits(processes=30),
        )
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(self.tcp.getsockname())
        self.udp.setblocking(False)
        self.left_open = os.open(self.out / "kept", os.O_RDWR)
        os.set_inheritable(self.left_open, True)
        self.listeners = [self.tcp]
        for name in (f"\0{self.tag}", str(self.out / "s")):
            self.listeners.append(socket.socket(socket.AF_UNIX))
            self.listeners[-1].bind(name)
            self.listeners[-1].listen()
        for listener in self.listeners:
            threading.Thread(target=_greet, args=(listener,), daemon=True).start()

    def told(self, attempts: tuple[Attempt, ...]) -> str:
        """What the script has to know, as JSON."""
        numbers = ARCHES.get(platform.machine(), (0, {}))[1]
        facts = {
            "out": str(self.out),
            "host": os.getpid(),
            "host_name": Path(f"/proc/{os.getpid()}/cmdline").read_text()[:20],
            "port": self.tcp.getsockname()[1],
            "tag": self.tag,
            "tag_seconds": f"60.{self.key}",
            "key": self.key,
            "left_open": self.left_open,
            "calls": [(numbers[name], 0, 0, 0) for name in _CALLS if name in numbers],
        }
        return json.dumps({"facts": facts, "attempts": [(a.name, a.code) for a in attempts]})

    def seen(self) -> dict[str, bool]:
        """For the attempts that the host judges: whether they got through."""
        import ctypes

        libc = ctypes.CDLL(None)
        shared = libc.shmget(self.key, 0, 0)
        if shared >= 0:
            libc.shmctl(shared, 0, None)
        try:
            arrived = bool(self.udp.recv(16))
        except OSError:
            arrived = False
        return {
            "udp": arrived,
            "shared-memory": shared >= 0,
            "stay-behind": _runs(f"60.{self.key}"),
        }

    def close(self) -> None:
        """Give back descriptors."""
        os.close(self.left_open)
        for each in (*self.listeners, self.udp):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextlib.contextmanager
def _scene() -> Iterator[_Scene]:
    # Outside /tmp where possible: bubblewrap replaces /tmp, which would prove less.
    place = next((p for p in ("/var/tmp", "/dev/shm") if os.access(p, os.W_OK)), None)  # noqa: S108
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="interlock-tried-", dir=place)))
    os.environ["INTERLOCK_TRIED"] = "1"
    try:
        scene = _Scene(base)
        try:
            yield scene
        finally:
            scene.close()
    finally:
        del os.environ["INTERLOCK_TRIED"]
        shutil.rmtree(base, ignore_errors=True)


def _greet(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            connection.sendall(b"hi")
            connection.close()


def _runs(word: str) -> bool:
    """Whether some process has ``word`` as an argument."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if word.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                return True
    return False


def _key(report: BackendReport) -> str:
    """What a remembered result holds for: this boot, user, kernel, backend and our own code."""
    boot = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    program = shutil.which("bwrap") if report.backend == "bwrap" else None
    changed = ""
    if program is not None:
        info = os.stat(program)
        changed = f"{info.st_mtime_ns}/{info.st_size}/{info.st_ino}"
    code = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        code.update(path.read_bytes())
    facts = (_FORMAT, boot, os.geteuid(), platform.release(), asdict(report), program, changed)
    return hashlib.sha256(f"{facts}{code.hexdigest()}".encode()).hexdigest()


def _read(cache: Path) -> dict[str, Examination]:
    """What is remembered, where the file is this user's alone; nothing where it is damaged."""
    try:
        fd = os.open(cache, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            info = os.fstat(fd)
            if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
                return {}
            entries = json.loads(file.read())
        return {key: _entry(value) for key, value in entries.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}


def _entry(value: dict[str, object]) -> Examination:
    found = Examination(**value)  # type: ignore[arg-type]
    rows = tuple(Row(**row) for row in value["rows"])  # type: ignore[attr-defined]
    return replace(found, rows=rows, gaps=tuple(found.gaps), cached=True)


def _write(cache: Path, found: dict[str, Examination]) -> None:
    """Remember, or go on without where that cannot be."""
    content = json.dumps({key: asdict(each) for key, each in found.items()})
    with contextlib.suppress(OSError):
        fd, name = tempfile.mkstemp(dir=cache.parent, prefix=f".{cache.name}-")
        with open(fd, "w") as file:
            file.write(content)
        os.replace(name, cache)
