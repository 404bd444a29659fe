"""Hosting what a file describes: every agent opened or created, run to its end, reported."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, SessionError
from interlock.backends.event import Event
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.paths import log_name
from interlock.backends.reading import read_log

from ..agent import AsyncAgent
from ..agent.model import AsyncModel
from ..answering.route import EXTERNAL
from ..runtime.aio import AsyncRuntime, AsyncSession
from .answerer import Terminal
from .board import Board
from .crew import Crew, follow
from .file import AgentPlan, HostFile
from .load import load_model, load_tools
from .resume import Left, what_is_left
from .screen import Screen

#: Seconds to wait for the log of a session whose earlier process was killed: what it had released
#: runs on to its end and is recorded first (F1).
REOPEN = 20.0

State = Literal["finished", "failed", "skipped", "interrupted"]


@dataclass
class Report:
    """What became of one agent. ``skipped``: it had finished before."""

    id: str
    state: State = "interrupted"
    resumed: bool = False
    prompts: int = 0
    done: int = 0
    calls: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    error: str | None = None

    def document(self) -> dict[str, Any]:
        """Return its part of what ``--json`` prints."""
        return {
            "id": self.id,
            "state": self.state,
            "resumed": self.resumed,
            "prompts": self.prompts,
            "done": self.done,
            "calls": self.calls,
            "results_by_code": dict(self.codes),
            "error": self.error,
        }


class Host:
    """Runs the agents of one file. :meth:`run` is its only entrance.

    :raises FileError: (when made) a tool or model that cannot be brought in.
    """

    def __init__(self, file: HostFile, board: Board, screen: Screen, *, ask: bool) -> None:
        self._file, self._board, self._screen = file, board, screen
        self._terminal = Terminal(board, screen) if ask else None
        self._tools = load_tools(file)
        self._models = {plan.id: load_model(file, plan.model) for plan in file.agents}
        self.reports = {plan.id: Report(plan.id, prompts=len(plan.prompts)) for plan in file.agents}
        for plan in file.agents:
            board.add(plan.id)

    @property
    def root(self) -> Path:
        """Where the logs are."""
        return self._file.root

    async def run(self) -> None:
        """Run every agent to its end; :attr:`reports` says what became of each.

        Cancelled (Ctrl-C), it ends all processes within two seconds and leaves logs to resume.
        """
        waiting = [plan for plan in self._file.agents if not self._is_done(plan)]
        if not waiting:
            return
        table = self._file.runtime
        options: dict[str, Any] = {
            "tools": self._tools,
            "answerer": self._terminal or EXTERNAL,
            "approval": table.approval,
            "approval_timeout": table.approval_timeout,
            "sandbox": table.sandbox,
            "workers": table.workers,
            "worker_env": table.worker_env,
        }
        async with Crew(AsyncRuntime(self._file.root, **options), self._leave) as crew:
            for plan in waiting:
                crew.start(self._host(crew, plan))
            await crew.all()

    async def _leave(self) -> None:
        if self._terminal is not None:
            self._terminal.close()

    def _is_done(self, plan: AgentPlan) -> bool:
        """Whether the log says that nothing is left; it is not even opened for writing then."""
        try:
            events = stored_events(self._file.root, plan.id)
            left = what_is_left(events, plan.prompts) if events is not None else None
        except (InterlockError, OSError):
            return False  # opening it will say what is wrong
        if left is None or left.prompts or left.open:
            return False
        report = self.reports[plan.id]
        report.state, report.done = "skipped", left.done
        self._screen.line(self._board.set(plan.id, "skipped", "had finished before"))
        return True

    async def _host(self, crew: Crew, plan: AgentPlan) -> None:
        report = self.reports[plan.id]
        with self._told(crew, report):
            session, left = await self._session(crew.runtime, plan)
            report.resumed, report.done = left.resumed, left.done
            await self._settings(session, plan, left)
            await self._prompts(session, plan, left, report)

    async def _session(self, runtime: AsyncRuntime, plan: AgentPlan) -> tuple[AsyncSession, Left]:
        try:
            if await asyncio.to_thread(_find, self._file.root, plan.id) is not None:
                self._screen.line(self._board.set(plan.id, "waiting", "opens its log"))
            session = await runtime.open(
                plan.id, wait=REOPEN, on_unknown=self._file.runtime.on_unknown
            )
        except SessionError as error:
            if error.code != Code.SESSION_NOT_FOUND:
                raise
            return await runtime.create(plan.id, cwd=plan.cwd), Left(tuple(plan.prompts))
        left = what_is_left(await session.events, plan.prompts)
        self._screen.line(self._board.set(plan.id, "working", "resumed"))
        return session, left

    async def _settings(self, session: AsyncSession, plan: AgentPlan, left: Left) -> None:
        """Record what the file says of this agent, where its log does not say so already (A1)."""
        if plan.sandbox is not None and plan.sandbox != left.sandbox:
            await session.set_sandbox_mode(plan.sandbox)
        if plan.approval is not None and plan.approval != left.approval:
            await session.set_approval_policy(plan.approval)

    async def _prompts(
        self, session: AsyncSession, plan: AgentPlan, left: Left, report: Report
    ) -> None:
        model: AsyncModel = self._models[plan.id]
        first = len(await session.events)
        follower = asyncio.create_task(follow(session, plan.id, self._board, self._screen, first))
        try:
            agent = AsyncAgent(session, model, plan.system)
            for prompt in left.prompts:
                outcome = await agent.run(prompt)
                if not outcome.completed:
                    reason = outcome.reason.get("error", {}).get("message", outcome.reason["kind"])
                    report.state, report.error = "failed", str(reason)
                    break
                report.done += 1
            else:
                report.state = "finished"
            await session.close()
            await follower
        finally:
            follower.cancel()
            row = self._board.rows[plan.id]
            report.calls, report.codes = row.calls, row.codes

    def _told(self, crew: Crew, report: Report) -> Any:
        """One agent's failure is its own (L17): it is reported, and the others go on."""

        @contextlib.contextmanager
        def told() -> Any:
            try:
                yield
            except InterlockError as error:
                if not crew.stopping:
                    report.state, report.error = "failed", f"{error.code}: {error.message}"
                    self._screen.line(self._board.set(report.id, "failed", report.error))

        return told()


def stored_events(root: Path, session: str) -> list[Event] | None:
    """Return the events in a session's log file; ``None`` if there is no such session."""
    path = _find(root, session)
    return None if path is None else list(read_log(path).events)


def _find(root: Path, session: str) -> Path | None:
    directory = JsonlBackend(root).find(session)
    if directory is None:
        return None
    names = (log_name(3, compressed=True), log_name(3, compressed=False))
    return next((directory / name for name in names if (directory / name).exists()), None)


def host(
    file: HostFile, *, quiet: bool, ask: bool, made: Callable[[Host], None] = lambda _host: None
) -> Host:
    """Run a file's agents in this thread, which must be the main one.

    :param quiet: show nothing while they run.
    :param ask: ask about approvals on the terminal; otherwise requests wait for
        ``interlock approvals``.
    :param made: gets the host before it runs, so that its reports can be told of after Ctrl-C.
    :raises FileError: a tool or model that cannot be brought in.
    :raises KeyboardInterrupt: Ctrl-C; everything has been ended, and can be resumed.
    """
    board = Board()
    screen = Screen(board, f"interlock run {file.path.name}", quiet=quiet)
    hosting = Host(file, board, screen, ask=ask)
    made(hosting)
    with screen:
        asyncio.run(hosting.run())
    return hosting
