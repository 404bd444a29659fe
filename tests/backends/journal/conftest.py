"""A writer with a journal, and what a power cut leaves of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from interlock.backends.errors import InterlockError
from interlock.backends.event import Draft, draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.log import SessionLog
from interlock.backends.reading import read_log
from interlock.backends.source import find_log

SEGMENT = 64 * 1024


def note(text: str, size: int = 0) -> Draft:
    return draft("interlock/notice", {"text": text, "fill": "x" * size}, ignorable=True)


class Host:
    """What the writer does with its logs: append, commit what is due, acknowledge."""

    def __init__(self, root: Path, disk, **options) -> None:
        options = {"durability": "journal", "segment_size": SEGMENT} | options
        self.root, self.disk = root, disk
        self.backend = JsonlBackend(root, disk=disk, **options)
        self.logs: dict[str, SessionLog] = {}

    def create(self, *ids: str) -> None:
        for i in ids:
            self.logs[i] = self.backend.create(Header(id=i, created_at=1, cwd="/work"))

    def open(self, session: str) -> SessionLog:
        self.logs[session] = self.backend.open(session)
        return self.logs[session]

    def commit(self, *ids: str, text: str = "", size: int = 0) -> list[int | InterlockError]:
        """Append one event to each session and commit them all at once."""
        items = []
        for i in ids:
            self.logs[i].append([note(text or i, size)], 5)
            items.append((self.logs[i], self.logs[i].seal()))
        return self.settle(items)

    def retry(self, *ids: str) -> list[int | InterlockError]:
        return self.settle([(self.logs[i], self.logs[i].seal()) for i in ids])

    def settle(self, items) -> list[int | InterlockError]:
        outcomes = list(self.backend.commit(items))
        for (log, batch), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, int):
                log.acknowledge(outcome)
            elif batch is not None:
                log.unseal(batch)
        return outcomes

    def file(self, session: str) -> Path:
        return self.logs[session].path

    def close(self) -> None:
        for log in self.logs.values():
            log.close()
        self.backend.close()


def texts(root: Path, session: str) -> list[str]:
    """What a reader sees that knows nothing of journals."""

    path = find_log(root / "--work--" / session, JsonlBackend(root).disk)
    return [event.data["text"] for event in read_log(path).events]


@pytest.fixture
def host(root: Path, disk, compression: str) -> Iterator[Host]:
    host = Host(root, disk, compression=compression)
    yield host
    disk.faults.clear()
    host.close()


@pytest.fixture
def power_cut(host: Host, tmp_path: Path):
    """Return a copy of the root as a cut leaves it: files of sessions at given lengths."""

    def cut(lengths: dict[str, int | None]) -> Path:
        after = tmp_path / "after"
        shutil.copytree(host.root, after)
        for session, length in lengths.items():
            path = after / host.file(session).relative_to(host.root)
            if length is None:
                shutil.rmtree(path.parent)
            else:
                with path.open("r+b") as file:
                    file.truncate(length)
        return after

    return cut


@pytest.fixture
def new_host(disk, compression: str):
    hosts: list[Host] = []

    def make(root: Path, **options) -> Host:
        hosts.append(Host(root, disk, compression=compression, **options))
        return hosts[-1]

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def see():
    return texts
