"""Verifying many logs at once: other processes read, this one collects.

``python -m interlock.backends.verify_pool ROOT`` is one of those processes. It gets a log on each
line of its standard input and answers with one line each, as JSON. It ends at once when its input
does, in the middle of a log too: the process that asked is gone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

#: Bytes on disk under which other processes take longer to start than the reading takes.
WORTHWHILE = 16 * 1024 * 1024

_MODULE = "interlock.backends.verify_pool"
#: Seconds after which a wait looks whether somebody pressed Ctrl-C.
_PATIENCE = 0.2


class Task(NamedTuple):
    """A log to verify: its place in the report, where it is, whose it should be, its bytes."""

    place: int
    path: Path
    session_id: str | None
    size: int


Entry = dict[str, Any]


def verify_elsewhere(
    root: Path, tasks: Iterable[Task], processes: int, done: Callable[[Task, Entry], None]
) -> None:
    """Have ``processes`` others verify logs; ``done`` is called with each, in this thread.

    ``OSError`` if a process cannot be started or ends before its time. Whatever ends this call ends
    the processes.
    """
    # The longest first: nobody waits for one that was begun last.
    waiting = sorted(tasks, key=lambda task: task.size)
    left = len(waiting)
    results: SimpleQueue[tuple[Task, Entry] | OSError] = SimpleQueue()
    workers: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(min(processes, left)):
            worker = _start(root)
            workers.append(worker)
            Thread(target=_serve, args=(root, worker, waiting, results), daemon=True).start()
        while left:
            try:
                result = results.get(timeout=_PATIENCE)
            except Empty:
                continue
            if isinstance(result, OSError):
                raise result
            done(*result)
            left -= 1
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _start(root: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", _MODULE, os.fspath(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C is for the process that asked; it ends the others.
        start_new_session=True,
    )


def _serve(
    root: Path,
    worker: subprocess.Popen[bytes],
    waiting: list[Task],
    results: SimpleQueue[tuple[Task, Entry] | OSError],
) -> None:
    """Give one process a log after the other; a thread of its own."""
    questions, answers = worker.stdin, worker.stdout
    if questions is None or answers is None:
        return
    try:
        while True:
            try:
                task = waiting.pop()
            except IndexError:
                return
            asked = {"path": os.fsencode(task.path).hex(), "id": task.session_id}
            questions.write(json.dumps(asked).encode() + b"\n")
            questions.flush()
            results.put((task, json.loads(answers.readline())))
    except (OSError, ValueError) as error:
        # A line that is none: the process has ended.
        results.put(OSError(f"a process that verifies logs under {root} has ended: {error}"))


def main() -> None:
    """Answer until the input ends."""
    from .disk import OsDisk
    from .journal.overlay import OverlayDisk
    from .verify import verify_log

    disk = OverlayDisk(Path(sys.argv[1]), OsDisk())
    asked: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_hear, args=(asked,), daemon=True).start()
    while True:
        question = json.loads(asked.get())
        path = Path(os.fsdecode(bytes.fromhex(question["path"])))
        entry = verify_log(path, question["id"], disk)
        sys.stdout.buffer.write(json.dumps(entry).encode() + b"\n")
        sys.stdout.buffer.flush()


def _hear(asked: SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        asked.put(line)
    # Nobody waits for an answer any more.
    os._exit(0)


if __name__ == "__main__":
    main()
