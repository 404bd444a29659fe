"""A flooding host and its runtime, seen from the outside: what it said, and how it is killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent

#: Seconds without a word after which a process that should go on or end is taken for stuck.
PATIENCE = 60.0


@dataclass
class Acknowledged:
    """What the client knows to be durable, by session."""

    #: seq to the event's key and digest
    events: dict[str, dict[int, tuple[str, str]]] = field(default_factory=lambda: defaultdict(dict))
    #: the highest seq that was ever said to be durable
    durable: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)

    def hear(self, line: str) -> None:
        """Take in a line of the client."""
        kind, name, rest = line.split(" ", 2)
        if kind == "event":
            seq, key, digest = rest.split(" ")
            self.events[name][int(seq)] = (key, digest)
            self.durable[name] = max(self.durable.get(name, -1), int(seq))
        elif kind == "durable":
            self.durable[name] = max(self.durable.get(name, -1), int(rest))
        else:
            self.refused.append(f"{name} could not go on: {rest}")

    @property
    def count(self) -> int:
        """How many events were acknowledged."""
        return sum(map(len, self.events.values()))


class Host:
    """The processes of one host. ``told`` is what :mod:`.backend` reads in the writer."""

    def __init__(
        self,
        root: Path,
        sessions: int,
        durability: str,
        life: int,
        told: dict[str, object],
        acknowledged: Acknowledged,
    ) -> None:
        self._told = json.dumps(told)
        self._acknowledged = acknowledged
        self._errors = root.parent / f"errors.{life}"
        environment = dict(os.environ) | {"INTERLOCK_FLOOD": self._told}
        environment["PYTHONPATH"] = str(HERE.parents[1])
        words = [str(root), str(sessions), durability, str(life)]
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "client.py"), *words],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        self._output = self._process.stdout
        self._end = os.pidfd_open(self._process.pid)
        self._rest = b""
        self._writer: int | None = None
        self._ends: list[int] = [self._end]

    def flood(self, lines: int) -> bool:
        """Listen until the client has said so many lines more; False if the host died first."""
        while lines > 0:
            ready, _, _ = select.select([self._output, self._end], [], [], PATIENCE)
            if not ready:
                raise RuntimeError(f"the flood has stopped:\n{self._errors.read_text()[-2000:]}")
            heard = self._listen() if self._output in ready else 0
            if not heard:
                return False
            lines -= heard
        return True

    def linger(self, seconds: float) -> None:
        """Listen for a while longer; the writer may be anywhere when it is over."""
        if select.select([self._output, self._end], [], [], seconds)[0]:
            self._listen()

    def kill_writer(self) -> None:
        """Kill the writer, whatever it is doing."""
        if self._writer is None:
            raise RuntimeError(f"there is no writer:\n{self._errors.read_text()[-2000:]}")
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._writer, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the host and wait until every process of its runtime has ended by itself."""
        self._process.kill()
        self._process.wait()
        for pid in self._left():
            with suppress(ProcessLookupError):
                self._ends.append(os.pidfd_open(pid))
        for end in self._ends:
            if not select.select([end], [], [], PATIENCE)[0]:
                raise RuntimeError("a process of a killed runtime did not end")
        while self._listen():
            pass

    def close(self) -> None:
        """Leave nothing running and nothing open."""
        self._process.kill()
        self._process.wait()
        for end in self._ends:
            os.close(end)
        self._output.close()

    def _left(self) -> list[int]:
        """Return the processes that have inherited what only this host and its runtime have."""
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if (
                    entry.name.isdigit()
                    and os.fsencode(self._told) in (entry / "environ").read_bytes()
                ):
                    found.append(int(entry.name))
        return found

    def _listen(self) -> int:
        """Take in what the client has said; return about how many lines, at the output's end 0."""
        data = os.read(self._output.fileno(), 1 << 20)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._hear(line.decode())
        return len(lines) or (1 if data else 0)

    def _hear(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind != "processes":
            self._acknowledged.hear(line)
            return
        # Before the client goes on, so that these are surely its processes.
        for role, pid in json.loads(rest).items():
            with suppress(ProcessLookupError):
                end = os.pidfd_open(pid)
                self._ends.append(end)
                if role == "writer":
                    self._writer = end
