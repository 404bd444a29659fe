"""What one command may touch, as plain data; the mechanisms that enforce it live elsewhere."""

import os
import stat
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class Mode(StrEnum):
    """How far a command reaches, from the narrowest to the widest (S2)."""

    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    DANGER_FULL_ACCESS = "danger-full-access"


_ORDER = {Mode.READ_ONLY: 0, Mode.WORKSPACE_WRITE: 1, Mode.DANGER_FULL_ACCESS: 2}

#: What a caller may require (S1), and the gaps that break it.
PROPERTIES: dict[str, frozenset[str]] = {
    "files": frozenset({"metadata", "device-ioctl", "launcher-writable"}),
    "network": frozenset({"network"}),
    "processes": frozenset({"process-visibility", "signals", "leftover-processes"}),
    "ipc": frozenset({"unix-sockets", "abstract-sockets", "sysv-ipc"}),
    "hidden": frozenset({"hidden-names", "hidden-parents"}),
    "protected": frozenset({"protected-paths"}),
    "limits": frozenset({"process-limit"}),
}

#: Never a workspace, and nothing inside them either.
_KERNEL_TREES = tuple(Path(p) for p in ("/proc", "/sys", "/dev"))
#: Never a workspace themselves: the sandbox replaces or shares them.
_MASKED = tuple(Path(p) for p in ("/tmp", "/run", "/var/run"))  # noqa: S108 refused, not used
#: Never writable as a whole: a write there is a write to the machine.
_SYSTEM = tuple(
    Path(p)
    for p in (
        *("/bin", "/boot", "/etc", "/home", "/lib", "/lib32", "/lib64", "/opt", "/root"),
        *("/sbin", "/usr", "/usr/bin", "/usr/lib", "/usr/local", "/usr/sbin", "/var", "/var/lib"),
        *("/var/tmp", "/private", "/System", "/Library", "/Users"),  # noqa: S108 refused, not used
    )
)

#: Kept read-only in a writable workspace where they exist: what shells, editors, hooks, continuous
#: integration and agents run by themselves.
PROTECTED = (
    *(".agent", ".interlock", ".husky", ".githooks", ".pre-commit-config.yaml", ".mcp.json"),
    *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile", ".envrc", ".direnv"),
    *(".vscode", ".idea", ".vimrc", ".exrc", ".nvim.lua", ".dir-locals.el"),
    *(".github/workflows", ".gitlab-ci.yml", ".circleci", "Jenkinsfile", ".travis.yml"),
)


class PolicyError(ValueError):
    """The policy asks for something that cannot be meant. Nothing was run."""


def wider(a: Mode, b: Mode) -> bool:
    """Whether mode ``a`` reaches strictly further than mode ``b`` (S4)."""
    return _ORDER[Mode(a)] > _ORDER[Mode(b)]


@dataclass(frozen=True)
class Limits:
    """Brakes on one command. ``None`` leaves a resource alone.

    Those on memory, files and processor time hold for each process (rlimits), those on disk for
    all of the command: by how much free space on the workspace's file system shrinks while it
    runs, whoever takes it, looked at ten times a second.

    Core dumps are always off: they would carry what the command read to the disk.

    cpu_seconds: processor time of each process, seconds.
    memory_bytes: private memory of each process (``RLIMIT_DATA``; ``RLIMIT_AS`` breaks node and
    JVMs). processes: processes and threads of the command; for an ordinary user under Landlock the
    kernel counts them with the others that the user ran at its start.
    file_bytes: the largest file that a process may write, bytes. open_files: descriptors of each
    process. disk_bytes, disk_files: space and number of files taken on the disk; a command that
    takes more is ended.
    """

    cpu_seconds: float | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    open_files: int | None = None
    disk_bytes: int | None = None
    disk_files: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value is not None and value <= 0:
                raise PolicyError(f"limit {name} must be positive, not {value!r}")

    def __bool__(self) -> bool:
        return any(value is not None for value in vars(self).values())

    @property
    def of_processes(self) -> bool:
        """Whether the kernel is to be told of any of these when a process starts."""
        return any(value for name, value in vars(self).items() if not name.startswith("disk_"))


@dataclass(frozen=True)
class Policy:
    """The reach of one command. Paths are resolved by the kernel when the policy is made.

    mode: see `Mode`.
    workspace: the directory the command works on; writable in ``workspace-write``.
    cwd: where the command starts; the workspace unless given.
    writable: more files and directories that are writable in ``workspace-write``. Naming a
        protected path here takes its protection away.
    hidden: files and directories that the command can neither read nor write, also inside the
        workspace (S6). Ones that do not exist are skipped: nothing is created on the host.
    protected: names below each writable directory that stay read-only although the workspace is
        writable, on top of git's own (`PROTECTED`); only what exists can be protected.
    network: whether the host's network is reachable (S9).
    env: what the command gets on top of a short list of harmless variables (X5).
    limits: see `Limits`.
    require: properties that must hold completely, of `PROPERTIES`; else nothing runs (S1).

    Raises `PolicyError` for a workspace that is missing or too wide, for a ``cwd`` that the command
    could not see, for unknown properties and malformed variables.
    """

    mode: Mode
    workspace: Path
    cwd: Path | None = None
    writable: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    protected: tuple[str, ...] = PROTECTED
    network: bool = False
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    require: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        try:
            set_(self, "mode", Mode(self.mode))
        except ValueError:
            raise PolicyError(
                f"unknown sandbox mode {self.mode!r}: use one of {', '.join(Mode)}"
            ) from None
        set_(self, "workspace", _directory(self.workspace, "workspace"))
        set_(self, "writable", tuple(_existing(p, "writable path") for p in self.writable))
        set_(self, "protected", tuple(self.protected))
        _check_names(self.protected)
        set_(self, "hidden", tuple(sorted({_whatever(p) for p in self.hidden})))
        set_(self, "cwd", _directory(self.cwd, "cwd") if self.cwd else self.workspace)
        set_(self, "require", frozenset(self.require))
        if unknown := self.require - PROPERTIES.keys():
            raise PolicyError(
                f"unknown requirement {', '.join(sorted(unknown))}: "
                f"use some of {', '.join(PROPERTIES)}"
            )
        _check_env(self.env)
        if self.mode is not Mode.DANGER_FULL_ACCESS:
            self._check_reach()

    @property
    def roots(self) -> tuple[Path, ...]:
        """Directories that the command may write: none in ``read-only``."""
        if self.mode is Mode.READ_ONLY:
            return ()
        return tuple(dict.fromkeys((self.workspace, *self.writable)))

    @property
    def start(self) -> Path:
        """The directory the command starts in."""
        return self.cwd or self.workspace

    def _check_reach(self) -> None:
        for root in dict.fromkeys((self.workspace, *self.roots)):
            if reason := _too_wide(root, writes=root in self.roots):
                raise PolicyError(f"{root} cannot be a workspace: {reason}")
        for hidden in self.hidden:
            for path in (*self.roots, self.workspace, self.start):
                if inside(path, (hidden,)):
                    raise PolicyError(
                        f"{path} lies in {hidden}, which the policy hides: work somewhere else"
                    )
        masked = (*_KERNEL_TREES, *_MASKED)
        visible = (self.workspace, *self.roots, Path("/proc"), Path("/sys"))
        if (
            inside(self.start, masked)
            and not inside(self.start, visible)
            and not _is_tmp(self.start)
        ):
            raise PolicyError(
                f"cwd {self.start} is not visible in the sandbox: start in {self.workspace}"
            )


def inside(path: Path, roots: Iterable[Path]) -> bool:
    """Whether ``path`` is one of ``roots`` or lies below one; both resolved already."""
    return any(path == root or root in path.parents for root in roots)


def _is_tmp(path: Path) -> bool:
    return path == Path("/tmp")  # noqa: S108 the sandbox has a private one


def _too_wide(root: Path, *, writes: bool) -> str | None:
    """Why ``root`` must not become a workspace, or None."""
    if inside(root, _KERNEL_TREES):
        return "it belongs to the kernel"
    if root in _MASKED:
        return "other programs keep their sockets and files there; use a directory below it"
    if not writes:
        return None
    if root == Path("/"):
        return "everything on this machine would be writable"
    home = _home()
    if home is not None and (root == home or root in home.parents):
        return "your shell, keys and settings live there; use a directory below it"
    if root in _SYSTEM:
        return "it belongs to the system"
    return None


def _home() -> Path | None:
    """The user's home, resolved; None where there is none or it is the root directory."""
    home = os.environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        return None
    resolved = Path(os.path.realpath(home))
    return resolved if resolved != Path("/") else None


def _directory(path: Path, what: str) -> Path:
    """Resolve an existing directory the way the kernel walks it, not by its spelling."""
    resolved = _existing(path, what)
    if not resolved.is_dir():
        raise PolicyError(f"{what} {str(path)!r} cannot be used: Not a directory")
    return resolved


def _existing(path: Path, what: str) -> Path:
    """Resolve a path that exists the way the kernel walks it, not by its spelling."""
    try:
        if sys.platform != "linux":
            return Path(os.path.realpath(path, strict=True))
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            resolved = Path(os.readlink(f"/proc/self/fd/{fd}"))
            if not os.path.samestat(os.fstat(fd), os.stat(resolved)):
                raise FileNotFoundError(2, "it was moved or removed")
        finally:
            os.close(fd)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise PolicyError(f"{what} {str(path)!r} cannot be used: {reason}") from None
    return resolved


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts or "\0" in name:
            raise PolicyError(f"protected name {name!r} must lie below the workspace")


def _whatever(path: Path) -> Path:
    """Resolve a path that may not exist yet."""
    return Path(os.path.realpath(path))


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise PolicyError(f"environment variable {name!r} must be text")
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise PolicyError(f"environment variable {name!r} has a malformed name or value")


#: Handed on from the host's environment (X5); everything else the caller must name.
_INHERITED = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "COLORTERM"}
)


def base_environment(tmpdir: str | None) -> dict[str, str]:
    """The harmless part of this process's environment, with ``TMPDIR`` set to ``tmpdir``."""
    names = [k for k in os.environ if k in _INHERITED or k.startswith("LC_")]
    env = {name: os.environ[name] for name in names}
    env.setdefault("PATH", os.defpath)
    if tmpdir is None:
        tmpdir = os.environ.get("TMPDIR")
    if tmpdir is not None:
        env["TMPDIR"] = tmpdir
    return env


def kind(path: Path) -> str | None:
    """``dir``, ``file`` or None: what a path is right now, links not followed."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return None
    return "dir" if stat.S_ISDIR(mode) else "file"
