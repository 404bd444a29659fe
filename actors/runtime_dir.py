"""The directory of a running runtime: its sockets and the answerer's key (X1).

Only the user can enter it. It lies where socket paths stay short (107 bytes are the system's limit)
and never under a root or a workspace: in the user's runtime directory, or in one of our own in the
system's temporary directory, both of which a confined command finds empty (S6).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec

#: The longest socket path that every system takes, in bytes.
SOCKET_PATH_LIMIT = 103


class RuntimeInfo(msgspec.Struct, frozen=True):
    """What is written for people and for ``interlock approvals``: where to connect, no secret."""

    pid: int
    root: str
    started_ms: int
    broker: str
    broker_public: str


class AnswererKey(msgspec.Struct, frozen=True):
    """The one key that is kept in a file (mode 0600): it answers approvals and reads (X4)."""

    public: str
    secret: str


class RuntimeDirectory:
    """One runtime's directory, held by a lock for as long as any of its processes lives."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @property
    def lock_descriptor(self) -> int:
        """Inherited by the actors: while one of them lives, the directory is in use."""
        return self._lock

    @classmethod
    def create(cls) -> RuntimeDirectory:
        """Make a new one, and clear away those whose processes are all gone."""
        base = base_directory()
        _sweep(base)
        path = base / secrets.token_hex(4)
        path.mkdir(mode=0o700)
        lock = os.open(path / "alive", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return cls(path, lock)

    def endpoint(self, name: str) -> str:
        """The ``ipc`` endpoint ``name`` in this directory.

        Raises ``ValueError`` where its path would be too long for a socket.
        """
        path = self.path / name
        if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
            raise ValueError(
                f"the socket path {path} is longer than {SOCKET_PATH_LIMIT} bytes; set "
                "XDG_RUNTIME_DIR or TMPDIR to a shorter directory"
            )
        return f"ipc://{path}"

    def publish(self, info: RuntimeInfo, key: AnswererKey) -> None:
        """Let ``interlock approvals`` find this runtime; again where its broker was replaced."""
        self._replace("answerer.key", msgspec.json.encode(key))
        self._replace("runtime.json", msgspec.json.encode(info))

    def _replace(self, name: str, data: bytes) -> None:
        """Write whole or not at all: somebody may be reading it."""
        new = self.path / f"{name}.new"
        new.unlink(missing_ok=True)
        _write(new, data)
        new.replace(self.path / name)

    def close(self) -> None:
        """Remove the directory; the runtime has ended in order."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    def leave(self) -> None:
        """Let go without removing: processes of this runtime may still live."""
        os.close(self._lock)


def base_directory() -> Path:
    """The directory of all runtimes of this user, made if missing.

    Raises ``PermissionError`` where somebody else could enter it.
    """
    given = os.environ.get("XDG_RUNTIME_DIR")
    if given and os.path.isdir(given) and len(os.fsencode(given)) < SOCKET_PATH_LIMIT - 40:
        base = Path(given) / "interlock"
    else:
        base = Path("/tmp") / f"interlock-{os.getuid()}"  # noqa: S108 - checked below
    with contextlib.suppress(FileExistsError):
        base.mkdir(mode=0o700)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{base} is not a directory of this user; remove it")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise PermissionError(f"{base} can be entered by others (mode {status.st_mode & 0o777:o})")
    return base


def running() -> list[tuple[Path, RuntimeInfo]]:
    """The runtimes of this user whose processes live, oldest first."""
    found = []
    for path in sorted(base_directory().iterdir()):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            info = msgspec.json.decode((path / "runtime.json").read_bytes(), type=RuntimeInfo)
            if not _is_abandoned(path):
                found.append((path, info))
    return sorted(found, key=lambda pair: pair[1].started_ms)


def answerer_key(path: Path) -> AnswererKey:
    """Read the answerer's key of the runtime at ``path``."""
    return msgspec.json.decode((path / "answerer.key").read_bytes(), type=AnswererKey)


def _sweep(base: Path) -> None:
    for path in base.iterdir():
        if _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(path: Path) -> bool:
    """Whether no process holds the directory's lock any more (the lock says it, no process id)."""
    try:
        lock = os.open(path / "alive", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False  # being made, or not ours
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(lock)


def _write(path: Path, data: Any) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
