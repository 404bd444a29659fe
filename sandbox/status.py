"""What the mechanism says about the command, on a channel that the command cannot write (S5)."""

import errno
import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """One thing that the sandbox refused, known from the answer that it gave.

    call: the system call. what: the path or address. error: the errno that the command got.
    """

    call: str
    what: str
    error: int

    def __str__(self) -> str:
        deed = next((words for words, calls in _DEEDS.items() if self.call in calls), self.call)
        name = errno.errorcode.get(self.error, str(self.error))
        return f"{deed} {self.what} ({name})"


_DEEDS = {
    "writing": {"open", "openat", "openat2", "creat", "truncate"},
    "creating": {"mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat", "link", "linkat"},
    "removing": {"unlink", "unlinkat", "rmdir"},
    "moving": {"rename", "renameat", "renameat2"},
    "reaching": {"connect", "sendto"},
    "using": {"socket"},
    "changing the owner of": {"chown", "lchown", "fchownat"},
    "changing the mode of": {"chmod", "fchmodat", "fchmodat2"},
    "changing the times of": {"utime", "utimes", "utimensat", "futimesat"},
    "changing attributes of": {"setxattr", "lsetxattr"},
}


@dataclass(frozen=True)
class Status:
    """What was recorded so far.

    child: process id of the sandbox's first process as the host counts, once there is one.
    exit_code: the command's exit status; 128 + N where signal N ended it.
    signal: that signal where the mechanism tells it apart, 0 where it knows there was none.
    exec_error: errno of a command that could not be started in a sandbox that was up.
    failed: why the sandbox could not be put up.
    left: left-over processes that could not be ended.
    started: whether the sandbox, or the runner that builds it, was started.
    runner: the exit status of a runner that keeps records of its own, negative for a signal.
    over: whether nothing of it is left.
    refused: what the sandbox refused, in the order in which it did.
    """

    child: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    exec_error: int | None = None
    failed: str | None = None
    left: int = 0
    started: bool = False
    runner: int | None = None
    over: bool = False
    refused: tuple["Refusal", ...] = ()

    @property
    def ran(self) -> bool:
        """Whether the command itself ran to an end."""
        return self.exit_code is not None


def read_status(raw: bytes) -> Status:
    """Read JSON records, one after the other; a torn last one is left out."""
    merged: dict[str, object] = {}
    refused: list[Refusal] = []
    text = raw.decode(errors="replace").lstrip()
    decoder = json.JSONDecoder()
    while text:
        try:
            record, end = decoder.raw_decode(text)
        except ValueError:
            break
        if isinstance(record, dict):
            merged |= record
            refused += _refusals(record.get("refused"))
        text = text[end:].lstrip()
    failed = merged.get("failed")
    return Status(
        child=_number(merged.get("child-pid")),
        exit_code=_number(merged.get("exit-code")),
        signal=_number(merged.get("signal")),
        exec_error=_number(merged.get("exec-error")),
        failed=failed if isinstance(failed, str) else None,
        left=_number(merged.get("left")) or 0,
        started=merged.get("started") is True,
        runner=_number(merged.get("runner")),
        over=merged.get("over") is True,
        refused=tuple(refused),
    )


def _refusals(record: object) -> list[Refusal]:
    if not isinstance(record, dict):
        return []
    call, what, number = record.get("call"), record.get("what"), _number(record.get("errno"))
    if not isinstance(call, str) or not isinstance(what, str) or number is None:
        return []
    return [Refusal(call, what, number)]


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
