"""Runs the escape probes under one backend and mode and prints what each of them achieved, as JSON.

A program of its own, so that it can run as an ordinary user and, as root, in a mount namespace that
is thrown away. Needs nothing but the standard library and `interlock.sandbox` on the path.

    python escape_suite.py PROBES BACKEND MODE [net]
"""

import contextlib
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

from interlock.sandbox import Limits, Mode, Policy, run

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
        run_dir = "/run" if os.access("/run", os.W_OK) else str(self.base)
        self.run_socket = f"{run_dir}/{self.tag}.sock"
        self.tmp_socket = f"/tmp/{self.tag}.sock"
        self.sockets += [tcp, udp]
        for path in (str(self.out / "s"), self.run_socket, self.tmp_socket, f"\0{self.tag}"):
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen()
            self.sockets.append(listener)
        for listener in self.sockets:
            if listener is not udp:
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
        return place

    def marks(self) -> list[tuple[str, int, int, str]]:
        """Everything outside the workspaces that an attack may have changed."""
        found = []
        for root in (self.out, self.home):
            for path in sorted(root.rglob("*")):
                info = path.lstat()
                text = path.read_text() if path.is_file() and path.name != "hard.txt" else ""
                found.append((str(path), info.st_mode, info.st_uid, text))
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
        }

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for listener in self.sockets:
            listener.close()
        for path in (self.run_socket, self.tmp_socket):
            with contextlib.suppress(OSError):
                os.unlink(path)


def attempt(scene: Scene, probe: Path, backend: str, mode: Mode, *, network: bool) -> str:
    """One probe's result, judged from the host where the host can see it."""
    name = probe.stem[4:]
    workspace = scene.workspace(name)
    policy = Policy(
        mode,
        workspace,
        network=network,
        env=scene.env(workspace),
        limits=Limits(processes=200, file_bytes=200 << 20, cpu_seconds=2),
    )
    before = scene.marks()
    program = ["python3", "-I"] if probe.suffix == ".py" else ["bash"]
    outcome = run([*program, str(probe)], policy, timeout=20, grace=0, backends=(backend,))
    if outcome.status in ("timeout", "sandbox-failed", "not-found"):
        return f"{outcome.status}: {outcome.message}"
    words = outcome.stdout.text().split()
    if name == "leftover":
        return "ESCAPE" if running(scene.tag) else "BLOCKED"
    if "WROTE" in words:
        place = Path("/tmp" if name == "host-tmp" else "/var/tmp") / scene.tag
        left = place.exists()
        place.unlink(missing_ok=True)
        return "ESCAPE" if left else "BLOCKED"
    if "BOUND" in words:
        return "ESCAPE" if outcome.backend != "bwrap" or network else "BLOCKED"
    if scene.marks() != before:
        return "ESCAPE*"
    if name == "cpu-spin" and outcome.status == "signalled":
        return "BLOCKED"
    if "RESULT" not in words and "socket" in probe.read_text():
        # The attempt ended where it asked for a socket.
        return "BLOCKED" if "PermissionError" in outcome.stderr.text() else outcome.message
    return words[words.index("RESULT") + 1] if "RESULT" in words else outcome.message


def running(tag: str) -> bool:
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (entry / "cmdline").read_bytes().split(b"\0")[0] == tag.encode():
                os.kill(int(entry.name), signal.SIGKILL)
                return True
    return False


def main() -> None:
    probes, backend, mode = Path(sys.argv[1]), sys.argv[2], Mode(sys.argv[3])
    network = "net" in sys.argv[4:]
    os.environ.update(LD_PRELOAD_OLD="", BASH_ENV="/dev/null", PYTHONSTARTUP="/dev/null")
    # Outside /tmp, which bubblewrap replaces: there an attack would prove nothing.
    base = Path(tempfile.mkdtemp(prefix="interlock-escape-", dir="/var/tmp"))
    results: dict[str, str] = {}
    inherited = os.open(base / "inherited", os.O_RDWR | os.O_CREAT)
    os.dup2(inherited, 17)
    found = sorted(p for p in probes.iterdir() if p.suffix in (".py", ".sh"))

    def work(number: int) -> None:
        """Most probes wait most of the time; each worker has a scene to itself."""
        scene = Scene(base / str(number), number)
        try:
            for probe in found[number::WORKERS]:
                results[probe.stem[4:]] = attempt(scene, probe, backend, mode, network=network)
        finally:
            scene.close()

    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(work, range(WORKERS)))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
