"""Run as a confined command: tries to get at the runtime that runs it, and says what it reached.

``python attempts.py FACTS [NAME…]``: FACTS is JSON about the runtime (sockets, processes, files),
the most that an attacker could know; NAMEs are the attempts to make, else all. Prints one JSON
object: for each attempt the list of what it reached.
Only the standard library, and nothing that would harm a runtime which could be reached.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import sys

FACTS = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
LIBC = ctypes.CDLL(None, use_errno=True)
#: A ZMTP 3 greeting without security, a READY command and a message.
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x04\x1c\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"
SYS = {"process_vm_readv": 310, "pidfd_send_signal": 424, "pidfd_open": 434, "pidfd_getfd": 438}
PTRACE_SEIZE = 0x4206


def connected(address: str, family: int = socket.AF_UNIX) -> socket.socket | None:
    try:
        one = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return None
    one.settimeout(1)
    try:
        one.connect(tuple(address) if family == socket.AF_INET else address)
    except OSError:
        one.close()
        return None
    return one


def path_sockets() -> list[str]:
    """Connect to each owner's socket."""
    return [path for path in FACTS["sockets"] if connected(path)]


def speaking() -> list[str]:
    """Say something to each socket that can be connected to; a reply beyond the greeting counts."""
    found = []
    for path in FACTS["sockets"]:
        one = connected(path)
        if one is None:
            continue
        heard = b""
        with contextlib.suppress(OSError):
            one.sendall(GREETING + READY + b"\x00\x0eAnswerApproval")
            while data := one.recv(4096):
                heard += data
        if len(heard) > len(GREETING):
            found.append(f"{path}: {heard[64:]!r}")
    return found


def abstract_sockets() -> list[str]:
    names = ["\0" + FACTS["abstract"]]
    with contextlib.suppress(OSError), open("/proc/net/unix") as table:
        names += ["\0" + line.split()[-1][1:] for line in table if " @" in line]
    return [repr(name) for name in names if connected(name)]


def network() -> list[str]:
    """The sockets of a runtime that others attach to over TCP."""
    return [str(port) for port in FACTS["ports"] if connected(("127.0.0.1", port), socket.AF_INET)]


def files_read() -> list[str]:
    """Keys, journal, logs, locks: read them."""
    found = []
    for path in FACTS["files"]:
        with contextlib.suppress(OSError), open(path, "rb") as file:
            found.append(f"{path}: {file.read(16)!r}")
    return found


def names_listed() -> list[str]:
    """List the directories that they are in."""
    found = []
    for path in FACTS["directories"]:
        with contextlib.suppress(OSError):
            found += [f"{path}/{name}" for name in os.listdir(path)]
    return found


def files_written() -> list[str]:
    """Append to them, replace them, put new ones beside them."""
    found = []
    for path in FACTS["files"]:
        with contextlib.suppress(OSError), open(path, "ab") as file:
            file.write(b"x")
            found.append(path)
        for change in (os.unlink, lambda p: os.rename(p, p + "~"), lambda p: os.truncate(p, 0)):
            with contextlib.suppress(OSError):
                change(path)
                found.append(path)
    for path in FACTS["directories"]:
        with contextlib.suppress(OSError), open(path + "/planted", "wb"):
            found.append(path)
    return found


def code_written() -> list[str]:
    """What the owners run: the interpreter, this project, what it needs."""
    found = []
    for path in FACTS["code"]:
        with contextlib.suppress(OSError), open(path, "r+b"):
            found.append(path)
        with contextlib.suppress(OSError), open(os.path.dirname(path) + "/planted.py", "wb"):
            found.append(os.path.dirname(path))
    return found


def process_entries() -> list[str]:
    """What ``/proc`` shows of the owners, their worker and their host."""
    readable = ("environ", "maps", "mem", "auxv", "syscall", "io", "smaps", "pagemap", "stack")
    found = []
    for name, pid in FACTS["processes"].items():
        for entry in readable:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/{entry}", "rb", 0) as file:
                if entry == "mem":
                    file.seek(0x400000)
                file.read(16)
                found.append(f"{name}/{entry}")
        for entry in ("root", "cwd", "exe"):
            with contextlib.suppress(OSError):
                found.append(f"{name}/{entry} -> {os.readlink(f'/proc/{pid}/{entry}')}")
        for entry in ("root", "cwd"):
            with contextlib.suppress(OSError):
                found += [f"{name}/{entry}/{n}" for n in os.listdir(f"/proc/{pid}/{entry}")]
        found += [f"{name}/{path}" for path in open_by_link(pid)]
    return found


def open_by_link(pid: int) -> list[str]:
    """Descriptors and mappings that could be followed; that their numbers show is no more than that
    the process shows.
    """
    found = []
    for entry in ("fd", "map_files", f"task/{pid}/fd"):
        names: list[str] = []
        with contextlib.suppress(OSError):
            names = os.listdir(f"/proc/{pid}/{entry}")
        for name in names:
            with contextlib.suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/{entry}/{name}"))
            with contextlib.suppress(OSError):
                os.close(os.open(f"/proc/{pid}/{entry}/{name}", os.O_RDONLY | os.O_NONBLOCK))
                found.append(f"{entry}/{name}")
    return found


def signals() -> list[str]:
    """Signal them: nothing, and a signal that would change nothing."""
    found = []
    for name, pid in FACTS["processes"].items():
        for number in (0, signal.SIGCONT):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
                found.append(f"{name}: kill {number}")
            with contextlib.suppress(OSError):
                os.killpg(pid, number)
                found.append(f"{name}: killpg {number}")
        pidfd = LIBC.syscall(SYS["pidfd_open"], pid, 0)
        if pidfd >= 0 and LIBC.syscall(SYS["pidfd_send_signal"], pidfd, 0, None, 0) == 0:
            found.append(f"{name}: pidfd_send_signal")
    return found


def tracing() -> list[str]:
    """Trace them, read their memory, take their descriptors."""
    found = []
    buffer = ctypes.create_string_buffer(16)
    vector = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), 16)
    remote = (ctypes.c_void_p * 2)(0x400000, 16)
    for name, pid in FACTS["processes"].items():
        if LIBC.ptrace(PTRACE_SEIZE, pid, None, None) == 0:
            LIBC.ptrace(17, pid, None, None)
            found.append(f"{name}: ptrace")
        if LIBC.syscall(SYS["process_vm_readv"], pid, vector, 1, remote, 1, 0) > 0:
            found.append(f"{name}: process_vm_readv")
        pidfd = LIBC.syscall(SYS["pidfd_open"], pid, 0)
        if pidfd >= 0 and LIBC.syscall(SYS["pidfd_getfd"], pidfd, 0, 0) >= 0:
            found.append(f"{name}: pidfd_getfd")
    return found


def meddling() -> list[str]:
    """Their limits, priority and processors: set to what they are."""
    found = []
    for name, pid in FACTS["processes"].items():
        with contextlib.suppress(OSError):
            now = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            found.append(f"{name}: prlimit read")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, now)
            found.append(f"{name}: prlimit")
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
            found.append(f"{name}: setpriority")
        with contextlib.suppress(OSError):
            os.sched_setaffinity(pid, os.sched_getaffinity(pid))
            found.append(f"{name}: sched_setaffinity")
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
            found.append(f"{name}: sched_setscheduler")
    return found


def descriptors() -> list[str]:
    """Descriptors that it was started with, besides its three streams."""
    listing = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    found = []
    for name in os.listdir(listing):
        if int(name) > 2 and int(name) != listing:
            with contextlib.suppress(OSError):
                target = os.readlink(f"/proc/self/fd/{name}")
                if not target.endswith("/fd"):
                    found.append(f"{name} -> {target}")
    return found


def environment() -> list[str]:
    """Secrets and addresses in its own environment, and in that of what stands above it."""
    marks = (*FACTS["secrets"], *FACTS["sockets"])
    texts = {"own": str(dict(os.environ))}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/environ", "rb") as file:
            texts[pid] = file.read().decode(errors="replace")
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            texts[f"{pid} argv"] = file.read().decode(errors="replace")
    own = str(os.getpid()) + " argv"
    found = [name for name, text in texts.items() if any(m in text for m in marks)]
    return [name for name in found if name != own and "attempts.py" not in texts[name]]


def answering() -> list[str]:
    """Use the command line of the approvals, where it finds one."""
    import subprocess

    found = []
    for verb in (["list", "--json"], ["allow", FACTS["request"]], ["reject", FACTS["request"]]):
        for argv in ([FACTS["interlock"]], [sys.executable, "-m", "interlock.actors.cli"]):
            try:
                done = subprocess.run([*argv, "approvals", *verb], capture_output=True, text=True)
            except OSError:
                continue
            said = done.stdout + done.stderr
            if FACTS["request"] in done.stdout or (verb[0] != "list" and done.returncode == 0):
                found.append(f"{argv} {verb}: {said}")
    return found


ATTEMPTS = [
    descriptors,  # before the others have opened any
    path_sockets,
    speaking,
    abstract_sockets,
    network,
    files_read,
    names_listed,
    files_written,
    code_written,
    process_entries,
    signals,
    tracing,
    meddling,
    environment,
    answering,
]

if __name__ == "__main__":
    said = {}
    for attempt in ATTEMPTS:
        if sys.argv[2:] and attempt.__name__ not in sys.argv[2:]:
            continue
        try:
            said[attempt.__name__] = attempt()
        except Exception as error:
            said[attempt.__name__] = [f"the attempt broke: {type(error).__name__}: {error}"]
    print(json.dumps(said))
