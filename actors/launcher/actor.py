"""The shell of the sandbox launcher: a thread per command, which lives as long as the command.

Parent-death signals follow the thread that started a process, so it must be that one (S8).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock.backends.paths import default_root
from interlock.sandbox import standby
from interlock.sandbox.audit import Snapshot, compare, snapshot
from interlock.sandbox.errors import SandboxUnavailable
from interlock.sandbox.policy import Limits, Mode, Policy, PolicyError
from interlock.sandbox.run import Outcome, run
from interlock.sandbox.watch import CancelToken
from pykka._envelope import Envelope

from ..messages import CommandEnded, Launch
from ..owner import Core, Owner
from ..runtime_dir import running
from ..tools.command import Command
from .core import LauncherCore

#: Bytes of output kept of each stream unless the command asks for less.
OUTPUT_LIMIT = 128 * 1024
#: Processes of one command at once.
PROCESSES = 4096
#: Seconds between asking a command to stop and ending it.
GRACE = 2.0


class _Call:
    """Something to do in the launcher's thread, put there by a command's."""

    __slots__ = ("call",)

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call


class RunningCommand:
    """A command on a thread of its own."""

    def __init__(self) -> None:
        self.token = CancelToken()

    def cancel(self, *, kill: bool) -> None:
        self.token.cancel(kill=kill)


class LauncherActor(Owner):
    """Owns confined commands; see :class:`~interlock.actors.launcher.core.LauncherCore`."""

    def make_core(self) -> Core:
        with contextlib.suppress(OSError):
            standby.prepare()  # so that the first command starts as quickly as the others
        return LauncherCore(self, self, self.end)

    def on_stop(self) -> None:
        super().on_stop()
        standby.close()  # S7: the guardian has ended what there was before we end

    def on_receive(self, message: object) -> None:
        if isinstance(message, _Call):
            message.call()
            message = None
        super().on_receive(message)

    # CommandRunner.

    def run_command(
        self,
        launch: Launch,
        output: Callable[[str, bytes], None],
        ended: Callable[[CommandEnded], None],
    ) -> RunningCommand:
        running = RunningCommand()

        def say(call: Callable[[], None]) -> None:
            self.actor_inbox.put(Envelope(_Call(call)))

        shown = {"stdout": 0, "stderr": 0}

        def show(stream: str, data: bytes) -> None:
            # What is shown live is bounded as the result is: a flood must not fill the mailboxes.
            if shown[stream] < OUTPUT_LIMIT:
                shown[stream] += len(data)
                say(lambda: output(stream, data))

        def work() -> None:
            end = self._run(launch, running.token, show)
            say(lambda: ended(end))

        threading.Thread(
            target=work, name=f"interlock-command-{launch.number}", daemon=True
        ).start()
        return running

    def _run(
        self, launch: Launch, token: CancelToken, on_output: Callable[[str, bytes], None]
    ) -> CommandEnded:
        command = launch.command
        try:
            policy = self._policy(launch)
            before = snapshot(policy.workspace) if policy.roots else None
            outcome = run(
                command.argv,
                policy,
                timeout=launch.timeout,
                grace=GRACE,
                cancel=token,
                output_limit=command.output_limit or OUTPUT_LIMIT,
                on_output=on_output,
                stdin=_input(command.stdin),
            )
            risks = _risks(before) if before is not None else []
        except SandboxUnavailable as error:
            return _failed(launch, str(error))
        except (PolicyError, OSError) as error:
            return _failed(launch, str(error))
        return _ended(launch, outcome, risks)

    def _hidden(self, workspace: Path) -> tuple[Path, ...]:
        """S6: our logs and keys, and those of this user's other runtimes.

        Another's root is left out where the workspace lies in it: that is then the user's wish.
        """
        own = (Path(self.config.root), Path(self.config.runtime_dir).parent)
        others = {default_root(), *(Path(info.root) for _, info in running())}
        return own + tuple(p for p in others if not workspace.resolve().is_relative_to(p.resolve()))

    def _policy(self, launch: Launch) -> Policy:
        """S6: hide what is ours, also where the workspace contains it."""
        command = launch.command
        workspace = Path(launch.workspace)
        return Policy(
            mode=Mode(launch.mode),
            workspace=workspace,
            cwd=workspace / command.cwd if command.cwd else None,
            writable=tuple(Path(path) for path in command.writable),
            hidden=(*self._hidden(workspace), *(workspace / path for path in command.hidden)),
            limits=limits_of(command, workspace),
            network=command.network,
            env=command.env
            | {
                "INTERLOCK_CALL_ID": launch.call_id,
                "INTERLOCK_IDEMPOTENCY_KEY": launch.idempotency_key,
            },
        )


def limits_of(command: Command, workspace: Path) -> Limits:
    """What the command asks for, and brakes on what would harm the machine where it is silent.

    Half of the free disk, all of the memory for each process, and a number of processes that no
    build reaches.
    """
    limits: dict[str, Any] = {"processes": PROCESSES}
    with contextlib.suppress(OSError, ValueError):
        limits["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError):
        disk = os.statvfs(workspace)
        limits["disk_bytes"] = disk.f_bavail * disk.f_frsize // 2 or None
        limits["disk_files"] = disk.f_favail // 2 or None
    for name, number in command.limits.items():
        whole = number if name == "cpu_seconds" else int(number)
        limits[name] = whole or None
    return Limits(**limits)


def _risks(before: Snapshot) -> list[str]:
    """What the command left that could run on the host later, or reach out of the workspace."""
    findings = compare(before, snapshot(before.workspace))
    return [f"{finding.path}: {finding.message}" for finding in findings]


def _input(stdin: str | bytes | None) -> bytes:
    return stdin.encode() if isinstance(stdin, str) else stdin or b""


def _ended(launch: Launch, outcome: Outcome, risks: list[str]) -> CommandEnded:
    return CommandEnded(
        number=launch.number,
        status=outcome.status,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        stdout=outcome.stdout.text(),
        stderr=outcome.stderr.text(),
        stdout_bytes=outcome.stdout.total,
        stderr_bytes=outcome.stderr.total,
        cut_bytes=outcome.stdout.cut + outcome.stderr.cut,
        duration=outcome.duration,
        backend=outcome.backend,
        enforcement=outcome.enforcement,
        gaps=sorted(outcome.gaps),
        evidence=outcome.evidence,
        message=outcome.message,
        risks=risks,
        refused=list(outcome.refused),
        hint=outcome.hint,
    )


def _failed(launch: Launch, message: str) -> CommandEnded:
    """Nothing ran: no sandbox here, or a policy that cannot be meant."""
    return CommandEnded(
        number=launch.number,
        status="sandbox-failed",
        exit_code=None,
        signal=None,
        stdout="",
        stderr="",
        stdout_bytes=0,
        stderr_bytes=0,
        cut_bytes=0,
        duration=0.0,
        backend="none",
        enforcement="none",
        gaps=[],
        evidence=None,
        message=message,
        risks=[],
    )
