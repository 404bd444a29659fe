"""Every shipped backend passes the tests that other people's backends are given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from interlock.actors import Runtime, ToolCall, tool
from interlock.actors.errors import RuntimeFailureError
from interlock.backends.conformance import LogConformance
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.memory import MemoryBackend

from tests.flood.recording import RecordingDisk
from tests.flood.remains import take_away


class Jsonl(LogConformance):
    durability = "file"
    compression = "zstd"

    @pytest.fixture(autouse=True)
    def _backends(self) -> None:
        self.made: list[tuple[Path, Path]] = []

    def make_backend(self, place: Path) -> JsonlBackend:
        place.mkdir(exist_ok=True)
        notes = place.with_name(f"{place.name}.notes-{len(self.made)}")
        graves = place.with_name(f"{place.name}.graves-{len(self.made)}")
        disk = RecordingDisk(notes, graves)
        how = {"durability": self.durability, "compression": self.compression}
        backend = JsonlBackend(place, disk=disk, segment_size=64 * 1024, **how)
        self.made.append((notes, graves))
        return backend

    def after_power_loss(self, backend: JsonlBackend, place: Path) -> JsonlBackend | None:
        if not backend.power_loss_durable:
            return None
        # What the dead writer had open does not matter to a copy of the disk.
        [(notes, graves)] = self.made
        take_away(place, notes, graves, keep=None, prefix=True)
        after = place.with_name(place.name + "-after")
        shutil.copytree(place, after)
        return JsonlBackend(after)


class TestFile(Jsonl):
    pass


class TestFileRaw(Jsonl):
    compression = "none"


class TestJournal(Jsonl):
    durability = "journal"


class TestJournalRaw(Jsonl):
    durability = "journal"
    compression = "none"


class TestNotDurable(Jsonl):
    durability = "none"


class TestMemory(LogConformance):
    shares = False

    def make_backend(self, place: Path) -> MemoryBackend:
        return MemoryBackend()


@tool(effect="read")
def add(a: int, b: int) -> int:
    "Add."
    return a + b


MEMORY = "interlock.backends.memory:make"


def test_K7_a_runtime_takes_a_backend_that_promises_nothing_only_when_told_so(tmp_path) -> None:
    with pytest.raises(RuntimeFailureError, match="does not promise"):
        Runtime(tmp_path, backend=MEMORY)
    with Runtime(tmp_path, backend=MEMORY, durability="none", tools=[add], workers=1) as runtime:
        session = runtime.create("s", cwd=tmp_path)
        with session.turn("add") as turn, turn.step() as step:
            step.assistant("", [ToolCall("c1", "add", {"a": 1, "b": 2})])
            [result] = step.execute()
        assert result.value == 3
        events = list(session.events)
        assert [event.seq for event in events] == list(range(len(events)))
        assert events[0].data["durability"] == "none"
        session.close()
        again = runtime.open("s")
        assert len(list(again.events)) >= len(events)
    assert not list(tmp_path.iterdir())


def test_a_backend_whose_name_is_none_is_refused_where_it_is_given(tmp_path) -> None:
    with pytest.raises(ValueError, match=r"package\.module:factory"):
        Runtime(tmp_path, backend="nothing")
    with pytest.raises(RuntimeFailureError, match="no_such_module"):
        Runtime(tmp_path, backend="no_such_module:make")


def test_a_backend_that_breaks_a_clause_is_found_out(tmp_path: Path) -> None:
    module = tmp_path / "test_broken.py"
    module.write_text(
        "from interlock.backends.conformance import LogConformance\n"
        "from interlock.backends.memory import MemoryBackend\n"
        "class Broken(MemoryBackend):\n"
        "    def commit(self, items):\n"
        "        return [log.fold.next_seq - 1 for log, _ in items]\n"
        "class TestBroken(LogConformance):\n"
        "    shares = False\n"
        "    def make_backend(self, place):\n"
        "        return Broken()\n"
    )
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(module)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=dict(os.environ))
    assert done.returncode == 1
    for clause in ("test_L4_one_commit", "test_L16_what_was_committed", "test_L11_a_log_has_one"):
        assert f"FAILED test_broken.py::TestBroken::{clause}" in done.stdout
