"""Workloads in which every batch is synced in its session's own file."""

from __future__ import annotations

import json
from typing import Any

from interlock.backends import frames
from interlock.backends.errors import InterlockError
from interlock.backends.paths import log_name, project_dir_name

from .client import CWD, ROOT, Client, call_of, read_lines, spilled_result, step_end, turn, turn_end
from .notes import Note
from .workload import Faults, Stage, Workload


def first_publication(stage: Stage) -> None:
    """Several processes publish sessions at once, in new and in shared directories."""
    first, second, third = (stage.client() for _ in range(3))

    def publish(client: Client, *names: str) -> None:
        for name in names:
            client.create(name, cwd="/" + name[0])
            if name != "b-empty":
                client.append(name, turn(1))
                client.say(name)
            client.insist(name)

    stage.together(
        lambda: publish(first, "a1", "a2"),
        lambda: publish(second, "a3", "b-empty"),
        lambda: publish(third, "c1", "b1"),
    )
    race(stage)
    for client in (first, second, third):
        client.stop()


def race(stage: Stage) -> None:
    """Two processes publish one id with the same content; one of them wins (L7)."""
    racers = [stage.client(), stage.client()]
    for racer in racers:
        racer.notes = {}

    def publish(client: Client) -> None:
        try:
            client.create("raced")
        except InterlockError:
            # The other one was there before.
            return
        client.append("raced", turn(1))
        note = client.notes["raced"]
        known = stage.notes.setdefault("raced", note)
        stage.notes["raced"] = known._replace(allowed=0)
        if client.flush("raced"):
            stage.notes["raced"] = known._replace(allowed=0, acknowledged=0, published=True)

    stage.together(*[lambda racer=racer: publish(racer) for racer in racers])
    for racer in racers:
        racer.stop()


def appends(stage: Stage) -> None:
    """Three processes append to a session each, with a result beside the log in one of them."""
    clients = {name: stage.client() for name in ("a", "b", "c")}

    def work(name: str, client: Client) -> None:
        client.create(name)
        client.append(name, turn(1))
        client.flush(name)
        for size in (20, 700, 60):
            client.say(name, count=2, size=size)
            client.flush(name)
        if name == "b":
            spill(client, name)
        client.append(name, turn_end(1))
        client.flush(name)
        client.stop()

    stage.together(
        *[lambda name=name, client=client: work(name, client) for name, client in clients.items()]
    )


def spill(client: Client, name: str) -> None:
    """Record a call whose result is a file beside the log (P7)."""
    client.append(name, *call_of("call", 1))
    seq = len(client.notes[name].lines) - 1
    client.append(name, spilled_result("call", 1, seq, b"a long result " * 20), step_end(1))
    client.flush(name)


def failed_appends(stage: Stage) -> None:
    """Each operation fails in turn, alone or with one of the next, and the client tries again."""
    client = stage.client()
    client.create("s")
    client.process.fault = nth_fault(stage)
    client.append("s", turn(1))
    client.insist("s")
    for round_number in range(4):
        if "s" not in client.logs:
            break
        client.say("s", size=40 + 300 * (round_number == 2))
        client.insist("s", tries=1 + round_number % 2)
    if "s" in client.logs and round_number:
        client.say("s")
        spill_late(client)
    client.kill()
    after_failure(stage)


def nth_fault(stage: Stage) -> Faults:
    """Return faults for the run: none in the first two, then each operation in turn, both ways."""
    nth, again = divmod(stage.number - 2, 4)
    if stage.number < 2:
        return Faults(stage)
    wanted = {nth}
    if again >= 2:
        wanted |= {nth + stage.draw.randrange(1, 4), nth + stage.draw.randrange(1, 8)}
    return Faults(stage, *wanted)


def spill_late(client: Client) -> None:
    """A spilled result in a session that may have failed batches before it."""
    spill(client, "s")
    client.insist("s")


def after_failure(stage: Stage) -> None:
    """Another process goes on. A file whose put-back failed is not believed before a restart."""
    stage.power_cut()
    client = stage.client()
    if client.backend.find("s") is None:
        return
    client.open("s")
    client.say("s")
    client.flush("s")
    client.stop()


def torn_tail(stage: Stage) -> None:
    """A power cut tears the ends of two logs; they are opened, mended and continued."""
    names = ("a", "b")
    with stage.unseen():
        for name in names:
            client = stage.client()
            client.create(name)
            client.append(name, turn(1))
            client.flush(name)
            if stage.number % 4 < 2:
                client.say(name, count=5, size=900)
            else:
                client.say_much(name)
            dying(client, "fdatasync", lambda client=client, name=name: client.flush(name))
        stage.power_cut()
    clients = {name: stage.client() for name in names}

    def go_on(name: str, client: Client) -> None:
        client.open(name)
        client.logs[name].mend()
        for _ in range(2):
            client.say(name)
            client.flush(name)
        client.stop()

    stage.together(
        *[lambda name=name, client=client: go_on(name, client) for name, client in clients.items()]
    )


def dying(client: Client, operation: str, body, skip: int = 0) -> bool:
    """Run ``body`` until the client's process dies at an operation; tell whether it did."""
    from .machine import Killed

    left = [skip]

    def fault(met: str, path: str) -> None:
        if operation in (met, ""):
            left[0] -= 1
            if left[0] < 0:
                client.kill()
                raise Killed

    client.process.fault = fault
    try:
        body()
    except Killed:
        return True
    client.process.fault = None
    return False


def migration(stage: Stage) -> None:
    """Two logs of the oldest generation are opened to write and get a turn each."""
    names = ("old1", "old2")
    tree = stage.machine.tree()
    for name in names:
        directory = f"{ROOT}/{project_dir_name(CWD)}/{name}"
        path = f"{directory}/{log_name(0, compressed=stage.compression == 'zstd')}"
        content = old_log(name, compressed=stage.compression == "zstd")
        tree[path] = content
        stage.notes[name] = Note(directory, published=True, kept={path: content})
    stage.use(tree)
    process = stage.machine.process()
    from pathlib import Path

    for name, note in stage.notes.items():
        lines = read_lines(Path(next(iter(note.kept))), process)
        last = len(lines) - 1
        stage.notes[name] = note._replace(lines=lines, acknowledged=last, allowed=last)
    clients = {name: stage.client() for name in names}

    def go_on(name: str, client: Client) -> None:
        client.open(name)
        client.append(name, turn(2))
        client.flush(name)
        client.say(name)
        client.append(name, turn_end(2))
        client.flush(name)
        client.stop()

    stage.together(
        *[lambda name=name, client=client: go_on(name, client) for name, client in clients.items()]
    )


def old_log(name: str, *, compressed: bool) -> bytes:
    """Return a log of generation 0 with one turn."""
    header = {
        "type": "session",
        "version": 0,
        "id": name,
        "createdAt": 1,
        "cwd": CWD,
        "delegationDepth": 0,
    }
    message = {
        "id": "u",
        "role": "user",
        "source": {"kind": "user"},
        "content": [{"type": "text", "text": f"hello {name}"}],
    }
    rows: list[dict[str, Any]] = [
        {"type": "turn/start", "data": {"turn": 1}},
        {"type": "step/start", "data": {"turn": 1, "step": 1}},
        {"type": "user/message", "data": message, "surfaceOp": "append"},
        {"type": "step/end", "data": {"turn": 1, "step": 1}},
        {"type": "turn/end", "data": {"turn": 1, "reason": {"kind": "completed"}}},
    ]
    head = json.dumps(header).encode() + b"\n"
    lines = b"".join(
        json.dumps({"seq": seq, "time": 1000 + seq} | row).encode() + b"\n"
        for seq, row in enumerate(rows)
    )
    return frames.encode(head) + frames.encode(lines) if compressed else head + lines


def takeover(stage: Stage) -> None:
    """The writer dies at any operation, another goes on and dies as well, a third one ends."""
    first = stage.client()

    def begin() -> None:
        first.create("s")
        first.append("s", turn(1))
        first.flush("s")
        for size in (30, 600):
            first.say("s", size=size)
            first.flush("s")

    with stage.unseen():
        dying(first, "", begin, skip=stage.number // 2 % 45)
    first.kill()
    second = stage.client()
    if second.backend.find("s") is None:
        second.stop()
        return

    def go_on() -> None:
        second.open("s")
        for size in (20, 900):
            second.say("s", size=size)
            second.flush("s")

    dying(second, "", go_on, skip=stage.draw.randrange(32))
    second.kill()
    third = stage.client()
    third.open("s")
    for size in (700, 20):
        third.say("s", size=size)
        third.flush("s")
    third.stop()


FILE_MODE = (
    Workload("file: first publication", "file", first_publication),
    Workload("file: appends", "file", appends),
    Workload("file: failed appends", "file", failed_appends, runs=100),
    Workload("file: torn-tail rewrite", "file", torn_tail),
    Workload("file: migration", "file", migration),
    Workload("file: takeover", "file", takeover, runs=90),
)
