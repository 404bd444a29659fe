"""Answers the filter's questions: what is refused here is refused for certain (S5).

The filter asks before calls that change files or reach the network. Each is either let go on, and
then the sandbox proper decides, or refused *by this answer*, with the error that the sandbox proper
would give. So a refusal that is recorded has happened, whatever the command prints, and whatever it
does to the memory that its arguments were read from: a false argument can only hide a refusal. A
refusal is given only where the user could have done the same without the sandbox.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import select

from .kernel import libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernel import Spec

_RECEIVE, _SEND, _SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_SYNC_WAKE_UP = 1
_CONTINUE = 1
_OPENAT2 = 437
_AT_FDCWD = 0xFFFFFF9C
_IN_ROOT = 0x10
_PATH_LIMIT, _PAGE = 4096, 4096
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_TRUNC
_READ_ONLY_MOUNT = 1
_REGULAR, _DIRECTORY, _LINK, _KIND = 0o100000, 0o040000, 0o120000, 0o170000
#: Processes between a command's own and one that it may change.
_GENERATIONS = 1000
#: Links to follow where the last one leads to nothing.
_LINKS = 8
#: Different refusals that are told one by one; the rest is counted.
_TOLD = 32

#: For each call: what it does, and where its directory, its path and its flags are among the
#: arguments (-1: it has none). ``rename`` has a second pair.
SHAPES: dict[str, tuple[str, int, int, int]] = {
    "open": ("open", -1, 0, 1),
    "openat": ("open", 0, 1, 2),
    "openat2": ("open", 0, 1, -2),
    "creat": ("open", -1, 0, -3),
    "mkdir": ("make", -1, 0, -1),
    "mkdirat": ("make", 0, 1, -1),
    "mknod": ("make", -1, 0, -1),
    "mknodat": ("make", 0, 1, -1),
    "symlink": ("make", -1, 1, -1),
    "symlinkat": ("make", 1, 2, -1),
    "link": ("make", -1, 1, -1),
    "linkat": ("make", 2, 3, -1),
    "unlink": ("remove", -1, 0, -1),
    "unlinkat": ("remove", 0, 1, -1),
    "rmdir": ("remove", -1, 0, -1),
    "rename": ("rename", -1, 0, 1),
    "renameat": ("rename", 0, 1, 3),
    "renameat2": ("rename", 0, 1, 3),
    "truncate": ("change", -1, 0, -1),
    "chmod": ("attribute", -1, 0, -1),
    "fchmodat": ("attribute", 0, 1, -1),
    "fchmodat2": ("attribute", 0, 1, -1),
    "chown": ("attribute", -1, 0, -1),
    "lchown": ("attribute", -1, 0, -1),
    "fchownat": ("attribute", 0, 1, -1),
    "utime": ("attribute", -1, 0, -1),
    "utimes": ("attribute", -1, 0, -1),
    "futimesat": ("attribute", 0, 1, -1),
    "utimensat": ("attribute", 0, 1, -1),
    "setxattr": ("attribute", -1, 0, -1),
    "lsetxattr": ("attribute", -1, 0, -1),
    "connect": ("connect", -1, 1, 2),
    "sendto": ("connect", -1, 4, 5),
    "socket": ("socket", -1, -1, -1),
    # The second number: which argument names the process.
    "sched_setaffinity": ("process", 0, -1, -1),
    "sched_setscheduler": ("process", 0, -1, -1),
    "sched_setparam": ("process", 0, -1, -1),
    "sched_setattr": ("process", 0, -1, -1),
    "setpriority": ("process", 1, -1, -1),
    "ioprio_set": ("process", 1, -1, -1),
    "prlimit64": ("process", 0, -1, -1),
}


class Witness:
    """Answers one command's questions. Runs in the supervisor's only thread.

    view: ``calls`` (number to name), ``always`` (names to refuse in every case), ``runner`` (a
        program that builds the sandbox: it goes on), ``writable`` (trees that are open, where no
        mount says so; None where mounts do), ``network``.
    """

    def __init__(self, listener: int, view: Spec, record: Callable[[str], None]) -> None:
        self.listener = listener
        self._view, self._record = view, record
        self._told: set[str] = set()
        self._runner: tuple[int, int] | None = None
        if view["runner"] is not None:
            there = os.stat(view["runner"])
            self._runner = there.st_dev, there.st_ino
        try:
            fcntl.ioctl(listener, _SET_FLAGS, _SYNC_WAKE_UP)
        except OSError:
            pass  # older kernels: answers take a little longer

    def close(self) -> None:
        """Stop answering: whoever still asks is refused."""
        os.close(self.listener)

    def answer(self, event: int) -> bool:
        """Answer one question; False where nobody will ask any more."""
        if not event & select.POLLIN:
            return False
        question = bytearray(80)
        try:
            fcntl.ioctl(self.listener, _RECEIVE, question, True)
        except OSError as error:
            return error.errno == errno.ENOENT  # who asked has been killed meanwhile
        words = memoryview(question)
        asked = int.from_bytes(words[0:8], "little")
        pid = int.from_bytes(words[8:12], "little")
        number = int.from_bytes(words[16:20], "little")
        arguments = list(words[32:80].cast("Q"))
        name = self._view["calls"].get(number, "")
        refusal: tuple[int, str, str] | None = None
        if name in self._view["always"]:
            refusal = (errno.EPERM, name, self._object(pid, name, arguments))
        else:
            try:
                refusal = self._judge(pid, name, arguments)
            except (OSError, ValueError):
                pass  # it went away, or its arguments are nonsense: the kernel's to answer
        code = refusal[0] if refusal else 0
        reply = bytearray(24)
        reply[0:8] = asked.to_bytes(8, "little")
        reply[16:20] = (-code).to_bytes(4, "little", signed=True)
        reply[20:24] = (0 if code else _CONTINUE).to_bytes(4, "little")
        try:
            fcntl.ioctl(self.listener, _SEND, reply)
        except OSError:
            return True  # it was killed before the answer: nothing was refused
        if refusal:
            self._tell(*refusal)
        return True

    def _tell(self, code: int, name: str, what: str) -> None:
        line = f'{{"call": {quoted(name)}, "what": {quoted(what)}, "errno": {code}}}'
        if line not in self._told and len(self._told) < _TOLD:
            self._told.add(line)
            self._record(f'{{"refused": {line}}}')

    def _object(self, pid: int, name: str, arguments: list[int]) -> str:
        """What a call that is refused in every case was about, in words."""
        deed, at, path, _ = SHAPES[name]
        if deed == "socket":
            return "an internet socket"
        try:
            place = Place.of(pid, at, path, arguments, follow=True)
        except (OSError, ValueError):
            return ""
        if place is None:
            return ""
        with place:
            return place.path

    def _judge(self, pid: int, name: str, arguments: list[int]) -> tuple[int, str, str] | None:
        """What to refuse a call with: error number, call and object; None to let it go on."""
        shape = SHAPES.get(name)
        if shape is None or self._is_runner(pid):
            return None
        deed, at, path, extra = shape
        if deed == "process":
            target = arguments[at] & 0x7FFFFFFF
            return None if is_ours(target) else (errno.EPERM, name, f"process {target}")
        if deed == "connect":
            return self._judge_address(pid, name, arguments[path], arguments[extra])
        follow = deed in ("open", "change", "attribute")
        place = Place.of(pid, at, path, arguments, follow=follow)
        if place is None:
            return None
        with place:
            code = self._refuses(deed, place, self._flags(pid, extra, arguments))
            if deed == "rename" and not code and place.kind is not None:
                other = Place.of(pid, at + 2 if at >= 0 else at, extra, arguments, follow=False)
                return None if other is None else self._judge_target(name, place, other)
            return (code, name, place.path) if code else None

    def _judge_target(self, name: str, place: Place, other: Place) -> tuple[int, str, str] | None:
        with other:
            # From one mount to another is for the kernel to refuse, in its own words.
            if self._view["writable"] is None and other.device != place.device:
                return None
            code = self._closed(other)
            return (code, name, other.path) if code else None

    def _is_runner(self, pid: int) -> bool:
        if self._runner is None:
            return False
        there = os.stat(f"/proc/{pid}/exe")
        return (there.st_dev, there.st_ino) == self._runner

    def _flags(self, pid: int, at: int, arguments: list[int]) -> int:
        if at == -2:  # openat2: they lie in memory
            return int.from_bytes(memory(pid, arguments[2], 8), "little")
        return os.O_WRONLY | os.O_CREAT | os.O_TRUNC if at == -3 else arguments[at]

    def _refuses(self, deed: str, place: Place, flags: int) -> int:
        """The error for ``deed``, or 0. What the kernel refuses for another reason goes on."""
        kind = place.kind
        if deed == "open":
            if kind is None:
                wanted = bool(flags & os.O_CREAT)
            elif flags & os.O_CREAT and flags & os.O_EXCL:
                wanted = False  # it exists
            else:
                wanted = bool(flags & _WRITES) and kind != _DIRECTORY
                if self._view["writable"] is None and kind != _REGULAR:
                    wanted = False  # devices and pipes open on a read-only mount too
            return self._closed(place) if wanted else 0
        if deed == "make":
            return self._closed(place) if kind is None else 0
        return self._closed(place) if kind is not None else 0

    def _closed(self, place: Place) -> int:
        """The error that the sandbox gives for a change at ``place``, 0 where it is open.

        Zero too where this user could not have made that change without a sandbox.
        """
        writable = self._view["writable"]
        if writable is None:
            code = errno.EROFS if place.read_only else 0
        else:
            code = errno.EACCES if not _inside(place.path, writable) else 0
        return code if code and place.free_outside() else 0

    def _judge_address(
        self, pid: int, name: str, address: int, length: int
    ) -> tuple[int, str, str] | None:
        if self._view["network"] or not address or length < 8:
            return None
        raw = memory(pid, address, min(length, 28))
        family = int.from_bytes(raw[0:2], "little")
        port = int.from_bytes(raw[2:4], "big")
        if family == 2:
            local, text = raw[4] == 127, ".".join(str(b) for b in raw[4:8])
        elif family == 10 and len(raw) >= 24:
            local, text = raw[8:24] == bytes(15) + b"\1", f"[{raw[8:24].hex(':', 2)}]"
        else:
            return None
        if local and port != 53:
            return None  # its own
        # Nobody in there may listen on port 53: the machine's resolver was meant.
        return errno.ECONNREFUSED if local else errno.ENETUNREACH, name, f"{text}:{port}"


def is_ours(number: int) -> bool:
    """Whether a process or thread was started, however indirectly, by this process."""
    own = os.getpid()
    for _ in range(_GENERATIONS):
        if number == own or number <= 1:
            return False
        with open(f"/proc/{number}/status", "rb") as file:
            lines = [line.split(b":\t", 1) for line in file.read().splitlines()]
        said = {line[0]: line[-1] for line in lines}
        group, number = int(said[b"Tgid"]), int(said[b"PPid"])
        if number == own:
            return group != own
    return False


class Place:
    """Where a call's path leads, as the command sees it. Close it, or use it in a ``with``.

    path: absolute, links resolved. kind: of what is there, None for nothing.
    """

    def __init__(self, parent: int, name: str) -> None:
        self._parent = parent
        directory = os.readlink(f"/proc/self/fd/{parent}")
        self.path = directory if not name else f"{directory.rstrip('/')}/{name}"
        self.read_only = bool(os.fstatvfs(parent).f_flag & _READ_ONLY_MOUNT)
        try:
            there = (
                os.stat(name, dir_fd=parent, follow_symlinks=False) if name else os.fstat(parent)
            )
            self.kind: int | None = there.st_mode & _KIND
        except OSError:
            self.kind = None
        self.device = os.fstat(parent).st_dev

    @classmethod
    def of(
        cls, pid: int, at: int, path: int, arguments: list[int], *, follow: bool
    ) -> Place | None:
        """Resolve the path among ``arguments``; None where it leads nowhere."""
        text = string(pid, arguments[path]) if arguments[path] else ""
        if not text:
            return None
        if not text.startswith("/"):
            directory = arguments[at] & 0xFFFFFFFF if at >= 0 else _AT_FDCWD
            base = "cwd" if directory == _AT_FDCWD else f"fd/{directory}"
            text = f"{os.readlink(f'/proc/{pid}/{base}')}/{text}"
        root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_CLOEXEC)
        try:
            for _ in range(_LINKS):
                found = _open_in(root, text) if follow else None
                if found is not None:
                    return cls(found, "")
                head, _, name = text.rstrip("/").rpartition("/")
                parent = _open_in(root, head or "/") if name not in ("", ".", "..") else None
                if parent is None:
                    return None
                place = cls(parent, name)
                if not follow or place.kind != _LINK:
                    return place
                with place:  # a link to what is not there yet
                    target = os.readlink(name, dir_fd=parent)
                    text = target if target.startswith("/") else f"{head}/{target}"
            return None
        finally:
            os.close(root)

    def free_outside(self) -> bool:
        """Whether this user could change it without a sandbox."""
        target = self.path if os.path.lexists(self.path) else os.path.dirname(self.path)
        return os.access(target, os.W_OK, effective_ids=True)

    def __enter__(self) -> Place:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._parent)


def _open_in(root: int, path: str) -> int | None:
    """Open ``path`` as one whose root directory is ``root`` would find it."""
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT)
    fd: int = libc.syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(root),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.byref(how),
        ctypes.c_size_t(24),
    )
    return fd if fd >= 0 else None


def _inside(path: str, trees: list[str]) -> bool:
    return any(path == tree or path.startswith(tree.rstrip("/") + "/") for tree in trees)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def memory(pid: int, address: int, length: int) -> bytes:
    """Read another process's memory; shorter where it ends. Raises OSError."""
    buffer = ctypes.create_string_buffer(length)
    ours = _Vector(ctypes.addressof(buffer), length)
    theirs = _Vector(address, length)
    got = libc.process_vm_readv(
        ctypes.c_int(pid),
        ctypes.byref(ours),
        ctypes.c_ulong(1),
        ctypes.byref(theirs),
        ctypes.c_ulong(1),
        ctypes.c_ulong(0),
    )
    if got < 0:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    return buffer.raw[:got]


def string(pid: int, address: int) -> str:
    """Read a path from another process's memory, a page at a time."""
    text = b""
    while len(text) < _PATH_LIMIT:
        piece = memory(pid, address + len(text), _PAGE - (address + len(text)) % _PAGE)
        text += piece
        if not piece or b"\0" in piece:
            break
    return os.fsdecode(text.partition(b"\0")[0])


def quoted(text: str) -> str:
    """``text`` as a JSON string; written by hand, since importing json would double the start."""
    plain = []
    for c in text[:1024]:
        if c in '"\\':
            plain.append("\\" + c)
        elif c.isprintable() and not 0xD800 <= ord(c) <= 0xDFFF:
            plain.append(c)
        else:
            plain.append("?")
    return '"' + "".join(plain) + '"'
