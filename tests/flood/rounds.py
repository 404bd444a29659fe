"""One round: flood, kill, take away, open everything again, compare with what was acknowledged."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from interlock.backends.errors import InterlockError
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_events
from interlock.backends.source import find_log

from .remains import places, take_away

HERE = Path(__file__).parent
#: Seconds after which a process that should have ended is taken for stuck.
PATIENCE = 60
#: Small, so that segments wrap and are retired in the middle of a flood.
SEGMENT_SIZE = 256 * 1024


@dataclass
class Outcome:
    """What a round found. ``losses`` is empty where everything acknowledged was there."""

    acknowledged: int = 0
    sessions: int = 0
    undone: int = 0
    losses: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)


def run(
    directory: Path,
    *,
    sessions: int,
    durability: str,
    rng: random.Random,
    take: bool,
    without: str = "",
    deadly: bool = False,
    seconds: float = 1.5,
) -> Outcome:
    """Run one round in an empty directory. ``seconds`` bounds how long the flood lasts.

    ``without`` leaves one sync out; ``deadly`` has the writer die at a write that comes after it,
    and keeps some of the unsynced writes to the journal.
    """
    root, noted, notes = directory / "root", directory / "noted", directory / "notes"
    told = {
        "notes": str(notes),
        "noted": str(noted),
        "without": without,
        "deadly": deadly,
        # About as many acknowledgements as there are sessions.
        "after": 20 * sessions,
        "segment_size": SEGMENT_SIZE,
    }
    environment = dict(os.environ) | {"INTERLOCK_FLOOD": json.dumps(told)}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), *filter(None, sys.path)])
    words = [str(root), str(noted), str(sessions), durability]
    host = subprocess.Popen(
        [sys.executable, str(HERE / "client.py"), *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert host.stdout is not None
        processes = json.loads(host.stdout.readline())
        ends = [os.pidfd_open(pid) for pid in processes.values()]
        if not deadly:
            _until_flooded(noted, host, sessions)
        # The flood goes on for a while that nobody can foresee; if the host ends, that is a fault.
        end = os.pidfd_open(host.pid)
        select.select([end], [], [], PATIENCE / 6 if deadly else rng.uniform(0.0, seconds))
        os.close(end)
        with suppress(ProcessLookupError):
            os.kill(processes["writer"], signal.SIGKILL)
    finally:
        host.kill()
        host.wait()
    for end in ends:
        if not select.select([end], [], [], PATIENCE)[0]:
            raise RuntimeError("a process of a killed runtime did not end")
        os.close(end)
    outcome = Outcome(places=places(notes))
    if take:
        outcome.undone = take_away(root, notes, rng if deadly else None)
    _compare(root, noted, outcome)
    return outcome


def _until_flooded(noted: Path, host: subprocess.Popen[bytes], sessions: int) -> None:
    """Wait until as many acknowledgements have come as there are sessions."""
    deadline = time.monotonic() + PATIENCE
    while not noted.exists() or noted.read_bytes().count(b"\n") < sessions:
        if host.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the flood did not begin")
        select.select([], [], [], 0.05)


def _acknowledged(noted: Path) -> dict[str, dict[int, str]]:
    """Return what was acknowledged, by session; a line that was being written does not count."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for line in noted.read_text().split("\n")[:-1]:
        session, seq, text = line.split(" ")
        found[session][int(seq)] = text
    return found


def _compare(root: Path, noted: Path, outcome: Outcome) -> None:
    acknowledged = _acknowledged(noted)
    outcome.sessions = len(acknowledged)
    outcome.acknowledged = sum(map(len, acknowledged.values()))
    view = JsonlBackend(root).view()
    for session, events in acknowledged.items():
        outcome.losses += (f"read: {loss}" for loss in _missing(session, events, view))
    backend = JsonlBackend(root, durability="file")
    for session, events in acknowledged.items():
        try:
            backend.open(session).close()
        except (InterlockError, OSError) as error:
            outcome.losses.append(f"{session}: {error}")
            continue
        outcome.losses += _missing(session, events, backend)
    backend.close()


def _missing(session: str, events: dict[int, str], backend: JsonlBackend) -> Iterator[str]:
    """Compare what a log holds with what was acknowledged."""
    directory = backend.find(session)
    if directory is None:
        yield f"{session}: acknowledged {len(events)} events, and there is no such session"
        return
    there: dict[int, str] = {}
    try:
        path = find_log(directory, backend.disk)
        assert path is not None
        for expected, event in enumerate(read_events(path, disk=backend.disk)):
            if event.seq != expected:
                yield f"{session}: event {event.seq} stands where {expected} was due"
            if event.type == "user/message":
                there[event.seq] = event.data["content"][0]["text"]
    except (InterlockError, OSError) as error:
        yield f"{session}: {error}"
        return
    lost = {seq for seq, text in events.items() if there.get(seq) != text}
    if lost:
        yield f"{session}: {len(lost)} acknowledged events are missing, the first is {min(lost)}"
