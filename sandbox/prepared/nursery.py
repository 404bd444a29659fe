"""The guardian and the nursery: supervisors made ready beforehand, and an end for all of them.

1. The host starts the *guardian*. It adopts orphans (subreaper) and starts the nursery.
2. The *nursery* keeps a few pairs of a supervisor and its child ready, waiting, everything
   imported. For each it sends the host two sockets (one to the supervisor, one to the child) and a
   descriptor of the supervisor. The host asks for more with a message of one byte each.
3. The host sends the child its streams and a description, the supervisor the same: the child
   becomes the command without a process having to be made.
4. When the nursery ends, however it does, its supervisors are told by the kernel and end what they
   have. What falls to the guardian, because a supervisor was killed, is killed at once; once the
   nursery is gone the guardian kills everything below itself and ends (F5, S7).
5. When the host ends, the guardian and the nursery see it and end the same way.
"""

from __future__ import annotations

import _socket
import fcntl
import marshal
import os
import select
import signal
import time

from . import tree
from .confining import limit_tasks, rehearse
from .kernel import (
    PR_SET_CHILD_SUBREAPER,
    PR_SET_PDEATHSIG,
    pair,
    prctl,
    receive,
    send,
)
from .supervisor import SETUP_FAILED, Supervisor, command, no_handler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .kernel import Spec

#: Seconds that supervisors may take to end what they have once their nursery is gone.
ORDERLY = 3.0


def guard(control: int, host: int, groups: str | None) -> int:
    """Be the guardian of a nursery until that or the host has ended; returns an exit status.

    groups: where control groups can be made, or None.
    """
    wake, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR2):
        signal.signal(number, no_handler)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the host decides, by ending or by closing
    prctl("subreaper", PR_SET_CHILD_SUBREAPER, 1)
    prctl("pdeathsig", PR_SET_PDEATHSIG, signal.SIGUSR2)
    me = os.getpid()
    if groups is not None:
        groups = f"{groups}/interlock-{me}"
        os.mkdir(groups)
    nursery = os.fork()
    if nursery == 0:
        signal.set_wakeup_fd(-1)
        os._exit(tend(_socket.socket(fileno=control), me, groups))
    os.close(control)
    while os.getppid() == host:
        adopted = [pid for pid in tree.children_of(me) if pid != nursery]
        if adopted:
            tree.end_all(spare=nursery)
        left, ended = tree.reap(nursery)
        if ended is not None or not left:
            break
        if not adopted:
            select.select([wake], [], [])
            os.read(wake, 512)
    try:
        os.kill(nursery, signal.SIGKILL)
    except ProcessLookupError:
        pass
    # S7: the supervisors have been told and end what they have; then whatever has fallen to us.
    limit = time.monotonic() + ORDERLY
    while tree.reap()[0] and time.monotonic() < limit:
        if select.select([wake], [], [], limit - time.monotonic())[0]:
            os.read(wake, 512)
    tree.end_all()
    if groups is not None:
        tree.remove_groups(groups)
    return 0


def tend(control: _socket.socket, guardian: int, groups: str | None) -> int:
    """Be the nursery: make pairs as they are asked for, until the host has closed its end."""
    prctl("pdeathsig", PR_SET_PDEATHSIG, signal.SIGKILL)
    wake, end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    import gc
    import resource  # noqa: F401 here once, so that no child has to

    gc.disable()  # a collection would touch, and so copy, every page in each new process

    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake, select.POLLIN)
    while os.getppid() == guardian:
        for fd, _ in poller.poll():
            if fd == wake:
                os.read(wake, 512)
                _bury(guardian)
                continue
            asked, _ = receive(control)
            if not asked:
                return 0
            for _ in asked:
                _make(control, (wake, end), groups)
    return 0


def _make(control: _socket.socket, signals: tuple[int, int], groups: str | None) -> None:
    """Fork a supervisor and tell the host how to reach it and its child."""
    to_supervisor, supervisor_end = pair()
    to_child, child_end = pair()
    me = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            for mine in (control, to_supervisor, to_child):
                mine.close()
            signal.set_wakeup_fd(-1)
            for fd in signals:
                os.close(fd)
            group = f"{groups}/{os.getpid()}" if groups is not None else None
            _wait_supervising(me, supervisor_end, child_end, group)
        finally:
            os._exit(SETUP_FAILED)
    supervisor_end.close()
    child_end.close()
    ended = os.pidfd_open(pid)
    try:
        send(control, str(pid).encode(), [to_supervisor.fileno(), to_child.fileno(), ended])
    except OSError:
        pass  # the host is gone; so is the pair, once these are closed
    finally:
        os.close(ended)
        to_supervisor.close()
        to_child.close()


def _bury(guardian: int) -> None:
    """Collect supervisors that have ended. One that was killed has left orphans behind."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSIGNALED(status):
            # Nobody is told of a child that falls to it: the guardian has to be.
            os.kill(guardian, signal.SIGUSR2)


def _wait_supervising(
    nursery: int, mine: _socket.socket, childs: _socket.socket, group: str | None
) -> None:
    """Be a supervisor in waiting, then one at work. Does not return.

    group: the control group to make for the child, which enters it now: that can take long.
    """
    supervisor = Supervisor(nursery)
    if group is not None:
        os.mkdir(group)
        supervisor.group = group

    def child(parent: int, told: _socket.socket) -> None:
        mine.close()
        _wait_becoming(parent, childs, told, group)

    if not supervisor.start(child):
        os._exit(SETUP_FAILED)
    childs.close()
    poller = select.poll()
    poller.register(mine, select.POLLIN)
    poller.register(supervisor.wake, select.POLLIN)
    supervisor.rehearse()
    rehearse_talk()
    while not supervisor.orphaned():
        for fd, _ in poller.poll():
            if fd == supervisor.wake:
                os.read(fd, 512)
                continue
            _, fds = receive(mine)
            if len(fds) != 2:  # the host is gone, or has no use for us
                supervisor.give_up()
            spec = described(fds[0])
            os._exit(supervisor.run(spec, status=fds[1], alive=mine.fileno()))
    supervisor.give_up()


def _wait_becoming(
    parent: int, mine: _socket.socket, told: _socket.socket, group: str | None
) -> None:
    """Be a child in waiting, then start the command. Does not return."""
    signal.set_wakeup_fd(-1)
    prctl("pdeathsig", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(SETUP_FAILED)
    if group is not None:
        limit_tasks(group, None)
    rehearse()
    rehearse_talk()
    _, fds = receive(mine)
    if len(fds) < 4:
        os._exit(0)
    spec = described(fds[0])
    spec["group"] = group
    os.umask(spec["umask"])
    told = place(fds[1:], [0, 1, 2, *spec["keep"]], told)
    command(spec, parent, told)


def rehearse_talk() -> None:
    """Send ourselves a description, as the host will."""
    one, other = pair()
    fd = os.memfd_create("interlock-rehearsal", os.MFD_CLOEXEC)
    os.write(fd, marshal.dumps({"argv": [b"x"], "limits": [(1, 2, 3)], "spare": None}, 2))
    send(one, b"become", [fd])
    _, fds = receive(other)
    described(fds[0])
    for each in (fd, *fds):
        os.close(each)
    one.close()
    other.close()


def place(given: list[int], wanted: list[int], told: _socket.socket) -> _socket.socket:
    """Move descriptors to the numbers that the command's arguments call them by.

    Returns ``told`` at a number that is not in the way.
    """
    above = max(wanted) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in given]
    again = _socket.socket(fileno=fcntl.fcntl(told.fileno(), fcntl.F_DUPFD_CLOEXEC, above))
    for fd, number in zip(moved, wanted, strict=True):
        os.dup2(fd, number)
    return again


def described(fd: int) -> Spec:
    """Read a description from a file that more than one process reads."""
    content = os.pread(fd, os.fstat(fd).st_size, 0)
    # The bytes come from the host, by a descriptor that nobody else holds.
    spec: Spec = marshal.loads(content)  # noqa: S302 our own parent wrote them
    return spec
