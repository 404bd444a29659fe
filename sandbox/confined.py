"""What `confine` hands out: the argv to run instead, and how completely it holds."""

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from . import cgroup, launcher
from .launcher import Errand
from .policy import Policy

Backend = Literal["bwrap", "landlock", "seatbelt", "none"]
Enforcement = Literal["full", "partial", "none"]


@dataclass
class Confined:
    """A command made ready to run under a policy, once. Close it, or use it as a context manager.

    argv, env, cwd, pass_fds: what to give to ``subprocess.Popen``, with a new session, from a
        thread that lives as long as the command (S8: parent-death signals follow a thread). `run`
        starts the same from a process that was prepared before, which is quicker.
    backend: which mechanism holds it.
    enforcement: ``full``: the files, network, processes and IPC of the mode are held completely,
        as far as ``gaps`` does not say otherwise; ``partial``: see ``gaps``; ``none``: no sandbox.
    gaps: what is not held, by name (`interlock.sandbox.GAPS` says what each means).
    errand: what the launcher is to do for it, or None where it is no sandbox.
    status: where the mechanism writes its status records; the command has no access to it (S5).
    alive: a descriptor whose closing ends the command and all it started, or None.
    gate: a descriptor that must be written to before the command starts, or None; it exists where
        limits have to be set from outside first.
    limits: (resource, soft, hard) triples to be set before the gate opens.
    scratch, group: a private temporary directory and a control group to remove afterwards.
    """

    env: dict[str, str]
    cwd: str
    backend: Backend
    enforcement: Enforcement
    gaps: frozenset[str]
    policy: Policy
    command: tuple[str, ...]
    errand: Errand | None = None
    status: int | None = None
    status_end: int = -1
    alive: int | None = None
    gate: int | None = None
    limits: tuple[tuple[int, int, int], ...] = ()
    scratch: str | None = None
    group: str | None = None
    _started_by: tuple[list[str], tuple[int, ...]] | None = None
    _fds: list[int] = field(default_factory=list, repr=False)

    @property
    def argv(self) -> list[str]:
        """What to run in a process of its own."""
        return self._standalone()[0]

    @property
    def pass_fds(self) -> tuple[int, ...]:
        """The descriptors that ``argv`` needs."""
        return self._standalone()[1]

    def _standalone(self) -> tuple[list[str], tuple[int, ...]]:
        if self._started_by is None:
            self._started_by = self._made()
        return self._started_by

    def _made(self) -> tuple[list[str], tuple[int, ...]]:
        errand = self.errand
        if errand is None:
            return list(self.command), ()
        # Nobody would answer the filter's questions, or not before the command is there.
        alone = replace(errand, witness=None)
        if errand.tasks is not None and self.group is None:
            self.group = cgroup.make()
        if errand.runner:
            argv, fds = list(errand.argv), tuple(errand.keep)
            if errand.landlock is not None or self.group is not None:
                argv, new = launcher.start(
                    alone, status=-1, alive=-1, group=self.group, supervise=False
                )
                self.own(*new)
                fds += new
            return argv, fds
        alive_end, self.alive = os.pipe()
        argv, new = launcher.start(alone, status=self.status_end, alive=alive_end, group=self.group)
        self.own(*new, alive_end, self.alive)
        return argv, (*new, self.status_end, alive_end, *errand.keep)

    def release(self) -> None:
        """Close the child's ends here, once it has been started and holds its own."""
        keep = self.errand.keep if self.errand is not None else ()
        started = self._started_by[1] if self._started_by is not None else ()
        for fd in (*started, *keep, self.status_end):
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
        if self.group is not None:
            cgroup.remove(self.group)
            self.group = None

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
