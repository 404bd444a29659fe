"""The demo as it runs: eight agents in one runtime, one in a process of its own, on one loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from interlock.backends.errors import InterlockError

from ..agent import AsyncAgent, ScriptedModel
from ..answering.request import ApprovalRequest
from ..hosting.board import Board
from ..hosting.crew import Crew, follow
from ..hosting.screen import Screen
from ..runtime.aio import AsyncRuntime, AsyncSession
from . import ledger
from .kill import Held, LoneProcess, held, watch_for
from .lone import Task
from .scene import Scene
from .script import LONE, RESUMED_PROMPT, SYSTEM, Part, lone_script
from .tools import TOOLS
from .tree import Tree

#: Seconds that the demo's answerer thinks about a request.
THINKING = 0.8
#: Forced flushes that are measured at the end.
FLUSHES = 64
#: Seconds within which the killed agent's call must have ended and its lock be free (F1).
REOPEN = 20.0


class Killed(msgspec.Struct, frozen=True):
    """A call whose process got SIGKILL: what the log held then, and what the call became."""

    call_id: str
    session: str
    tool: str
    pid: int
    held: list[str]
    became: str
    text: str


@dataclass
class Played:
    """What only the stage knows; everything else is read from the logs."""

    killed: Killed | None = None
    worker_killed: tuple[str, str, int] | None = None
    flushes: list[float] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)


class Stage:
    """One performance. :meth:`perform` is its only entrance."""

    def __init__(
        self, scene: Scene, tree: Tree, cast: Sequence[Part], board: Board, screen: Screen
    ) -> None:
        self._scene, self._tree, self._cast = scene, tree, cast
        self._board, self._screen = board, screen
        self._played = Played()
        for part in cast:
            board.add(part.name)
        board.add(LONE).doing = "starts in a process of its own"
        task = Task(str(scene.root), scene.session(LONE), str(scene.workspace(LONE)), tree.files[0])
        self._lone = LoneProcess(task, scene.lone_log)
        self._crew: Crew | None = None

    async def perform(self) -> Played:
        """Run every agent to its end.

        Cancelled (Ctrl-C), it ends all processes within two seconds and leaves logs to resume.
        """
        runtime = AsyncRuntime(
            self._scene.root,
            tools=TOOLS,
            answerer=_think,
            worker_env=(ledger.LEDGER, ledger.ROOT),
        )
        async with Crew(runtime, self._lone.leave) as crew:
            self._crew = crew
            for part in self._cast:
                crew.start(self._host(runtime, part))
            crew.start(self._lone_agent(runtime))
            await crew.all()
            await self._measure(runtime)
        return self._played

    # The agents of this process.

    async def _host(self, runtime: AsyncRuntime, part: Part) -> None:
        name = part.name
        with self._troubles(name):
            session = await runtime.create(
                self._scene.session(name), cwd=self._scene.workspace(name)
            )
            model = ScriptedModel(part.script)
            await self._run(session, name, model, f"Look after this tree, {name}.")

    async def _run(
        self,
        session: AsyncSession,
        name: str,
        model: ScriptedModel,
        prompt: str,
        from_seq: int = 0,
    ) -> None:
        row = self._board.rows[name]
        kill = watch_for("convert", lambda call_id, pid: self._kill_worker(name, call_id, pid))

        def progress(call_id: str, value: Any) -> None:
            kill(row.tools.get(call_id, ""), call_id, value)

        following = follow(session, name, self._board, self._screen, from_seq, progress)
        follower = asyncio.create_task(following)
        try:
            await AsyncAgent(session, model, SYSTEM).run(prompt)
            await session.close()
            await follower
        finally:
            follower.cancel()

    def _kill_worker(self, name: str, call_id: str, pid: int) -> None:
        """P6: the process of an isolated body, by the id that the body itself told."""
        self._played.worker_killed = self._played.worker_killed or (name, call_id, pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        self._screen.line(f"{name}: the worker process of its call was killed (SIGKILL)")

    # The agent in a process of its own.

    async def _lone_agent(self, runtime: AsyncRuntime) -> None:
        with self._troubles(LONE):
            found = await self._kill_lone()
            if found is None:
                why = self._lone.last_words()
                self._trouble(LONE, f"its process ended before it could be killed: {why}")
                return
            call_id, then = found
            self._say("killed", f"killed in upload; the log holds {' and '.join(then.events)}")
            session = await runtime.open(self._scene.session(LONE), wait=REOPEN)
            self._say("working", "reopened in another process")
            await self._became(session, call_id, then)
            model = ScriptedModel(lone_script(self._tree.files[0]))
            await self._run(session, LONE, model, RESUMED_PROMPT, then.last_seq + 1)

    async def _kill_lone(self) -> tuple[str, Held] | None:
        board, row = self._board, self._board.rows[LONE]
        due: list[str] = []
        middle = watch_for("upload", lambda call_id, _pid: due.append(call_id))
        async for word in self._lone.words():
            if not isinstance(word, tuple):
                self._screen.line(board.event(LONE, word))
                continue
            board.progress(LONE, *word)
            middle(row.tools.get(word[0], ""), *word)
            if due:
                self._lone.kill()
                session = self._scene.session(LONE)
                return due[0], await asyncio.to_thread(held, self._scene.root, session, due[0])
        return None

    async def _became(self, session: AsyncSession, call_id: str, then: Held) -> None:
        for event in await session.events:
            if event.type == "tool/result" and event.data["message"]["source"]["callId"] == call_id:
                error = event.data.get("error")
                text = event.data["message"]["content"][0]["content"][0]["text"]
                became = error["code"] if error else "OK"
                self._played.killed = Killed(
                    call_id, session.id, "upload", self._lone.pid, then.events, became, text
                )

    # Besides.

    async def _measure(self, runtime: AsyncRuntime) -> None:
        """Forced flushes of a session with one small event each, now that the agents are done."""
        session = await runtime.create(
            self._scene.session("flushes"), cwd=self._scene.workspace("flushes")
        )
        for number in range(FLUSHES):
            started = time.perf_counter()
            await session.append("demo/flush", {"number": number}, ignorable=True, flush=True)
            self._played.flushes.append((time.perf_counter() - started) * 1000)
        await session.close()

    def _say(self, state: Any, doing: str) -> None:
        self._screen.line(self._board.set(LONE, state, doing))

    @contextlib.contextmanager
    def _troubles(self, name: str) -> Any:
        """One agent's failure is told and does not end the others."""
        try:
            yield
        except InterlockError as error:
            self._trouble(name, f"{error.code}: {error.message}")

    def _trouble(self, name: str, what: str) -> None:
        if self._crew is None or not self._crew.stopping:
            self._played.troubles.append(f"{name}: {what}")
            self._screen.line(self._board.set(name, "failed", what))


def _think(request: ApprovalRequest) -> bool:
    """The demo's answerer, on a thread of the runtime: it thinks, then allows all but ``purge``."""
    time.sleep(THINKING)
    return request.tool != "purge"
