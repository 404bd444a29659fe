"""Workloads in which a journal makes the batches of many sessions durable."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable

from interlock.backends.errors import InterlockError

from .client import Client, turn, turn_end
from .file_mode import dying, first_publication, migration, nth_fault, spill
from .machine import Fault, Killed
from .workload import Faults, Stage, Workload


def publication(stage: Stage) -> None:
    """Two writers publish: three sessions in one record, one with a spill, one without events."""
    first, second = stage.client(), stage.client()

    def together() -> None:
        for name in ("a", "b", "c"):
            first.create(name, cwd="/" + name)
            first.append(name, turn(1))
        first.say("b", size=900)
        first.flush("a", "b", "c")
        first.say("a")
        first.flush("a", "c")
        spill(first, "c")

    def alone() -> None:
        second.create("d", cwd="/a")
        second.flush("d")
        second.create("e", cwd="/b")
        second.say("e", count=2, size=1200)
        second.flush("e", "d")

    stage.together(together, alone)
    for client in (first, second):
        client.stop()


def appends(stage: Stage) -> None:
    """One writer appends to three sessions, two or three of them in a record."""
    client = stage.client()
    names = ("a", "b", "c")
    for name in names:
        client.create(name)
        client.append(name, turn(1))
    client.flush(*names)
    for step, size in enumerate((30, 1100, 200, 500)):
        due = [name for i, name in enumerate(names) if (step + i) % 3]
        for name in due:
            client.say(name, count=1 + step % 2, size=size)
        client.flush(*due)
    client.append("a", turn_end(1))
    client.flush("a")
    client.stop()


def wrap(stage: Stage) -> None:
    """The journal fills, wraps and is retired by another thread while appends go on."""
    client = stage.client()
    names = ("a", "b", "c")

    def append() -> None:
        for name in names:
            client.create(name)
            client.say(name)
        client.flush(*names)
        for step in range(12):
            due = [names[step % 3]] if step % 4 else list(names)
            for name in due:
                client.say(name, size=stage.draw.choice((20, 300, 900)))
            client.flush(*due)

    def tend() -> None:
        for _ in range(30):
            client.backend.tend()
            client.process.pause()

    stage.together(append, tend)
    client.stop()


def unsynced_files(stage: Stage) -> None:
    """Session files' syncs fail, often twice, while the journal wraps and is retired."""
    client = stage.client()
    names = ("a", "b")
    with stage.unseen():
        for name in names:
            client.create(name)
            client.say(name)
        client.flush(*names)

    tries: Counter[str] = Counter()

    def fault(operation: str, path: str) -> Fault | None:
        if operation != "fdatasync" or "session" not in path:
            return None
        # In half of the runs the second try works, in the others nobody knows.
        tries[path] += 1
        fails = stage.draw.random() < 0.4 if stage.number % 2 else tries[path] % 2
        return Fault(errno.EIO) if fails else None

    client.process.fault = fault
    for step in range(15):
        client.say("a", size=60)
        if step % 3 == 0:
            client.say("b", size=700)
        client.insist(*names)
        if step % 2:
            quietly(client.backend.tend)
    client.process.fault = None
    client.stop()


def failures(stage: Stage) -> None:
    """Each operation fails in turn, some with a later one: journal, session files, successor."""
    client = stage.client()
    client.process.fault = nth_fault(stage)
    names = ("a", "b")
    for name in names:
        patiently(lambda name=name: client.create(name))
        client.append(name, turn(1))
    client.insist(*names)
    for step in range(7):
        due = [name for name in names if name in client.logs]
        if step % 3:
            due = due[:1]
        for name in due:
            client.say(name, size=60 + 500 * (step == 3))
        client.insist(*due, tries=1 + step % 3)
        if step % 2:
            quietly(client.backend.tend)
    if stage.number % 3:
        client.stop()
    else:
        client.kill()
    go_on(stage, *names)


def patiently(attempt: Callable[[], object]) -> None:
    """Try something again that a passing fault may refuse."""
    for _ in range(5):
        try:
            attempt()
        except InterlockError as error:
            if error.code != "LOG_WRITE_FAILED":
                raise
        else:
            return
    raise AssertionError("it is refused again and again")


def quietly(attempt: Callable[[], object]) -> None:
    """Do something whose failure is only reported."""
    try:
        attempt()
    except OSError:
        return


def go_on(stage: Stage, *names: str) -> None:
    """Another process opens each session that is there, and appends."""
    client = stage.client()
    for name in names:
        if client.backend.view().find(name) is not None:
            client.open(name)
            client.say(name)
            client.flush(name)
    client.stop()


def takeover(stage: Stage) -> None:
    """A writer dies anywhere; a second one continues one of its sessions; a third replays both."""
    first = stage.client()

    def begin() -> None:
        for name in ("a", "b"):
            first.create(name)
            first.append(name, turn(1))
        first.flush("a", "b")
        for size in (40, 700):
            first.say("a", size=size)
            first.say("b", size=size)
            first.flush("a", "b")
        first.say("b")
        first.flush("b")

    with stage.unseen():
        dying(first, "", begin, skip=stage.number % 60)
    first.kill()
    if stage.number % 3 == 0:
        stage.power_cut()
    second = stage.client()

    def continue_one() -> None:
        if second.backend.view().find("a") is None:
            return
        second.open("a")
        for _ in range(2):
            second.say("a", size=80)
            second.flush("a")
        if stage.number % 2:
            second.stop()

    dying(second, "", continue_one, skip=stage.draw.randrange(60))
    second.kill()
    if stage.number % 4 == 0:
        stage.power_cut()
    go_on(stage, "b", "a")


def failed_then_taken(stage: Stage) -> None:
    """Syncs fail, the pages are lost, the process dies before it could do anything about it."""
    first = stage.client()
    for name in ("a", "b"):
        first.create(name)
        first.say(name)
    first.flush("a", "b")
    first.say("a", size=600)
    first.say("b", size=200)
    first.flush("a", "b")
    kinds = ("fsync", "fdatasync", "sync_directory")
    wanted = range(stage.number % 7, stage.number % 7 + 1 + stage.number % 4)
    faults = Faults(stage, *wanted, kinds=kinds)
    first.process.fault = faults

    def work() -> None:
        for step in range(3):
            first.say("a", size=50)
            first.say("b", size=50)
            first.insist("a", "b", tries=2)
            if step:
                quietly(first.backend.tend)
        first.stop()

    deaths = stage.draw.randrange(40)
    die_late(first, faults, work, deaths)
    first.kill()
    go_on(stage, "a", "b")


def die_late(client: Client, faults: Faults, work: Callable[[], None], operations: int) -> None:
    """Do the work until the process dies at one of its operations, with faults before that."""
    left = [operations]

    def fault(operation: str, path: str):  # type: ignore[no-untyped-def]
        left[0] -= 1
        if left[0] < 0:
            client.kill()
            raise Killed
        return faults(operation, path)

    client.process.fault = fault
    try:
        work()
    except Killed:
        return


def replays(stage: Stage) -> None:
    """After a power cut several processes in a row die while they replay; the last one ends."""
    with stage.unseen():
        first = stage.client()
        for name in ("a", "b", "c"):
            first.create(name)
            first.say(name)
        first.flush("a", "b", "c")
        for step in range(3 + stage.number % 5):
            for name in ("a", "b", "c")[: 1 + step % 3]:
                first.say(name, size=stage.draw.choice((40, 400, 900)))
            first.flush(*("a", "b", "c")[: 1 + step % 3])
        if stage.number % 2:
            first.say("a", size=300)
            dying(first, "fdatasync", lambda: first.flush("a"))
        first.kill()
    stage.power_cut()
    for _ in range(3):
        dead = stage.client()

        def open_all(dead: Client = dead) -> None:
            for name in stage.draw.sample(("a", "b", "c"), 3):
                dead.open(name)
                dead.close(name)
            dead.stop()

        dying(dead, "", open_all, skip=stage.draw.randrange(60))
        dead.kill()
        if stage.draw.random() < 0.4:
            stage.power_cut()
    go_on(stage, "a", "b", "c")


def removal(stage: Stage) -> None:
    """A dead journal of two epochs is replayed and removed; its sessions go on."""
    with stage.unseen():
        first = stage.client()
        for name in ("a", "b"):
            first.create(name)
            first.say(name)
        first.flush("a", "b")
        first.process.fault = Faults(stage, 0, kinds=["fdatasync"])
        stage.recording = False
        first.say("a", size=80)
        first.insist("a")
        stage.recording = False
        first.process.fault = None
        if stage.number % 2:
            first.say("b", size=300)
            first.flush("b")
        first.kill()
        if stage.number % 3:
            stage.power_cut()
    go_on(stage, "b", "a")


def given_up(stage: Stage) -> None:
    """A batch fails with the journal's sync and is given up; others write where it would stand."""
    first = stage.client()
    with stage.unseen():
        for name in ("a", "b"):
            first.create(name)
            first.say(name)
        first.flush("a", "b")
        first.say("a", size=60 + 200 * (stage.number % 3))
        first.process.fault = Faults(stage, 0, kinds=["fdatasync"])
        first.flush("a")
        first.process.fault = None
    first.close("a")
    second = stage.client()
    second.open("a")
    second.say("a", size=90)
    second.flush("a")
    while first.backend.tend():
        first.process.pause()
    first.say("b")
    first.flush("b")
    first.stop()
    second.say("a")
    second.flush("a")
    if stage.number % 2:
        second.stop()
    else:
        second.kill()
    go_on(stage, "a", "b")


def torn_tail(stage: Stage) -> None:
    """File mode leaves a torn end and dies; a journaling writer mends it, with a dead journal."""
    with stage.unseen():
        for name in ("a", "b"):
            client = stage.client("file")
            client.create(name)
            client.append(name, turn(1))
            client.flush(name)
            if stage.number % 4 < 2:
                client.say(name, count=5, size=900)
            else:
                client.say_much(name)
            dying(client, "fdatasync", lambda client=client, name=name: client.flush(name))
        stage.tear()
    client = stage.client()
    for name in ("a", "b"):
        client.open(name)
    client.say("b")
    client.flush("b")
    client.logs["a"].mend()
    for _ in range(3):
        client.say("a")
        client.say("b")
        client.flush("a", "b")
        client.backend.tend()
    client.stop()


def long_batches(stage: Stage) -> None:
    """Batches too long for a record go into several; in most runs an operation fails."""
    client = stage.client()
    with stage.unseen():
        for name in ("a", "b"):
            client.create(name)
            client.append(name, turn(1))
        client.flush("a", "b")

    def work() -> None:
        for size in (60, 9000, 200, 9000):
            names = [name for name in ("a", "b") if name in client.logs]
            for name in names:
                client.say(name, size=size if name == "a" else 50)
            client.insist(*names, tries=2)

    if stage.draw.random() < 0.4:
        # Most often between the pieces.
        dying(client, "", work, skip=stage.draw.randrange(6, 24))
        client.kill()
        if stage.draw.random() < 0.5:
            stage.power_cut()
        go_on(stage, "a", "b")
        return
    client.process.fault = nth_fault(stage)
    work()
    client.process.fault = None
    if stage.number % 3:
        client.stop()
    else:
        client.kill()
    go_on(stage, "a", "b")


JOURNAL_MODE = (
    Workload("journal: first publication", "journal", publication),
    Workload("journal: creators race", "journal", first_publication),
    Workload("journal: two sessions a record", "journal", appends),
    Workload("journal: wrap and retirement", "journal", wrap),
    Workload("journal: files that do not sync", "journal", unsynced_files, runs=4),
    Workload("journal: failures and successor", "journal", failures, runs=120),
    Workload("journal: failed syncs, then death", "journal", failed_then_taken, runs=60),
    Workload("journal: taken over, then replayed", "journal", takeover, runs=60),
    Workload("journal: replay interrupted", "journal", replays, runs=10),
    Workload("journal: two epochs removed", "journal", removal, runs=6),
    Workload("journal: a batch given up", "journal", given_up, runs=6),
    Workload("journal: torn-tail rewrite", "journal", torn_tail, runs=4),
    Workload("journal: long batches", "journal", long_batches, runs=60),
    Workload("journal: migration", "journal", migration),
)
