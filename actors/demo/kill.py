"""The agent in a process of its own: started, and killed in the middle of a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
from interlock.backends.event import Event
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log

from .lone import Task

#: How far the call is when its process is killed, as a share of its work.
KILL_AT = 0.3
#: Bytes of one line that the process may say: a whole event.
LINE_LIMIT = 32 * 1024 * 1024
#: Seconds that an interrupted process may take to end in order.
LEAVE = 0.9


class Held(msgspec.Struct, frozen=True):
    """What a log held about a call at one moment: types of its events, and its last ``seq``."""

    events: list[str]
    last_seq: int


class LoneProcess:
    """The process; everything here runs on the demo's event loop."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._process: Process | None = None
        self._owners: list[int] = []

    @property
    def pid(self) -> int:
        """The killed process's id."""
        return self._process.pid if self._process is not None else 0

    async def words(self) -> AsyncIterator[Event | tuple[str, Any]]:
        """Start it and yield what it says: events, and pairs of a call id and a progress value."""
        environment = dict(os.environ) | {"PYTHONSAFEPATH": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "interlock.actors.demo.lone",
            msgspec.json.encode(self._task).decode(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            limit=LINE_LIMIT,
            env=environment,
            start_new_session=True,  # Ctrl-C is for us to pass on
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        async for line in self._process.stdout:
            word = msgspec.json.decode(line)
            if "owners" in word:
                self._owners = [_pidfd(pid) for pid in word["owners"].values()]
            elif "type" in word:
                yield Event(
                    word["type"], word["seq"], word["time"], msgspec.json.encode(word["data"])
                )
            else:
                yield word["call_id"], word["value"]

    async def kill(self) -> None:
        """SIGKILL, to this one process; what it had started is in sessions of its own."""
        assert self._process is not None  # noqa: S101 - it spoke
        self._process.kill()
        await self._process.wait()

    async def leave(self) -> None:
        """End it in order, and owners that outlived it; for Ctrl-C, so bounded."""
        process = self._process
        if process is not None and process.returncode is None:
            process.send_signal(signal.SIGINT)
            try:
                await asyncio.wait_for(process.wait(), LEAVE)
            except TimeoutError:
                process.kill()
        for owner in self._owners:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(owner, signal.SIGTERM)

    def close(self) -> None:
        """Let go of what is held of its owners."""
        for owner in self._owners:
            os.close(owner)
        self._owners = []


def _pidfd(pid: int) -> int:
    # By descriptor: a process id may be somebody else's by the time it is needed.
    return os.pidfd_open(pid)


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
