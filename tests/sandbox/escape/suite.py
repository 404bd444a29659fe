"""Runs the escape probes under one backend and mode and prints what each of them achieved, as JSON.

A program of its own, so that it can run as an ordinary user and, as root, in a mount namespace that
is thrown away. Needs nothing but the standard library and `interlock.sandbox` on the path.

    python suite.py BACKEND MODE net|no-net PROBES…         what each probe achieved
    python suite.py BACKEND switches no-net PROBES…         each protection taken away in turn
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from interlock.sandbox import Limits, Mode, Outcome, Policy, launcher, run

WORKERS = 4
VICTIM = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1] + "/signalled", "w").close())
os.dup2(os.open(sys.argv[1] + "/fdfile", os.O_RDWR | os.O_APPEND), 9)
os.chdir(sys.argv[1])
print("ready", flush=True)
time.sleep(600)
"""


class Scene:
    """What an attack could reach: files, a process, listeners; and a workspace per probe."""

    def __init__(self, base: Path, number: int) -> None:
        self.base = base
        self.out = base / "out"
        self.home = base / "home"
        (self.home / ".ssh").mkdir(parents=True)
        (self.home / ".bashrc").write_text("# mine\n")
        (self.home / ".ssh/id_rsa").write_text("key\n")
        self.out.mkdir()
        for name in ("secret", "hard", "trunc", "meta", "mv", "del"):
            (self.out / f"{name}.txt").write_text("secret\n")
        (self.out / "fdfile").write_text("secret\n")
        (self.out / "emptydir").mkdir()
        self.tag = f"ilk{os.getpid()}n{number}"
        self.template = base / "template"
        self.template.mkdir()
        subprocess.run(["git", "init", "-q", self.template], check=True)
        (self.template / ".agent").mkdir()
        self.victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(self.out)],
            stdout=subprocess.PIPE,
            env={**os.environ, "VICTIM_SECRET": "1"},
        )
        self.victim.stdout.readline()
        self.sockets: list[socket.socket] = []
        self.listen()

    def listen(self) -> None:
        tcp = socket.create_server(("127.0.0.1", 0))
        self.port = tcp.getsockname()[1]
        udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind(("127.0.0.1", self.port))
        threading.Thread(target=self.echo, args=(udp,), daemon=True).start()
        # A plain user may not make sockets there: whoever starts us then makes a place for them.
        run_dir = os.environ.get("ESCAPE_RUN", "/run")
        self.run_socket = f"{run_dir}/{self.tag}.sock"
        self.tmp_socket = f"/tmp/{self.tag}.sock"
        tcp6 = socket.create_server(("::1", self.port), family=socket.AF_INET6)
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind(f"\0{self.tag}d")
        self.silent = (udp, datagrams)
        self.sockets += [tcp, tcp6, *self.silent]
        for path in (str(self.out / "s"), self.run_socket, self.tmp_socket, f"\0{self.tag}"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()
            self.sockets.append(listener)
        for listener in self.sockets:
            if listener not in self.silent:
                threading.Thread(target=self.greet, args=(listener,), daemon=True).start()

    def greet(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.sendall(b"HELLO")
                connection.close()

    def echo(self, udp: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                _, sender = udp.recvfrom(512)
                udp.sendto(b"HELLO", sender)

    def workspace(self, name: str) -> Path:
        place = self.base / f"ws-{name}"
        shutil.copytree(self.template, place)
        (place / "link").symlink_to(self.out)
        (place / "linkdir").symlink_to(self.out)
        os.link(self.out / "hard.txt", place / "prelink")
        (place / "deep/hidden").mkdir(parents=True)
        (place / "deep/hidden/file").write_text("secret\n")
        return place

    def marks(self) -> list[object]:
        """Everything outside the workspaces that an attack may have changed."""
        found = []
        for root in (self.out, self.home):
            for path in sorted(root.rglob("*")):
                info = path.lstat()
                text = path.read_text() if path.is_file() and path.name != "hard.txt" else ""
                when = int(info.st_mtime) if path.name == "meta.txt" else 0
                found.append((str(path), info.st_mode, info.st_uid, when, text))
        victim = self.victim.pid
        found.append((os.getpriority(os.PRIO_PROCESS, victim), os.sched_getscheduler(victim)))
        return found

    def env(self, workspace: Path) -> dict[str, str]:
        return {
            "WS": str(workspace),
            "OUT": str(self.out),
            "HOSTPID": str(self.victim.pid),
            "TAG": self.tag,
            "TAGNUM": str(os.getpid()),
            "ABS": self.tag,
            "RUNSOCK": self.run_socket,
            "TMPSOCK": self.tmp_socket,
            "PORT": str(self.port),
            "HOSTHOME": str(self.home),
            "HIDDEN": str(workspace / "deep/hidden"),
        }

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for listener in self.sockets:
            listener.close()
        for path in (self.run_socket, self.tmp_socket):
            with contextlib.suppress(OSError):
                os.unlink(path)


def policy_of(scene: Scene, workspace: Path, mode: Mode, *, network: bool) -> Policy:
    return Policy(
        mode,
        workspace,
        hidden=(workspace / "deep/hidden",),
        network=network,
        env=scene.env(workspace),
        limits=Limits(processes=200, file_bytes=200 << 20, cpu_seconds=2, memory_bytes=4 << 30),
    )


def attempt(scene: Scene, probe: Path, backend: str, mode: Mode, *, network: bool) -> str:
    """One probe's result, judged from the host where the host can see it."""
    name = probe.stem[4:]
    workspace = scene.workspace(name)
    policy = policy_of(scene, workspace, mode, network=network)
    before = scene.marks()
    program = [launcher.interpreter(), "-I"] if probe.suffix == ".py" else ["bash"]
    outcome = run([*program, str(probe)], policy, timeout=20, grace=0, backends=(backend,))
    if outcome.status in ("timeout", "sandbox-failed", "not-found"):
        return f"{outcome.status}: {outcome.message}"
    words = outcome.stdout.text().split()
    judge = next((JUDGES[word] for word in words if word in JUDGES), None)
    if name in IPC:
        return IPC[name](f"ilk{scene.tag}".encode(), os.getpid() + 1)
    if judge is not None:
        return judge(scene, name, outcome, network)
    if scene.marks() != before:
        return "ESCAPE*"
    if name in ("cpu-spin", "int80-mkdir") and outcome.status == "signalled":
        return "BLOCKED"
    if "RESULT" not in words and "socket" in probe.read_text():
        # The attempt ended where it asked for a socket.
        return "BLOCKED" if "PermissionError" in outcome.stderr.text() else outcome.message
    said = outcome.message + outcome.stderr.text()[-200:]
    return words[words.index("RESULT") + 1] if "RESULT" in words else said


def _stayed(scene: Scene, _name: str, _outcome: Outcome, _network: bool) -> str:
    return "ESCAPE" if running(scene.tag) else "BLOCKED"


def _wrote(scene: Scene, name: str, _outcome: Outcome, _network: bool) -> str:
    place = {"host-tmp": "/tmp", "shm-outside": "/dev/shm"}.get(name, "/var/tmp")
    left = Path(place, scene.tag).exists()
    Path(place, scene.tag).unlink(missing_ok=True)
    return "ESCAPE" if left else "BLOCKED"


def _bound(_scene: Scene, _name: str, outcome: Outcome, network: bool) -> str:
    return "ESCAPE" if outcome.backend != "bwrap" or network or OPEN_NETWORK else "BLOCKED"


def _told(_scene: Scene, _name: str, outcome: Outcome, _network: bool) -> str:
    """S5: the command ended with 7, whatever it wrote or struck at."""
    held = outcome.status in ("exited", "denied") and outcome.exit_code == 7
    return "BLOCKED" if held else f"ESCAPE {outcome.status}"


#: Set while the network namespace is switched off.
OPEN_NETWORK = False
#: What a probe says when the host has to see for itself.
JUDGES = {"STARTED": _stayed, "WROTE": _wrote, "BOUND": _bound, "FORGED": _told, "STRUCK": _told}

libc = ctypes.CDLL(None)


def _queue(name: bytes, _key: int) -> str:
    there = libc.syscall(240 if os.uname().machine == "x86_64" else 180, name, 0, 0, None) >= 0
    libc.syscall(241 if os.uname().machine == "x86_64" else 181, name)
    return "ESCAPE" if there else "BLOCKED"


def _shared(_name: bytes, key: int) -> str:
    found = libc.shmget(key, 0, 0)
    libc.shmctl(found, 0, None)
    return "ESCAPE" if found >= 0 else "BLOCKED"


def _semaphore(_name: bytes, key: int) -> str:
    found = libc.semget(key, 0, 0)
    libc.semctl(found, 0, 0)
    return "ESCAPE" if found >= 0 else "BLOCKED"


IPC = {"mqueue": _queue, "sysv-shm": _shared, "sysv-sem": _semaphore}


def running(tag: str) -> bool:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if tag.encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
                return True
    return False


def probes_in(folders: list[str]) -> list[Path]:
    found = [p for folder in folders for p in Path(folder).iterdir()]
    return sorted(p for p in found if p.suffix in (".py", ".sh") and not p.name.startswith("_"))


def measure(base: Path, found: list[Path], backend: str, mode: Mode, *, network: bool) -> dict:
    """What each probe achieved. Most wait most of the time; each worker has a scene to itself."""
    results: dict[str, str] = {}

    def work(number: int) -> None:
        scene = Scene(base / str(number), number)
        try:
            for probe in found[number::WORKERS]:
                results[probe.stem[4:]] = attempt(scene, probe, backend, mode, network=network)
        finally:
            scene.close()

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    return results


def switched(base: Path, found: list[Path], backend: str) -> dict[str, list[str]]:
    """For each protection the result of its probe with it, and without it."""
    from switches import SWITCHES

    by_name = {probe.stem[4:]: probe for probe in found}
    results: dict[str, list[str]] = {}
    scene = Scene(base / "switches", 0)
    try:
        for switch in SWITCHES:
            probe = by_name.get(switch.probe)
            if backend not in switch.backends or probe is None:
                continue
            if switch.root is not None and switch.root != (os.geteuid() == 0):
                continue
            mode, results[switch.name] = Mode(switch.mode), []
            for off in (False, True):
                with switch.off() if off else contextlib.nullcontext():
                    result = attempt(scene, probe, backend, mode, network=False)
                results[switch.name].append(result)
                shutil.rmtree(scene.base / f"ws-{switch.probe}", ignore_errors=True)
    finally:
        scene.close()
    return results


def main() -> None:
    backend, mode, network, *folders = sys.argv[1:]
    secret = {"BASH_ENV": "/dev/null", "PYTHONSTARTUP": "/dev/null", "HOST_SECRET": "hunter2"}
    os.environ.update(secret)
    # Outside /tmp, which bubblewrap replaces: there an attack would prove nothing.
    base = Path(tempfile.mkdtemp(prefix="interlock-escape-", dir="/var/tmp"))
    inherited = os.open(base / "inherited", os.O_RDWR | os.O_CREAT)
    os.dup2(inherited, 17)
    found = probes_in(folders)
    try:
        if mode == "switches":
            told: object = switched(base, found, backend)
        else:
            told = measure(base, found, backend, Mode(mode), network=network == "net")
    finally:
        shutil.rmtree(base, ignore_errors=True)
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    main()
