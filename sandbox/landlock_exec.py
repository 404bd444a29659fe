"""The launcher: a stand-alone script that confines itself, runs a command and ends all it started.

It runs as ``python -I -S -E`` in a process of its own, with a description of what to do on one
descriptor, and imports nothing of Interlock: a small start, and nothing that a workspace can
replace.

Two processes. The *supervisor* adopts orphans (subreaper), waits, ends whatever is left and writes
the status records; it is not confined, and the command cannot reach it. Its child takes, in this
order: limits, masks, closed descriptors, Landlock, no new privileges, no capabilities, seccomp,
exec.

Status records, one JSON object a line: ``{"child-pid": N}`` when the child exists, then one of
``{"exit-code": N, "signal": S}``, ``{"exec-error": ERRNO}``, ``{"failed": "why"}``.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # not at run time: the import would double the start
    from collections.abc import Callable
    from typing import Any

    Call = Callable[..., int]
    Spec = dict[str, Any]

SETUP_FAILED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
#: Seconds to spend on ending left-overs before reporting that some would not go.
REAP_LIMIT = 5.0

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
SYS_CLOSE_RANGE, CLOSE_RANGE_CLOEXEC = 436, 4
SYS_LANDLOCK_CREATE, SYS_LANDLOCK_ADD, SYS_LANDLOCK_RESTRICT = 444, 445, 446
#: Rights that a rule on a file may carry; a directory may carry all.
FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
LINUX = sys.platform == "linux"


class SetupError(Exception):
    """The sandbox could not be put up; the command was not started."""


libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, function: Call, *arguments: Any) -> int:
    """Call into the C library; raise `SetupError` with the reason where it refuses."""
    result: int = function(*arguments)
    if result < 0:
        raise SetupError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def syscall(what: str, number: int, *arguments: Any) -> int:
    return call(what, libc.syscall, ctypes.c_long(number), *arguments)


def prctl(what: str, option: int, *arguments: int) -> int:
    padded = [ctypes.c_ulong(a) for a in (*arguments, 0, 0, 0, 0)[:4]]
    return call(what, libc.prctl, ctypes.c_int(option), *padded)


def restrict_files(rules: Spec) -> None:
    """Apply a Landlock ruleset: only what is granted below is possible from here on."""
    words = (rules["files"], rules["network"], rules["scopes"])
    attribute = (ctypes.c_uint64 * 3)(*words)
    size = 24 if rules["abi"] >= 6 else 16 if rules["abi"] >= 4 else 8
    ruleset = syscall(
        "landlock_create_ruleset",
        SYS_LANDLOCK_CREATE,
        ctypes.byref(attribute),
        ctypes.c_size_t(size),
        ctypes.c_uint32(0),
    )
    for path, rights, required in rules["grants"]:
        try:
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError as error:
            if required:
                raise SetupError(f"{path}: {error.strerror}") from None
            continue
        directory = os.fstat(fd).st_mode & 0o170000 == 0o040000
        granted = rights & rules["files"] & (~0 if directory else FILE_RIGHTS)
        beneath = granted.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder)
        if granted:
            syscall(
                f"landlock_add_rule {path}",
                SYS_LANDLOCK_ADD,
                ctypes.c_int(ruleset),
                ctypes.c_int(1),
                ctypes.c_char_p(beneath),
                ctypes.c_uint32(0),
            )
        os.close(fd)
    no_new_privileges()
    if rules[
        "files"
    ]:  # below a runner that makes namespaces there are none, and it needs its rights
        drop_capabilities()
    syscall(
        "landlock_restrict_self",
        SYS_LANDLOCK_RESTRICT,
        ctypes.c_int(ruleset),
        ctypes.c_uint32(0),
    )
    os.close(ruleset)


def no_new_privileges() -> None:
    prctl("no_new_privs", PR_SET_NO_NEW_PRIVS, 1)


def drop_capabilities() -> None:
    """Empty every capability set, the bounding set too, so that exec as uid 0 regains none.

    Needed also below Landlock: with capabilities, memory of host processes is readable.
    """
    for capability in range(64):
        if libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            break
    libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(4), 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", libc.capset, ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


def filter_calls(program: bytes) -> None:
    """Install a seccomp filter given as the bytes of a ``sock_filter`` array."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    prog = Program(len(program) // 8, program)
    prctl("seccomp", PR_SET_SECCOMP, 2, ctypes.addressof(prog))


def own_mounts() -> None:
    """Move into a mount namespace of our own. Mounts made in it are seen by the command only."""
    uid, gid = os.geteuid(), os.getegid()
    if libc.unshare(ctypes.c_int(CLONE_NEWNS)) < 0:
        call("unshare", libc.unshare, ctypes.c_int(CLONE_NEWNS | CLONE_NEWUSER))
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            fd = os.open(f"/proc/self/{name}", os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, text.encode())
            os.close(fd)
    mount("make mounts private", None, "/", None, MS_REC | MS_PRIVATE)


def mount(
    what: str, source: str | None, target: str, kind: str | None, flags: int, options: str = ""
) -> None:
    encoded = [None if t is None else os.fsencode(t) for t in (source, target, kind)]
    data = options.encode() or None
    call(f"{what} {target}", libc.mount, *encoded, ctypes.c_ulong(flags), data)


def mask(hidden: list[tuple[str, bool]], pinned: list[str]) -> None:
    """Cover hidden paths with nothing, and pin the directories above so that none can be moved."""
    own_mounts()
    for path in pinned:
        mount("pin", path, path, None, MS_BIND | MS_REC)
    locked = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    for path, directory in hidden:
        if directory:
            mount("hide", "tmpfs", path, "tmpfs", locked, "size=4k,mode=000")
        else:
            mount("hide", "/dev/null", path, None, MS_BIND)
            mount("hide", None, path, None, MS_REMOUNT | MS_BIND | locked)


def set_limits(limits: list[tuple[int, int, int]]) -> None:
    import resource

    for number, soft, hard in limits:
        ceiling = resource.getrlimit(number)[1]
        most = hard if ceiling == resource.RLIM_INFINITY else min(hard, ceiling)
        resource.setrlimit(number, (min(soft, most), most))


def close_on_exec() -> None:
    """Leave the command its three standard descriptors and nothing else."""
    if LINUX:
        first, last = ctypes.c_uint(3), ctypes.c_uint(0xFFFFFFFF)
        if libc.syscall(SYS_CLOSE_RANGE, first, last, ctypes.c_uint(CLOSE_RANGE_CLOEXEC)) == 0:
            return
    for name in os.listdir("/dev/fd"):
        try:
            if int(name) > 2:
                os.set_inheritable(int(name), False)
        except OSError:
            continue


def confine(spec: Spec) -> None:
    """Give up everything that the description does not grant. Cannot be undone."""
    set_limits(spec["limits"])
    if spec["hidden"]:
        mask(spec["hidden"], spec["pinned"])
    os.chdir(spec["cwd"])
    if spec["landlock"] is not None:
        restrict_files(spec["landlock"])
    if spec["seccomp"] is not None:
        no_new_privileges()
        filter_calls(spec["seccomp"])


def execute(argv: list[bytes], env: dict[bytes, bytes]) -> None:
    """Replace this process by the command, as a shell would find and start it. Raises OSError."""
    try:
        os.execvpe(argv[0], argv, env)  # noqa: S606 no shell is the point
    except OSError as error:
        if error.errno != 8:  # ENOEXEC: a script without an interpreter line, which a shell runs
            raise
        path = argv[0] if b"/" in argv[0] else find(argv[0], env)
        os.execve("/bin/sh", [b"sh", path, *argv[1:]], env)  # noqa: S606 as a shell would


def find(name: bytes, env: dict[bytes, bytes]) -> bytes:
    for directory in env.get(b"PATH", b"/bin:/usr/bin").split(b":"):
        path = os.path.join(directory or b".", name)
        if os.access(path, os.X_OK):
            return path
    return name


def command(spec: Spec, parent: int, failure: int) -> None:
    """The child: confine, then exec. Reports on ``failure`` and leaves if either does not work."""
    try:
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        close_on_exec()
        confine(spec)
        if LINUX:
            # Last, because changing credentials clears it. S7: no child outlives its supervisor.
            prctl("pdeathsig", PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                raise SetupError("the supervisor is gone")  # noqa: TRY301 reported below
    except (SetupError, OSError, ValueError) as error:
        os.write(failure, b"failed " + str(error).encode())
        os._exit(SETUP_FAILED)
    try:
        execute(spec["argv"], spec["env"])
    except OSError as error:
        os.write(failure, b"exec %d" % (error.errno or 0))
        os._exit(NOT_FOUND if error.errno in (2, 20) else NOT_EXECUTABLE)
    except ValueError as error:
        os.write(failure, b"failed " + str(error).encode())
    os._exit(SETUP_FAILED)


class Supervisor:
    """Waits for one command; ends it when the host is gone; leaves nothing behind (S7)."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.wake, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if LINUX else nonblocking_pipe()
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        watched = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
        for number in watched:
            signal.signal(number, lambda *_: None)
        if LINUX:
            prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)
            # The descriptor `alive` tells us of the host's end; this is for hosts that forked and
            # so left a copy of it behind. It follows a thread: hence the look at getppid below.
            prctl("pdeathsig", PR_SET_PDEATHSIG, signal.SIGUSR2)
        self.child = 0
        self.ended: int | None = None

    def run(self) -> int:
        outcome, failure = os.pipe()
        os.set_inheritable(failure, False)
        me = os.getpid()
        if self.host_is_gone():
            return SETUP_FAILED
        self.child = os.fork()
        if self.child == 0:
            command(self.spec, me, failure)
        os.close(failure)
        self.record(f'{{"child-pid": {self.child}}}')
        problem = os.read(outcome, 4096).decode(errors="replace")
        os.close(outcome)
        if not problem:
            self.wait()
        left = self.end_all()
        self.clean()
        return self.report(problem, left)

    def host_is_gone(self) -> bool:
        return bool(os.getppid() != self.spec["host"])

    def wait(self) -> None:
        """Return when the command has ended, or when the host is gone."""
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.register(self.spec["alive"], select.POLLIN | select.POLLHUP)
        while self.reap() and self.ended is None:
            for fd, _ in poller.poll():
                if fd == self.spec["alive"]:
                    return
                self.forward(os.read(self.wake, 512))
            if self.host_is_gone():
                return

    def forward(self, signals: bytes) -> None:
        for number in set(signals) & {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}:
            try:
                os.killpg(self.child, number)
            except OSError:
                continue

    def reap(self) -> bool:
        """Collect whatever has ended; False once there is no child left at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == self.child:
                self.ended = status
            if pid == 0:
                return True

    def end_all(self) -> int:
        """Kill until there is nothing left; stop first, so that none can fork away meanwhile."""
        limit = time.monotonic() + REAP_LIMIT
        while time.monotonic() < limit:
            pids = descendants(os.getpid()) if LINUX else [-self.child]
            for number in (signal.SIGSTOP, signal.SIGKILL):
                for pid in pids:
                    try:
                        os.kill(pid, number)
                    except OSError:
                        continue
            if not self.reap():
                return 0
            time.sleep(0.001)
        return len(descendants(os.getpid())) if LINUX else 1

    def clean(self) -> None:
        if self.spec["scratch"]:
            remove_tree(self.spec["scratch"])

    def record(self, line: str) -> None:
        try:
            os.write(self.spec["status"], line.encode() + b"\n")
        except OSError:
            return

    def report(self, problem: str, left: int) -> int:
        leftover = f', "left": {left}' if left else ""
        word, _, detail = problem.partition(" ")
        if word == "exec":
            self.record(f'{{"exec-error": {int(detail)}}}')
            return NOT_FOUND if int(detail) in (2, 20) else NOT_EXECUTABLE
        if word == "failed":
            plain = "".join(c if c.isprintable() and c not in '"\\' else "?" for c in detail)
            self.record(f'{{"failed": "{plain}"}}')
            return SETUP_FAILED
        status = self.ended if self.ended is not None else signal.SIGKILL
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 128 + number if number else os.WEXITSTATUS(status)
        self.record(f'{{"exit-code": {code}, "signal": {number}{leftover}}}')
        return code


def nonblocking_pipe() -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends


def descendants(root: int) -> list[int]:
    """Every process below ``root``, nearest first; from /proc, which the supervisor still sees."""
    found: list[int] = []
    queue = [root]
    while queue:
        children = children_of(queue.pop())
        found += children
        queue += children
    return found


def children_of(pid: int) -> list[int]:
    children: list[int] = []
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        for task in tasks:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += [int(word) for word in file.read().split()]
    except OSError:
        pass
    return children


def remove_tree(path: str) -> None:
    """Delete a scratch directory. Everything that could change it meanwhile has been ended."""
    try:
        os.chmod(path, 0o700)
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(path)
    except OSError:
        return


def main() -> None:
    fd = int(sys.argv[1])
    with open(fd, "rb") as file:
        # The bytes come from the parent, by a descriptor that nobody else holds.
        spec = marshal.loads(file.read())  # noqa: S302 our own parent wrote them
    if not spec["supervise"]:
        confine(spec)
        execute(spec["argv"], spec["env"])
    os._exit(Supervisor(spec).run())


if __name__ == "__main__":
    main()
