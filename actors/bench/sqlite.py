"""SQLite as people use it for this: WAL, full sync, every event committed by itself."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter_ns

from .slices import Load, Slice

#: Threads at most, each with a connection: more of them only wait for each other longer.
THREADS = 64

_BODY = '{"command":"ls -la"}'.ljust(200)


@contextmanager
def sqlite_loads(root: Path, counts: list[int]) -> Iterator[dict[int, Load]]:
    """A load for each number of clients, all in one database.

    An acknowledged commit survives power loss (``synchronous=FULL`` syncs the write-ahead log).
    """
    path = root / "peer.sqlite"
    with _connect(path) as first:
        first.execute(
            "create table ev(session text, seq integer, body text, primary key(session, seq)) "
            "without rowid"
        )
    lanes = [_Lane(path, number) for number in range(min(THREADS, max(counts)))]
    try:
        yield {count: _load(lanes[: min(THREADS, count)]) for count in counts}
    finally:
        for lane in lanes:
            lane.close()


class _Lane:
    """One client: a connection and a session of its own."""

    def __init__(self, path: Path, number: int) -> None:
        self._connection = _connect(path)
        self._session = f"s{number}"
        self._seq = 0

    def run(self, seconds: float, done: Slice) -> None:
        until = perf_counter_ns() + int(seconds * 1e9)
        now = 0
        while now < until:
            begin = perf_counter_ns()
            self._seq += 1
            row = (self._session, self._seq, _BODY)
            self._connection.execute("insert into ev values(?, ?, ?)", row)
            now = perf_counter_ns()
            done.latency.record(now - begin)
            done.cycle.record(now - begin)

    def close(self) -> None:
        self._connection.close()


def _load(lanes: list[_Lane]) -> Load:
    def load(seconds: float) -> Slice:
        parts = [Slice() for _ in lanes]
        begin = perf_counter_ns()
        threads = [
            threading.Thread(target=lane.run, args=(seconds, part))
            for lane, part in zip(lanes, parts, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = Slice()
        for part in parts:
            whole.add(part)
        whole.elapsed_ns = perf_counter_ns() - begin
        return whole

    return load


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=60)
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    return connection
