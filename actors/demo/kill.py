"""The agent in a process of its own: started, and killed in the middle of a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from interlock.backends.event import Event
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log

from ..liveness import Watch
from ..roles import Role
from .lone import Task

#: How far the call is when its process is killed, as a share of its work.
KILL_AT = 0.3
#: Bytes of one line that the process may say: a whole event.
LINE_LIMIT = 32 * 1024 * 1024
#: Seconds that owners may take to end after Ctrl-C before they are left to end by themselves.
LEAVE = 1.0


class Held(msgspec.Struct, frozen=True):
    """What a log held about a call at one moment: types of its events, and its last ``seq``."""

    events: list[str]
    last_seq: int


class LoneProcess:
    """The process; everything here runs on the demo's event loop.

    :param task: what it is to do.
    :param said: the file that gets what it says on stderr.
    """

    def __init__(self, task: Task, said: Path) -> None:
        self._task, self._said = task, said
        self._process: subprocess.Popen[bytes] | None = None
        #: Its owners: process ids, each held by a descriptor that says when it ends.
        self._owners: dict[str, tuple[int, Watch]] = {}

    @property
    def pid(self) -> int:
        """Its process id; 0 before it was started."""
        return self._process.pid if self._process is not None else 0

    async def words(self) -> AsyncIterator[Event | tuple[str, Any]]:
        """Start it and yield what it says: events, and pairs of a call id and a progress value."""
        reader = await self._start()
        async for line in reader:
            word = msgspec.json.decode(line)
            if "owners" in word:
                for role, pid in word["owners"].items():
                    watch = Watch.process(pid)
                    if watch is not None:
                        self._owners[role] = (pid, watch)
            elif "type" in word:
                raw = msgspec.json.encode(word["data"])
                yield Event(word["type"], word["seq"], word["time"], raw)
            else:
                yield word["call_id"], word["value"]

    async def _start(self) -> asyncio.StreamReader:
        environment = dict(os.environ) | {"PYTHONSAFEPATH": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        task = msgspec.json.encode(self._task).decode()
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "interlock.actors.demo.lone", task],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment,
                start_new_session=True,  # Ctrl-C is ours to pass on
            )
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(LINE_LIMIT)
        await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), self._process.stdout
        )
        return reader

    def last_words(self) -> str:
        """Why it ended by itself, as far as it said."""
        lines = self._said.read_text(errors="replace").split("\n") if self._said.exists() else []
        return next((line for line in reversed(lines) if line.strip()), "without a word")

    def kill(self) -> None:
        """SIGKILL, to this one process: the owners that it started run on (F1)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    async def leave(self) -> None:
        """End it and what outlived it, in order but at once; for Ctrl-C, so bounded.

        Its dispatcher ends running bodies and records that; the other owners follow it.
        """
        self.kill()
        loop = asyncio.get_running_loop()
        ended = {role: loop.create_future() for role in self._owners}
        for role, (_, watch) in self._owners.items():
            loop.add_reader(watch.descriptor, _resolve, ended[role])
        if Role.DISPATCHER in self._owners:
            _terminate(*self._owners[Role.DISPATCHER])
        if ended:
            await asyncio.wait(ended.values(), timeout=LEAVE)
        for _, watch in self._owners.values():
            loop.remove_reader(watch.descriptor)
            watch.close()
        self._owners = {}


def _terminate(pid: int, watch: Watch) -> None:
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "linux":
            # By descriptor: a process id may be somebody else's by now.
            signal.pidfd_send_signal(watch.descriptor, signal.SIGTERM)
        else:
            os.kill(pid, signal.SIGTERM)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def held(root: Path, session: str, call_id: str) -> Held:
    """Read from the log file what it holds about a call right now."""
    directory = JsonlBackend(root).find(session)
    if directory is None:
        return Held([], -1)
    [path] = directory.glob("session.v3.jsonl*")
    reading = read_log(path)
    return Held([e.type for e in reading.events if _concerns(e, call_id)], reading.last_seq)


def _concerns(event: Event, call_id: str) -> bool:
    if event.type == "tool/result":
        return bool(event.data["message"]["source"]["callId"] == call_id)
    return event.type == "tool/call" and event.data["callId"] == call_id


def watch_for(tool: str, then: Callable[[str, int], None]) -> Callable[[str, str, Any], None]:
    """Return a function that is told of every progress and calls ``then`` with the call's id and
    the process id of its body, once, when a call of ``tool`` is in the middle of its work.
    """
    told: set[str] = set()

    def progress(name: str, call_id: str, value: Any) -> None:
        if name == tool and call_id not in told and value["share"] >= KILL_AT:
            told.add(call_id)
            then(call_id, value["pid"])

    return progress
