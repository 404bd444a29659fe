"""What `confine` hands out: the argv to run instead, and how completely it holds."""

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from .policy import Policy

Backend = Literal["bwrap", "landlock", "seatbelt", "none"]
Enforcement = Literal["full", "partial", "none"]


@dataclass
class Confined:
    """A command made ready to run under a policy, once. Close it, or use it as a context manager.

    argv, env, cwd, pass_fds: what to give to ``subprocess.Popen``, with a new session, from a
        thread that lives as long as the command (S8: parent-death signals follow a thread).
    backend: which mechanism holds it.
    enforcement: ``full``: the files, network, processes and IPC of the mode are held completely,
        as far as ``gaps`` does not say otherwise; ``partial``: see ``gaps``; ``none``: no sandbox.
    gaps: what is not held, by name (`interlock.sandbox.GAPS` says what each means).
    status: where the mechanism writes its status records; the command has no access to it (S5).
    alive: a descriptor whose closing ends the command and all it started, or None.
    gate: a descriptor that must be written to before the command starts, or None; it exists where
        limits have to be set from outside first.
    limits: (resource, soft, hard) triples to be set before the gate opens.
    scratch: a private temporary directory to remove afterwards.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    pass_fds: tuple[int, ...]
    backend: Backend
    enforcement: Enforcement
    gaps: frozenset[str]
    policy: Policy
    command: tuple[str, ...]
    status: int | None = None
    alive: int | None = None
    gate: int | None = None
    limits: tuple[tuple[int, int, int], ...] = ()
    scratch: str | None = None
    _fds: list[int] = field(default_factory=list, repr=False)

    def release(self) -> None:
        """Close the child's ends here, once it has been started and holds its own."""
        for fd in self.pass_fds:
            self._close(fd)

    def let_go(self) -> None:
        """End the command and everything it started, where the mechanism listens for that."""
        if self.alive is not None:
            self._close(self.alive)
            self.alive = None

    def open_gate(self) -> None:
        """Let the command start, now that its limits are in place."""
        if self.gate is not None:
            with contextlib.suppress(OSError):
                os.write(self.gate, b"\n")
            self._close(self.gate)
            self.gate = None

    def close(self) -> None:
        """Give back every descriptor and the scratch directory. Safe to call twice."""
        while self._fds:
            with contextlib.suppress(OSError):
                os.close(self._fds.pop())
        self.status = self.alive = self.gate = None
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
            self.scratch = None

    def own(self, *fds: int) -> None:
        """Take over descriptors that `close` gives back."""
        self._fds += fds

    def _close(self, fd: int) -> None:
        if fd in self._fds:
            self._fds.remove(fd)
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()


def sealed(name: str, content: bytes) -> int:
    """An anonymous file with ``content``, read from its start. The caller closes the descriptor."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        reader, writer = os.pipe()
        if len(content) > _PIPE_HOLDS:
            os.close(reader)
            os.close(writer)
            raise OSError(27, f"{name} is too long for a pipe here")
        os.write(writer, content)
        os.close(writer)
        return reader
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


#: What a pipe takes without a reader everywhere (macOS grants 16 KiB to start with).
_PIPE_HOLDS = 16_384


def trusted(program: str, policy: Policy, search: Mapping[str, str] | None = None) -> str | None:
    """An absolute path of ``program`` that no confined command could have planted, or None.

    Directories of PATH that are relative or writable under the policy are passed over.
    """
    path = (search or os.environ).get("PATH", os.defpath)
    for directory in [*path.split(os.pathsep), "/usr/bin", "/bin", "/usr/local/bin"]:
        candidate = Path(directory) / program
        if not candidate.is_absolute() or not os.access(candidate, os.X_OK):
            continue
        real = Path(os.path.realpath(candidate))
        places = {*real.parents, *candidate.parents}
        if real.is_file() and not places & {policy.workspace, *policy.writable}:
            return str(candidate)
    return None
