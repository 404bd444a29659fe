"""A workload, and what it runs on: one seed gives one run, with a cut at each file operation."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from interlock.backends.jsonl import Durability

from .client import ROOT, Client, Compression
from .cut import Cut, Tree
from .machine import Fault, Machine, Process
from .notes import Note, Notes
from .places import current_place
from .remains import Model, Remains
from .turns import Turns, in_one_thread, steady_names, taking_turns


class Workload(NamedTuple):
    """What is run. ``durability`` is the clients'; it says what is assumed of the disk as well."""

    name: str
    durability: Durability
    run: Callable[[Stage], None]
    #: How many runs go through all of its cases, where it has any.
    runs: int = 1

    @property
    def model(self) -> Model:
        """What a power cut may leave of a file under this durability's assumptions."""
        return "sectors" if self.durability == "journal" else "prefix"


class Moment(NamedTuple):
    """A cut point and what the client knew then."""

    cut: Cut
    notes: dict[str, Note]


class Stage:
    """One run of a workload: the machine, the clients' notes, and the cuts taken so far."""

    def __init__(self, workload: Workload, number: int, seed: int, without: str | None) -> None:
        #: Which run of the workload this is; systematic workloads go through their cases by it.
        self.number = number
        self.draw = random.Random(f"{seed} {number} {workload.name}")
        self.durability = workload.durability
        self.model: Model = workload.model
        self.compression: Compression = "none" if number % 2 else "zstd"
        self.machine = Machine.of({str(ROOT.parent): None})
        self.notes: Notes = {}
        self.moments: list[Moment] = []
        self.reached: set[str] = set()
        self._turns = Turns(self.draw)
        self._workload = workload
        self._without = without
        self.recording = True
        #: Whether cuts are taken at all; without them the workload only runs.
        self.cutting = True
        self._start(self.machine)

    def use(self, tree: Tree) -> None:
        """Go on with another disk: what a power cut left, say. Nothing is open on it."""
        self.machine = Machine.of(tree)
        self._start(self.machine)

    def client(self, durability: Durability | None = None) -> Client:
        """Start a process."""
        return Client(
            self.machine,
            self.notes,
            durability or self.durability,
            self.compression,
            seed=self.draw.randrange(1 << 30),
        )

    def together(self, *bodies: Callable[[], None]) -> None:
        """Run bodies in turns that the seed says; no other process than theirs is running."""
        self._turns.run(*bodies)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """Take no cuts: what happens is only the beginning of the story."""
        self.recording = False
        try:
            yield
        finally:
            self.recording = True

    def power_cut(self) -> None:
        """Go on with one of the disks that a power cut could leave now."""
        self.use(Cut(self.machine, "").any_disk(self.model, self.draw))

    def tear(self) -> None:
        """Go on after a power cut that left a prefix of what was not synced (file mode)."""
        self.use(Cut(self.machine, "").any_disk("prefix", self.draw))

    def run(self) -> BaseException | None:
        """Run the workload to its end, the last cut included; return what it raised."""
        raised: BaseException | None = None
        # Runs name alike what is alike in them, so that equal disks are seen to be equal.
        with taking_turns(self._turns), in_one_thread(), steady_names("names of a run"):
            try:
                self._workload.run(self)
            except Exception as error:
                raised = error
        self._take("the end")
        return raised

    def _start(self, machine: Machine) -> None:
        machine.watch = self._watch
        machine.wanted = self._wanted
        machine.survivors = self._survivor

    def _watch(self, process: Process, operation: str, path: str) -> None:
        self._turns.switch()
        self._take(f"{operation} {path}")

    def _take(self, operation: str) -> None:
        if self.recording and self.cutting:
            self.moments.append(Moment(Cut(self.machine, operation), dict(self.notes)))

    def _wanted(self, operation: str) -> bool:
        place = current_place()
        self.reached.add(place)
        return place != self._without

    def _survivor(self, file) -> bytes:  # type: ignore[no-untyped-def]
        remains = Remains(file.durable, file.pending, self.model)
        return remains.content(self.draw.randrange(remains.count))


class Faults:
    """Fails given operations of a process, counted from now on.

    What happens before the first of them happens in every run: cuts are taken from there on.
    """

    def __init__(self, stage: Stage, *wanted: int, kinds: Iterable[str] = ()) -> None:
        self._stage = stage
        self._wanted = frozenset(wanted)
        self._kinds = frozenset(kinds)
        self._draw = stage.draw
        self.seen = 0
        stage.recording = not wanted

    def __call__(self, operation: str, path: str) -> Fault | None:
        if self._kinds and operation not in self._kinds:
            return None
        number, self.seen = self.seen, self.seen + 1
        if number not in self._wanted:
            return None
        self._stage.recording = True
        if operation in ("write", "pwrite"):
            part = self._draw.randrange(400)
            return Fault(self._draw.choice([errno.EIO, errno.ENOSPC, None]), part or 1)
        return Fault(self._draw.choice([errno.EIO, errno.ENOSPC]))
