"""A client that works on sessions and notes what it was told; the shortest way to write workloads.

One :class:`Client` is one process with one backend. When it dies another one goes on with the same
:class:`~.notes.Notes`.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any, Literal

from interlock.backends.errors import InterlockError
from interlock.backends.event import Draft, draft, encode_line
from interlock.backends.generations.verify_copy import verify_copy
from interlock.backends.header import Header
from interlock.backends.jsonl import Durability, JsonlBackend
from interlock.backends.log import SessionLog
from interlock.backends.source import LogFile

from .machine import Machine, Process
from .notes import Lines, Note, Notes

Compression = Literal["zstd", "none"]

ROOT = Path("/disk/sessions")
CWD = "/work"
SEGMENT_SIZE = 16 * 1024

#: Times in events are the client's own; nothing depends on them.
_TIME = 1_700_000_000_000


def make_backend(
    process: Process, durability: Durability, compression: Compression = "zstd"
) -> JsonlBackend:
    """Return a backend on the machine's disk; migrated copies are verified in this process."""
    return JsonlBackend(
        ROOT,
        durability=durability,
        compression=compression,
        # What is mounted on this computer has nothing to do with the machine.
        allow_network=True,
        segment_size=SEGMENT_SIZE,
        disk=process,
        verifier=partial(verify_copy, disk=process),
    )


def read_lines(path: Path, process: Process) -> Lines:
    """Return the events of a log, as rows."""
    from interlock.backends.reading import open_reader

    with LogFile(path, process) as file:
        return tuple([encode_line(event) for event in open_reader(file).events()])


class Client:
    """A process that appends to sessions, and retries and notes as a writer would."""

    def __init__(
        self,
        machine: Machine,
        notes: Notes,
        durability: Durability,
        compression: Compression = "zstd",
        seed: int = 0,
    ) -> None:
        self.process = machine.process()
        self.backend = make_backend(self.process, durability, compression)
        self.notes = notes
        self.logs: dict[str, SessionLog] = {}
        self._words = random.Random(seed)

    def create(self, name: str, cwd: str = CWD) -> None:
        """Make a session; nothing is on the disk before its first flush."""
        log = self.backend.create(Header(id=name, created_at=1, cwd=cwd))
        self.logs[name] = log
        self.notes.setdefault(name, Note(str(log.directory)))

    def open(self, name: str) -> None:
        """Open a session to write. What it holds now is its history from here on."""
        log = self.backend.open(name)
        self.logs[name] = log
        lines = read_lines(log.path, self.process)
        note = self.notes[name]
        last = len(lines) - 1
        # What is read but not durable may still be lost, and what the reader gave up is no event.
        acknowledged = max(note.acknowledged, log.durable_seq)
        self.notes[name] = note._replace(
            lines=lines, acknowledged=acknowledged, allowed=last, published=True
        )

    def say(self, name: str, count: int = 1, size: int = 30) -> None:
        """Append notices with about ``size`` bytes that do not compress."""
        self.append(name, *[note(self._words.randbytes(size // 2).hex()) for _ in range(count)])

    def say_much(self, name: str) -> None:
        """Append notices that fill more than one block of a frame: a torn one gives up some."""
        self.say(name, count=3)
        self.append(name, note("x" * 140_000))
        self.say(name, count=2, size=900)

    def append(self, name: str, *drafts: Draft) -> None:
        """Append events."""
        log, known = self.logs[name], self.notes[name]
        events = log.append(drafts, _TIME)
        lines = known.lines + tuple([encode_line(event) for event in events])
        spills = {
            **known.spills,
            **{
                event.seq: made.spill
                for event, made in zip(events, drafts, strict=True)
                if made.spill is not None
            },
        }
        self.notes[name] = known._replace(lines=lines, spills=spills)

    def flush(self, *names: str) -> bool:
        """Make what was appended durable in one commit; True if all of it is.

        A log that is closed for good is let go.
        """
        items = []
        for name in names:
            log, known = self.logs[name], self.notes[name]
            items.append((log, log.seal()))
            self.notes[name] = known._replace(allowed=len(known.lines) - 1)
        outcomes = self.backend.commit(items)
        good = True
        for name, (log, batch), outcome in zip(names, items, outcomes, strict=True):
            known = self.notes[name]
            if isinstance(outcome, int):
                log.acknowledge(outcome)
                acknowledged = max(known.acknowledged, outcome)
                self.notes[name] = known._replace(acknowledged=acknowledged, published=True)
                continue
            good = False
            self._failed(name, log, outcome)
            if name in self.logs and batch is not None:
                log.unseal(batch)
        self.process.pause()
        return good

    def insist(self, *names: str, tries: int = 4) -> None:
        """Flush again until it works or the log is closed for good; ends after ``tries``."""
        for _ in range(tries):
            if self.flush(*[name for name in names if name in self.logs]):
                return

    def close(self, *names: str) -> None:
        """Close sessions."""
        for name in names:
            self.logs.pop(name).close()

    def stop(self) -> None:
        """End in order."""
        self.close(*list(self.logs))
        self.backend.close()
        self.process.kill()

    def kill(self) -> None:
        """Die, with everything left as it is."""
        self.process.kill()

    def _failed(self, name: str, log: SessionLog, error: InterlockError) -> None:
        known = self.notes[name]
        if error.details.get("closed"):
            # What of it is on the disk is not known; only what was acknowledged is.
            log.close()
            del self.logs[name]
        elif not self._in_doubt():
            # L6: the file is back at its earlier length.
            self.notes[name] = known._replace(allowed=known.acknowledged)

    def _in_doubt(self) -> bool:
        journal = self.backend._journal
        return journal is not None and journal.in_doubt


def note(text: str) -> Draft:
    """Return an event that stands anywhere."""
    return draft("interlock/notice", {"text": text}, ignorable=True)


def turn(number: int) -> Draft:
    """Return the start of a turn."""
    return draft("turn/start", {"turn": number})


def turn_end(number: int) -> Draft:
    """Return the end of a turn."""
    return draft("turn/end", {"turn": number, "reason": {"kind": "completed"}})


def step_end(number: int) -> Draft:
    """Return the end of a turn's step."""
    return draft("step/end", {"turn": number, "step": 1})


def call_of(call_id: str, number: int) -> list[Draft]:
    """Return a turn's step with one call."""
    at: dict[str, Any] = {"turn": number, "step": 1}
    content = [{"type": "tool-call", "id": call_id, "name": "tool", "arguments": "{}"}]
    source = {"kind": "model", "provider": "external", "model": "none"}
    message = {"id": f"m{number}", "role": "assistant", "content": content, "source": source}
    called = at | {"callId": call_id, "name": "tool", "arguments": "{}"}
    return [
        draft("step/start", {"turn": number, "step": 1}),
        draft("assistant/message", at | {"message": message, "stream": []}, surface_op="append"),
        draft("tool/call", called),
    ]


def spilled_result(call_id: str, number: int, call_seq: int, content: bytes) -> Draft:
    """Return a result whose content is beside the log (P7)."""
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [{"type": "text", "text": "in a file"}],
        "isError": False,
    }
    message = {
        "id": f"r{call_seq}",
        "role": "user",
        "source": {"kind": "tool", "callId": call_id},
        "content": [block],
    }
    data = {"turn": number, "step": 1, "message": message, "meta": {"spill": {}}}
    made = draft("tool/result", data, surface_op="append", sources=(call_seq,))
    return Draft(made.type, made.data, made.ignorable, "append", (call_seq,), content)
