"""``interlock doctor``: what this machine offers, and what to do about what it lacks."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, Root, root_of

if TYPE_CHECKING:
    from interlock.sandbox import BackendReport
    from interlock.sandbox.examine import Examination
    from rich.console import Console

    from .disk_report import DiskReport

#: One lock descriptor a session open for writing, and some room besides.
FEW_FILES = 4096


@dataclass
class Findings:
    """Everything that was looked at."""

    sandbox: list[BackendReport]
    attempts: list[Examination]
    disk: DiskReport
    limits: dict[str, int | None]
    versions: dict[str, str]
    runtime_directory: dict[str, Any]
    runtimes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def best(self) -> BackendReport | None:
        """The sandbox backend that commands get, if any."""
        return next((report for report in self.sandbox if report.usable), None)

    @property
    def healthy(self) -> bool:
        """Whether something can confine and the root can be written."""
        return self.best is not None and self.disk.problem is None


Anew = Annotated[bool, typer.Option("--anew", help="Try the sandboxes again, also if known.")]


def doctor(root: Root = None, anew: Anew = False, as_json: Json = False) -> int:
    """Say what this machine offers and lacks.

    Looks at the sandboxes, the disk under the root, limits and running runtimes. Each sandbox
    backend is tried for real with a set of attacks, once for each start of the machine; whether it
    confines fully follows from what it refused. The sync latency is the median of appending 4 KiB
    and making it durable: what every tool call waits for at least. Ends with what to do.

    \b
    Exit status: 0 if commands can be confined and the root can be written, else 1.
    \b
    Examples:
      interlock doctor
      interlock doctor --root /srv/agents --json
    """
    from .output import console, emit

    findings = _look(root, anew=anew)
    advice = advise(findings)
    if as_json:
        emit(_document(findings, advice))
    else:
        _tell(console(), findings, advice)
    return 0 if findings.healthy else 1


def advise(findings: Findings) -> list[str]:
    """Return what to do, the most pressing first."""
    from interlock.sandbox.probe import CHOICE

    from .disk_report import warnings

    advice = []
    if chosen := os.environ.get(CHOICE):
        advice.append(f"only these sandbox backends are tried: {chosen} ({CHOICE} is set)")
    best = findings.best
    if best is None:
        reasons = "; ".join(f"{r.backend}: {r.reason}" for r in findings.sandbox) or "none here"
        advice.append(f"nothing can confine a command, so none will run ({reasons})")
    elif best.enforcement != "full":
        gaps = ", ".join(best.gaps) or "none named"
        better = next((r for r in findings.sandbox if not r.usable), None)
        how = f"; {better.backend} is not usable: {better.reason}" if better else ""
        advice.append(f"commands are confined by {best.backend} with gaps ({gaps}){how}")
    advice += warnings(findings.disk)
    files = findings.limits.get("open_files_hard")
    if files is not None and files < FEW_FILES:
        advice.append(
            f"a process may open {files} files at most, one for each session open for writing; "
            f"raise it (ulimit -Hn {FEW_FILES * 4}) to host many sessions"
        )
    problem = findings.runtime_directory.get("problem")
    if problem:
        advice.append(f"runtimes cannot start: {problem}")
    return advice


def _look(root: Root, *, anew: bool) -> Findings:
    from .disk_report import examine
    from .sandbox_report import examined

    directory, runtimes = _runtimes()
    reports, attempts = examined(anew=anew)
    return Findings(
        sandbox=reports,
        attempts=attempts,
        disk=examine(root_of(root)),
        limits=_limits(),
        versions=_versions(),
        runtime_directory=directory,
        runtimes=runtimes,
    )


def _limits() -> dict[str, int | None]:
    try:
        import resource
    except ImportError:
        return {}

    def value(number: int) -> int | None:
        return None if number == resource.RLIM_INFINITY else number

    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)
    return {
        "open_files_soft": value(files[0]),
        "open_files_hard": value(files[1]),
        "processes_soft": value(processes[0]),
        "processes_hard": value(processes[1]),
    }


def _versions() -> dict[str, str]:
    import platform

    import zmq

    return {
        "python": platform.python_version(),
        "pyzmq": zmq.__version__,
        "libzmq": zmq.zmq_version(),
        "kernel": f"{platform.system()} {platform.release()}",
    }


def _runtimes() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    from ..runtime_dir import base_directory, running

    try:
        path = base_directory()
        mode = f"{path.stat().st_mode & 0o777:04o}"
        found = [
            {"pid": info.pid, "root": info.root, "started_at": info.started_ms}
            for _, info in running()
        ]
    except OSError as error:
        return {"path": None, "mode": None, "problem": str(error)}, []
    return {"path": str(path), "mode": mode, "problem": None}, found


def _document(findings: Findings, advice: list[str]) -> dict[str, Any]:
    from .sandbox_report import as_documents

    disk, best = findings.disk, findings.best
    return {
        "sandbox": [
            {
                "backend": report.backend,
                "usable": report.usable,
                "enforcement": report.enforcement,
                "gaps": list(report.gaps),
                "reason": report.reason,
            }
            for report in findings.sandbox
        ],
        "sandbox_attempts": as_documents(findings.attempts),
        "bodies": {
            "worker": {"confined": False},
            "host": {"confined": False},
            "sandbox": {"confined": best is not None, "by": best.backend if best else None},
        },
        "disk": {
            "root": str(disk.root),
            "measured_in": str(disk.place),
            "writable": disk.problem is None,
            "file_system": disk.mount.type if disk.mount else None,
            "source": disk.mount.source if disk.mount else None,
            "mount_point": disk.mount.point if disk.mount else None,
            "mount_options": disk.mount.options.split(",") if disk.mount else [],
            "sync_us": disk.sync_us,
            "sync_slowest_us": disk.slowest_us,
            "free_bytes": disk.free_bytes,
            "problem": disk.problem,
        },
        "limits": findings.limits,
        "versions": findings.versions,
        "runtime_directory": findings.runtime_directory,
        "runtimes": findings.runtimes,
        "healthy": findings.healthy,
        "advice": advice,
    }


def _tell(out: Console, findings: Findings, advice: list[str]) -> None:
    _tell_sandbox(out, findings)
    _tell_disk(out, findings.disk)
    out.print()
    out.print("Limits and versions", style="bold")
    limits = findings.limits
    if limits:
        files = f"{_limit(limits['open_files_soft'])} (hard {_limit(limits['open_files_hard'])})"
        out.print(f"  open files {files}, processes {_limit(limits['processes_soft'])}")
    out.print("  " + ", ".join(f"{name} {version}" for name, version in findings.versions.items()))
    out.print()
    out.print("Runtimes", style="bold")
    directory = findings.runtime_directory
    if directory["path"] is not None:
        out.print(f"  in {directory['path']} (mode {directory['mode']})", style="dim")
    for runtime in findings.runtimes:
        out.print(f"  process {runtime['pid']}, root {runtime['root']}")
    if not findings.runtimes:
        out.print("  none is running")
    out.print()
    out.print("What to do", style="bold")
    for line in advice or ["nothing: this machine has what it takes"]:
        out.print(f"  - {line}", style="yellow" if advice else "green")


def _tell_sandbox(out: Console, findings: Findings) -> None:
    from rich.table import Table

    from .sandbox_report import tell

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("SANDBOX", "USABLE", "ENFORCEMENT", "DETAIL"):
        table.add_column(name, overflow="fold", no_wrap=name != "DETAIL")
    for report in findings.sandbox:
        gaps = f"; not held: {', '.join(report.gaps)}" if report.gaps else ""
        table.add_row(
            report.backend,
            "yes" if report.usable else "no",
            report.enforcement if report.usable else "-",
            f"{report.reason}{gaps}",
            style=None if report.usable else "yellow",
        )
    out.print(table)
    tell(out, findings.attempts)
    best = findings.best
    out.print()
    out.print("What is confined", style="bold")
    by = f"by {best.backend}" if best else "by nothing here: such calls are refused"
    out.print(f'  tools with place="sandbox": their commands, {by}')
    out.print('  tools with place="worker" or "host": not confined, their code is trusted')


def _tell_disk(out: Console, disk: DiskReport) -> None:
    from .output import size

    out.print()
    out.print("Disk", style="bold")
    there = "" if disk.place == disk.root else f" (not there yet; looked at {disk.place})"
    out.print(f"  root {disk.root}{there}")
    if disk.mount is not None:
        out.print(f"  {disk.mount.type} on {disk.mount.point} ({disk.mount.options})")
    if disk.free_bytes is not None:
        out.print(f"  {size(disk.free_bytes)} free")
    if disk.sync_us is not None:
        out.print(
            f"  write and sync of 4 KiB: {disk.sync_us:.0f} µs (slowest {disk.slowest_us:.0f})"
        )
    if disk.problem is not None:
        out.print(f"  {disk.problem}", style="bold red")


def _limit(value: int | None) -> str:
    return "unlimited" if value is None else str(value)
