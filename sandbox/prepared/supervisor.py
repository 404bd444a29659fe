"""Supervises one command: starts it, ends it when told or when the host is gone, leaves nothing.

Two processes. The *supervisor* adopts orphans (subreaper), waits, ends whatever is left and writes
the status records; it is not confined, and the command cannot reach it. Its child confines itself,
starts the command, which so is confined too, and leaves it to the supervisor; or it becomes the
runner that builds the sandbox.

Status records, one JSON object a line: ``{"child-pid": N}`` when the child exists,
``{"started": true}`` when it has started the command, ``{"refused": …}`` for what was refused, then
one of ``{"exit-code": N, "signal": S}``, ``{"exec-error": ERRNO}``, ``{"failed": "why"}``, and at
last ``{"over": true}``: nothing is left of it. Of a runner that writes records of its own the
supervisor tells ``{"runner": STATUS}`` instead of an exit code.
"""

from __future__ import annotations

import _socket
import os
import select
import signal

from . import tree
from .confining import allow_descriptors, confine, execute, spawn
from .kernel import (
    LINUX,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_PDEATHSIG,
    SetupError,
    close_on_exec,
    pair,
    prctl,
    receive,
    send,
)
from .witness import Witness, quoted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .kernel import Spec

SETUP_FAILED, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
#: Entries of the private temporary directory to delete before the end is told; then the rest.
_DELETE_AT_ONCE = 20_000
_ASK, _FORWARDED = b"ask", (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def no_handler(*_: object) -> None:
    """A signal only wakes the loop that waits for it."""


def command(spec: Spec, parent: int, told: _socket.socket) -> None:
    """The child: confine, start the command, leave. Reports by ``told`` what did not work."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        close_on_exec()
        for fd in spec["keep"]:
            os.set_inheritable(fd, True)
        listener = confine(spec)
        if listener is not None:
            send(told, b"witness", [listener])
            os.close(listener)
        if LINUX:
            prctl("pdeathsig", PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                raise SetupError("the supervisor is gone")  # noqa: TRY301 reported below
            # S5: the command runs beside us for a moment, and must not reach what we hold.
            prctl("dumpable", PR_SET_DUMPABLE, 0)
        send(told, b"ready")
        allow_descriptors(spec["limits"])
    except (SetupError, OSError, ValueError) as error:
        send(told, b"failed " + str(error).encode()[:3000])
        os._exit(SETUP_FAILED)
    try:
        if spec["runner"]:
            execute(spec["argv"], spec["env"])  # it ends with its parent, which must not be us
        send(told, b"pid %d" % spawn(spec["argv"], spec["env"]))
        os._exit(0)
    except OSError as error:
        send(told, b"exec %d" % (error.errno or 0))
    except ValueError as error:
        send(told, b"failed " + str(error).encode()[:3000])
    os._exit(SETUP_FAILED)


class Supervisor:
    """Waits for one command; ends it when the host is gone; leaves nothing behind (S7).

    parent: the process whose end ends everything. Runs in the only thread of its process.
    """

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.wake, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if LINUX else _nonblocking_pipe()
        signal.set_wakeup_fd(end, warn_on_full_buffer=False)
        for number in (*_FORWARDED, signal.SIGCHLD, signal.SIGUSR2):
            signal.signal(number, no_handler)
        if LINUX:
            prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)
            # The descriptor `alive` tells us of the host's end; this is for hosts that forked and
            # so left a copy of it behind. It follows a thread: hence the look at getppid below.
            prctl("pdeathsig", PR_SET_PDEATHSIG, signal.SIGUSR2)
        self.child = self.command = 0
        #: Statuses of children that ended before it was known which of them is the command: it may
        #: be quicker than we are.
        self.early: dict[int, int] = {}
        self.ended: int | None = None
        self.outcome: _socket.socket | None = None
        self.status = self.alive = -1
        self.witness: Witness | None = None
        #: The control group that was made for the child, to be removed after it.
        self.group: str | None = None

    def start(self, child: Callable[[int, _socket.socket], None]) -> bool:
        """Fork; ``child`` runs in the child and does not return. False where the host is gone."""
        self.outcome, told = pair()
        me = os.getpid()
        if self.orphaned():
            return False
        self.child = os.fork()
        if self.child == 0:
            os.setsid()
            child(me, told)
            os._exit(SETUP_FAILED)
        told.close()
        return True

    def orphaned(self) -> bool:
        """Whether the process that everything here is for has ended."""
        return os.getppid() != self.parent

    def run(self, spec: Spec, status: int, alive: int) -> int:
        """See the command to its end and report it; returns the exit status to end with."""
        self.status, self.alive = status, alive
        if not spec["runner"]:
            self.record(f'{{"child-pid": {self.child}}}')
        problem = self.hear(spec)
        if not problem:
            if not spec["runner"]:  # that one writes its first record in pieces: keep out of it
                self.record('{"started": true}')
            self.wait()
        if self.witness is not None:
            self.witness.close()
        left = 0
        if self.reap():  # S7: orphans fall to us, so where no child is left nothing is
            left, ended = tree.end_all(self.command, group=self.child)
            self.ended = ended if ended is not None else self.ended
        removal = tree.Removal(spec["scratch"]) if spec["scratch"] else None
        removed = removal is None or removal.go_on(_DELETE_AT_ONCE)
        code, record = self.report(spec, problem, left)
        self.record(record + '\n{"over": true}')
        if removal is not None and not removed:
            while not removal.go_on(_DELETE_AT_ONCE):
                continue
        self.remove_group()
        return code

    def give_up(self) -> None:
        """End without a command: there will be none. Does not return."""
        tree.end_all(group=self.child)
        self.remove_group()
        os._exit(0)

    def remove_group(self) -> None:
        """Delete the child's control group, once nothing is in it."""
        if self.group is not None:
            tree.remove_groups(self.group)

    def rehearse(self) -> None:
        """Do ahead of time what takes long the first time in a new process, and changes nothing."""
        self.status = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.poll(0)
        self.reap()
        spec: Spec = {"runner": False}
        self.record(self.report(spec, "", 0)[1] + self.report(spec, "failed x", 0)[1])
        self.forward(b"")
        os.close(self.status)

    def hear(self, spec: Spec) -> str:
        """Wait until the child has become the command: empty, or why it could not."""
        assert self.outcome is not None  # noqa: S101 set when the child was started
        ready = False
        while True:
            message, fds = receive(self.outcome)
            word, _, detail = message.decode(errors="replace").partition(" ")
            if word == "witness" and fds:
                self.witness = Witness(fds[0], spec["witness"], self.record)
            elif word == "ready":
                ready = True
            else:
                self.outcome.close()
                if word == "pid" or (spec["runner"] and ready and not word):
                    self.command = int(detail or self.child)
                    self.ended = self.early.get(self.command)
                    return ""
                gone = "lost" if ready else "failed its process died before it was confined"
                return message.decode(errors="replace") or gone

    def wait(self) -> None:
        """Return when the command has ended, when it is to end, or when the host is gone."""
        poller = select.poll()
        poller.register(self.wake, select.POLLIN)
        poller.register(self.alive, select.POLLIN | select.POLLHUP)
        if self.witness is not None:
            poller.register(self.witness.listener, select.POLLIN)
        while self.reap() and self.ended is None:
            for fd, event in poller.poll():
                if fd == self.wake:
                    self.forward(os.read(self.wake, 512))
                    if self.orphaned():
                        return
                elif fd == self.alive:
                    if event & select.POLLIN and os.read(self.alive, 64) == _ASK:
                        self.ask(signal.SIGTERM)
                        continue
                    return
                elif self.witness is not None and not self.witness.answer(event):
                    poller.unregister(fd)

    def forward(self, signals: bytes) -> None:
        """Hand polite signals on to the command."""
        for number in set(signals) & set(_FORWARDED):
            self.ask(number)

    def ask(self, number: int) -> None:
        """Signal the command's process group."""
        try:
            os.killpg(self.child, number)
        except OSError:
            return

    def reap(self) -> bool:
        """Collect whatever has ended; False once there is no child left at all."""
        left, status = tree.reap(self.command, None if self.command else self.early)
        if status is not None:
            self.ended = status
        return left

    def record(self, line: str) -> None:
        """Write one status record."""
        try:
            os.write(self.status, line.encode() + b"\n")
        except OSError:
            return

    def report(self, spec: Spec, problem: str, left: int) -> tuple[int, str]:
        """The exit status to end with, and the record that says how the command ended."""
        leftover = f', "left": {left}' if left else ""
        word, _, detail = problem.partition(" ")
        if word == "exec":
            code = NOT_FOUND if int(detail) in (2, 20) else NOT_EXECUTABLE
            return code, f'{{"exec-error": {int(detail)}}}'
        if word == "lost":  # it was started, and its starter was killed before it could say so
            return SETUP_FAILED, '{"started": true}'
        if word == "failed":
            return SETUP_FAILED, f'{{"failed": {quoted(detail)}}}'
        status = self.ended if self.ended is not None else signal.SIGKILL
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        code = 128 + number if number else os.WEXITSTATUS(status)
        if spec["runner"]:
            return code, f'{{"runner": {-number or code}{leftover}}}'
        return code, f'{{"exit-code": {code}, "signal": {number}{leftover}}}'


def _nonblocking_pipe() -> tuple[int, int]:
    ends = os.pipe()
    for fd in ends:
        os.set_blocking(fd, False)
    return ends
