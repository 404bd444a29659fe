"""A disk after a power cut: read it, open it, go on with it, open it again."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

from interlock.backends.errors import InterlockError
from interlock.backends.event import encode_line
from interlock.backends.jsonl import Durability, JsonlBackend
from interlock.backends.reading import open_reader
from interlock.backends.source import LogFile

from .client import make_backend, note
from .cut import Cut, Tree
from .machine import Killed, Machine, Process
from .notes import Lines, Outcome
from .remains import Model

_ADDED = "appended after the power came back"
_TIME = 1_800_000_000_000


def recover(tree: Tree, durability: Durability) -> Outcome:
    """Open a disk as its users would, one after the other, and say what became of it.

    A reader sees every session and changes nothing; a writer sees the same, mends, appends and ends
    in order; a second one sees the same with what the first one appended. Faults name what differs
    and what was refused.
    """
    faults: list[str] = []
    machine = Machine.of(tree)
    try:
        read = _read(machine)
        if machine.changes:
            faults.append("reading changed the disk")
        opened = _write(machine, durability, list(read))
        if opened != read:
            faults.append(f"opened to write it holds {_counts(opened)}, read {_counts(read)}")
        again = _open(machine.process(), "file", list(read))
        for name, lines in opened.items():
            if again[name][:-1] != lines or _ADDED.encode() not in again[name][-1]:
                faults.append(f"{name}: the second opening does not find what the first one left")
        left = [path for path in machine.tree() if path.endswith(".journal")]
        # Who opens a session tidies up what no session needs any more.
        if left and read:
            faults.append(f"no session needs it any more, and it is still there: {left}")
    except InterlockError as error:
        return Outcome({}, (*faults, f"{error.code}: {error.message}"))
    return Outcome(opened, tuple(faults))


def interrupt(tree: Tree, durability: Durability, model: Model, draw: random.Random) -> str | None:
    """Interrupt the opening of all sessions at some operation, then open again: same result?

    The interruption is the process's death or a power cut. Returns what differs, or None.
    """
    machine = Machine.of(tree)
    names = list(_read(machine))
    try:
        expected = _open(machine.process(), durability, names)
    except InterlockError:
        # Reported by `recover`.
        return None
    if not machine.changes:
        return None
    broken = Machine.of(tree)
    last = draw.randrange(machine.changes)
    cut = _run_until(broken, last, durability, names)
    if draw.random() < 0.5:
        broken = Machine.of(cut.any_disk(model, draw))
    try:
        found = _open(broken.process(), durability, names)
    except InterlockError as error:
        return f"interrupted at {cut.operation}, then refused: {error.message}"
    if found != expected:
        return (
            f"interrupted at {cut.operation} it holds {_counts(found)}, {_counts(expected)} if not"
        )
    return None


def _run_until(machine: Machine, last: int, durability: Durability, names: list[str]) -> Cut:
    process = machine.process()
    cuts: list[Cut] = []

    def watch(_: Process, operation: str, path: str) -> None:
        if machine.changes >= last and not cuts:
            cuts.append(Cut(machine, f"{operation} {path}"))
            process.kill()

    machine.watch = watch
    with suppress(Killed):
        _open(process, durability, names)
    machine.watch = None
    return cuts[0] if cuts else Cut(machine, "the end")


def _read(machine: Machine) -> dict[str, Lines]:
    process = machine.process()
    found: dict[str, Lines] = {}
    view = make_backend(process, "none").view()
    for listing in view.list():
        if listing.header is None or listing.path is None or listing.code is not None:
            code = listing.code
            raise (
                InterlockError(code, f"{listing.directory}: {listing.message}")
                if code
                else (AssertionError(listing))
            )
        found[listing.header.id] = _lines(listing.path, view)
    process.kill()
    return found


def _lines(path: Path, backend: JsonlBackend) -> Lines:
    with LogFile(path, backend.disk) as file:
        return tuple([encode_line(event) for event in open_reader(file).events()])


def _open(process: Process, durability: Durability, names: list[str]) -> dict[str, Lines]:
    """Open every session to write, change nothing more, and end in order."""
    backend = make_backend(process, durability)
    found: dict[str, Lines] = {}
    for name in names:
        log = backend.open(name)
        found[name] = _lines(log.path, backend)
        log.close()
    backend.close()
    process.kill()
    return found


def _write(machine: Machine, durability: Durability, names: list[str]) -> dict[str, Lines]:
    """Open every session to write, append to all of them in one commit, and end in order."""
    process = machine.process()
    backend = make_backend(process, durability)
    found: dict[str, Lines] = {}
    logs = [backend.open(name) for name in names]
    items = []
    for log in logs:
        found[log.header.id] = _lines(log.path, backend)
        log.mend()
        log.append([note(_ADDED)], _TIME)
        items.append((log, log.seal()))
    for log, outcome in zip(logs, backend.commit(items), strict=True):
        if not isinstance(outcome, int):
            raise outcome
        log.acknowledge(outcome)
        log.close()
    backend.close()
    process.kill()
    return found


def _counts(sessions: dict[str, Lines]) -> str:
    return ", ".join(f"{name}: {len(lines)} events" for name, lines in sorted(sessions.items()))
