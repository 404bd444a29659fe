"""What a sandbox is tried with: small attacks that harm nothing where they get through.

Each is a few lines of Python that run confined. They may use ``out`` (a directory outside),
``host`` (a process outside), ``port``, ``tag`` and ``key``; one that ends without an exception, and
leaves no false value in ``got``, got through. Where the host sees better, the host is asked.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Attempt:
    """One attack. gap: the gap that it shows where it gets through; None: then it is no sandbox.

    means: what it means for a user that it is not refused. seen: the host has the last word.
    """

    name: str
    tries: str
    code: str
    means: str
    gap: str | None = None
    seen: bool = False


ATTEMPTS = (
    Attempt(
        "write-outside",
        "write a file outside the workspace",
        'open(out + "/new", "w").close()',
        "commands can change everything you can",
    ),
    Attempt(
        "delete-outside",
        "delete a file outside",
        'os.unlink(out + "/kept")',
        "commands can delete everything you can",
    ),
    Attempt(
        "empty-outside",
        "empty a file outside by its path",
        'os.truncate(out + "/kept", 0)',
        "commands can empty everything you can write",
    ),
    Attempt(
        "link-outside",
        "write outside through a link in the workspace",
        'os.symlink(out, "link"); open("link/linked", "w").close()',
        "links lead out of the workspace",
    ),
    Attempt(
        "mode-outside",
        "change the mode of a file outside",
        'os.chmod(out + "/meta", 0o644)',
        "modes, owners and times of your files can be changed, not what is in them",
        gap="metadata",
    ),
    Attempt(
        "read-hidden",
        "read a hidden file in the workspace",
        'got = open("deep/hidden/file").read()',
        "hidden paths are open",
    ),
    Attempt(
        "list-hidden",
        "list a hidden directory",
        'got = os.listdir("deep/hidden")',
        "names below hidden paths show",
        gap="hidden-names",
    ),
    Attempt(
        "git-hook",
        "write a git hook in the workspace",
        'open(".git/hooks/pre-commit", "w").close()',
        "your next git command may run what a command left; look at the audit",
        gap="protected-paths",
    ),
    Attempt(
        "git-moved",
        "move .git away and build another",
        'os.rename(".git", "moved")',
        "your next git command may run what a command left; look at the audit",
        gap="protected-paths",
    ),
    Attempt(
        "signal",
        "signal a process outside",
        "os.kill(host, 0)",
        "your other programs can be killed",
        gap="signals",
    ),
    Attempt(
        "see-processes",
        "see a process outside",
        'got = host_name in open("/proc/%d/cmdline" % host).read()',
        "what runs, and command lines, can be read",
        gap="process-visibility",
    ),
    Attempt(
        "read-memory",
        "read a process's memory and environment outside",
        'got = open("/proc/%d/environ" % host, "rb").read() or open("/proc/%d/mem" % host, "rb")',
        "secrets of your other programs can be read",
    ),
    Attempt(
        "limit-processes-outside",
        "change the limits of a process outside",
        "got = resource.prlimit(host, resource.RLIMIT_CORE, "
        "resource.prlimit(host, resource.RLIMIT_CORE))",
        "your other programs can be hindered",
    ),
    Attempt(
        "tcp",
        "connect to a port of this machine",
        's = socket.socket(); s.settimeout(2); s.connect(("127.0.0.1", port)); got = s.recv(2)',
        "the network cannot be switched off",
        gap="network",
    ),
    Attempt(
        "udp",
        "send a datagram to this machine",
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        's.sendto(b"hi", ("127.0.0.1", port))',
        "data can leave by datagrams",
        gap="network",
        seen=True,
    ),
    Attempt(
        "abstract-socket",
        "connect to an abstract socket outside",
        's = socket.socket(socket.AF_UNIX); s.connect("\\0" + tag); got = s.recv(2)',
        "programs that listen on abstract sockets can be used",
        gap="abstract-sockets",
    ),
    Attempt(
        "unix-socket",
        "connect to a socket in a directory outside",
        's = socket.socket(socket.AF_UNIX); s.connect(out + "/s"); got = s.recv(2)',
        "daemons whose sockets you may use (agents, containers) can be used: hide them",
        gap="unix-sockets",
    ),
    Attempt(
        "shared-memory",
        "make System V shared memory",
        "got = libc.shmget(key, 4096, 0o1600) >= 0",
        "memory can be shared with your other programs",
        gap="sysv-ipc",
        seen=True,
    ),
    Attempt(
        "mount",
        "mount a file system",
        'got = libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) == 0',
        "what is covered can be uncovered",
    ),
    Attempt(
        "namespace",
        "make a user namespace",
        "got = libc.unshare(0x10000000) == 0",
        "more of the kernel can be attacked",
        gap="kernel-surface",
    ),
    Attempt(
        "kernel-calls",
        "use bpf, io_uring, keyrings or tracing",
        "got = any(libc.syscall(n, a, b, c) >= 0 or ctypes.get_errno() not in (1, 38) "
        "for n, a, b, c in calls)",
        "more of the kernel can be attacked",
        gap="kernel-surface",
    ),
    Attempt(
        "capabilities",
        "keep a capability",
        'status = dict(l.split(":", 1) for l in open("/proc/self/status") if ":" in l)\n'
        'got = int(status["CapEff"], 16)',
        "root's powers stay",
    ),
    Attempt(
        "kernel-settings",
        "open a kernel setting for writing",
        'os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)',
        "a command run as root owns this machine",
    ),
    Attempt(
        "devices",
        "open a disk or the kernel's log",
        'got = [os.open(p, os.O_RDONLY | os.O_NONBLOCK) for p in ("/dev/kmsg", "/dev/loop0") '
        "if os.access(p, os.R_OK)]",
        "raw devices can be read, hidden paths with them",
    ),
    Attempt(
        "descriptor",
        "use a descriptor that the host left open",
        "os.fstat(left_open)",
        "whatever the host has open can be used",
    ),
    Attempt(
        "environment",
        "find a secret of the host's environment",
        'got = b"INTERLOCK_TRIED=1" in open("/proc/self/environ", "rb").read()',
        "secrets in the environment show",
    ),
    Attempt(
        "many-processes",
        "start more processes than the limit allows",
        "kids = []\n"
        "for _ in range(60):\n"
        "    kids.append(os.fork())\n"
        "    if not kids[-1]: time.sleep(20); os._exit(0)\n"
        "[os.kill(k, 9) for k in kids]",
        "a fork bomb fills the process table until its time is up",
        gap="process-limit",
    ),
    Attempt(
        "stay-behind",
        "leave a process behind",
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        '        os.closerange(0, 3); os.execvp("sleep", ["sleep", tag_seconds])\n'
        "    os._exit(0)\n"
        "os.wait()",
        "what a command started may stay",
        gap="leftover-processes",
        seen=True,
    ),
)

#: Runs all of them, each in a process of its own, and prints the names of those that got through.
SCRIPT = """
import ctypes, json, os, resource, signal, socket, sys, time
facts = json.loads(sys.argv[1])
globals().update(facts["facts"])
libc = ctypes.CDLL(None, use_errno=True)
for name, code in facts["attempts"]:
    pid = os.fork()
    if pid == 0:
        got = True
        try:
            exec(code)
        except BaseException:
            got = False
        os._exit(7 if got else 0)
    _, status = os.waitpid(pid, 0)
    print(name, "through" if status >> 8 == 7 else "refused", flush=True)
print("done", flush=True)
"""
