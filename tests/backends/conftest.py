"""A disk that can be told to fail, and the shortest way to write the events of a session."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest
from interlock.backends.disk import OsDisk
from interlock.backends.event import Draft, Replace, draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.log import SessionLog

SHARED = Path(__file__).parents[2] / ".." / "shared"


class Killed(BaseException):
    """The process ends here."""


@dataclass
class FaultyDisk(OsDisk):
    """The real disk, with faults: each names an operation and the error of its next calls."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    faults: list[tuple[str, str, OSError]] = field(default_factory=list)
    longest_write: int | None = None
    names: dict[int, str] = field(default_factory=dict)
    last_call: int | None = None
    #: The number of the call that fails once, with EIO.
    bad_call: int | None = None

    def die_at(self, step: int) -> None:
        """Stop for good at the given call, as a killed process does: nothing runs after it."""
        self.last_call = step

    def bury(self) -> None:
        """Close what a dead process had open: the kernel would free its locks."""
        for fd in list(self.names):
            super().close(fd)
        self.names.clear()

    def fail_next(self, operation: str, code: int, name: str = "") -> None:
        """Fail the next call of an operation (on a file whose name starts with ``name``)."""
        self.faults.append((operation, name, OSError(code, os.strerror(code))))

    def _meet(self, operation: str, name: str) -> None:
        if self.last_call is not None and len(self.calls) >= self.last_call:
            raise Killed(operation)
        self.calls.append((operation, name))
        if len(self.calls) == self.bad_call:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._look(operation, name)

    def _look(self, operation: str, name: str) -> None:
        for i, (wanted, start, error) in enumerate(self.faults):
            if wanted == operation and name.startswith(start):
                del self.faults[i]
                raise error

    def open(self, path, flags, mode=0o600):
        self._meet("open", path.name)
        fd = super().open(path, flags, mode)
        self.names[fd] = path.name
        return fd

    def close(self, fd):
        self.names.pop(fd, None)
        super().close(fd)

    def unlink(self, path):
        self._meet("unlink", path.name)
        super().unlink(path)

    def write(self, fd, data):
        if self.longest_write is not None:
            data = data[: self.longest_write]
        try:
            self._meet("write", self.names[fd])
        except (OSError, Killed):
            # A real disk that fills up takes a part first.
            super().write(fd, data[: len(data) // 2])
            raise
        return super().write(fd, data)

    def pwrite(self, fd, data, offset):
        self._meet("pwrite", self.names[fd])
        return super().pwrite(fd, data, offset)

    def reserve(self, fd, offset, length):
        self._look("reserve", self.names[fd])
        super().reserve(fd, offset, length)

    def rmdir(self, path):
        self._meet("rmdir", path.name)
        super().rmdir(path)

    def fsync(self, fd):
        self._meet("fsync", self.names[fd])
        super().fsync(fd)

    def fdatasync(self, fd):
        self._meet("fdatasync", self.names[fd])
        super().fdatasync(fd)

    def stat(self, path):
        self._look("stat", path.name)
        return super().stat(path)

    def fstat(self, fd):
        self._look("fstat", self.names.get(fd, ""))
        return super().fstat(fd)

    def truncate(self, fd, length):
        self._meet("truncate", self.names[fd])
        super().truncate(fd, length)

    def link(self, source, target):
        self._meet("link", target.name)
        super().link(source, target)

    def rename_noreplace(self, source, target):
        self._meet("rename_noreplace", target.name)
        super().rename_noreplace(source, target)

    def mkdir(self, path):
        self._meet("mkdir", path.name)
        super().mkdir(path)

    def sync_directory(self, path):
        self._meet("sync_directory", path.name)
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)

    def count(self) -> Counter[str]:
        return Counter(operation for operation, _ in self.calls)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def killed() -> type[Killed]:
    return Killed


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture(params=["zstd", "none"])
def compression(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def backend(root: Path, compression: str, disk: FaultyDisk) -> Iterator[JsonlBackend]:
    backend = JsonlBackend(root, compression=compression, disk=disk)
    yield backend
    backend.close()


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("../shared is not there")
    return SHARED


def _header(session_id: str = "s", cwd: str | None = "/work", **more) -> Header:
    return Header(id=session_id, created_at=1, cwd=cwd, **more)


def _message(*call_ids: str, turn: int = 1, step: int = 1, text: str = "") -> Draft:
    content = [{"type": "text", "text": text}] if text else []
    content += [
        {"type": "tool-call", "id": call_id, "name": "tool", "arguments": "{}"}
        for call_id in call_ids
    ]
    message = {
        "id": f"m-{turn}-{step}",
        "role": "assistant",
        "content": content,
        "source": {"kind": "model", "provider": "external", "model": "none"},
    }
    data = {"turn": turn, "step": step, "message": message, "stream": []}
    return draft("assistant/message", data, surface_op="append")


def _user(text: str = "hi", **source) -> Draft:
    data = {
        "id": f"u-{text}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": source or {"kind": "user"},
    }
    return draft("user/message", data, surface_op="append")


def _system(text: str, op="append", sources=None, turn: int = 1, step: int = 1) -> Draft:
    message = {
        "id": f"sys-{text}",
        "role": "system",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "plugin", "plugin": "p"},
    }
    data = {"turn": turn, "step": step, "message": message}
    return draft("system/message", data, surface_op=op, sources=sources)


def _call(call_id: str, turn: int = 1, step: int = 1, **more) -> Draft:
    data = {"turn": turn, "step": step, "callId": call_id, "name": "tool", "arguments": "{}"}
    return draft("tool/call", data | more)


def _result(
    call_id: str, call_seq: int, *, turn: int = 1, step: int = 1, op="append", sources=None, **more
) -> Draft:
    message = {
        "id": f"r-{call_id}-{call_seq}",
        "role": "user",
        "source": {"kind": "tool", "callId": call_id},
        "content": [
            {
                "type": "tool-result",
                "toolCallId": call_id,
                "content": [{"type": "text", "text": "done"}],
                "isError": False,
            }
        ],
    }
    data = {"turn": turn, "step": step, "message": message} | more
    return draft("tool/result", data, surface_op=op, sources=sources or (call_seq,))


def _asked(approval_id: str, call_id: str | None = None) -> Draft:
    data = {"id": approval_id, "toolName": "tool"}
    return draft("approval/asked", data | ({"callId": call_id} if call_id else {}))


def _decided(approval_id: str, outcome: str) -> Draft:
    return draft("approval/decided", {"id": approval_id, "outcome": outcome})


def _turn_end(turn: int = 1, kind: str = "completed") -> Draft:
    return draft("turn/end", {"turn": turn, "reason": {"kind": kind}})


@pytest.fixture(scope="session")
def short_names() -> dict[str, Callable[..., object]]:
    """Ways to make a draft, by short names."""
    return {
        "header": _header,
        "writer": lambda: draft("interlock/writer", {"version": "1"}, ignorable=True),
        "turn": lambda turn=1: draft("turn/start", {"turn": turn}),
        "turn_end": _turn_end,
        "step": lambda step=1, turn=1: draft("step/start", {"turn": turn, "step": step}),
        "step_end": lambda step=1, turn=1: draft("step/end", {"turn": turn, "step": step}),
        "message": _message,
        "user": _user,
        "system": _system,
        "call": _call,
        "result": _result,
        "asked": _asked,
        "decided": _decided,
        "replace": Replace,
        "note": lambda text="n": draft("interlock/notice", {"text": text}, ignorable=True),
    }


@pytest.fixture
def say(short_names) -> SimpleNamespace:
    """Drafts by short names."""
    return SimpleNamespace(**short_names)


def _flush(log: SessionLog) -> int:
    batch = log.seal()
    assert batch is not None
    log.acknowledge(log.write(batch))
    return log.durable_seq


@pytest.fixture
def flush() -> Callable[[SessionLog], int]:
    """Write what waits, as the writer actor does, and return the durable seq."""
    return _flush
