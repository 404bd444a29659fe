"""X2: tools travel to a real worker process, or are refused when they are registered."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import ModuleType

import pytest
from interlock.actors.tools import ToolNotPortableError, tool
from interlock.actors.tools.pack import PACK_LIMIT, pack, unpack

WORKER = """
import sys, json, threading
from interlock.actors.tools.pack import unpack
from interlock.actors.bodies import BodyJob, BodyRunner
tool = unpack(open(sys.argv[1], "rb").read())
ended = threading.Event(); got = []
BodyRunner().start(
    BodyJob(number=1, tool=tool, arguments=sys.argv[2].encode(), call_id="c9", session_id="s"),
    lambda done: (got.append(done), ended.set()))
ended.wait(20)
outcome = got[0].outcome
print(json.dumps([outcome.ok, outcome.message or outcome.value_object(), tool.__module__]))
"""

SCRIPT = """
from __future__ import annotations
import dataclasses, sys
from typing import Literal
import pydantic
from interlock.actors.tools import ToolContext, tool
from interlock.actors.tools.pack import pack

class Invoice(pydantic.BaseModel):
    number: int
    paid: bool = False

@dataclasses.dataclass
class Line:
    cents: int
    tags: list[str] = dataclasses.field(default_factory=list)

@tool
def later(what: "Later") -> int:      # a type defined further down, a tool used by another tool
    return what.n

class Later(pydantic.BaseModel):
    n: int

RATE = 3
def helper(n): return n * RATE

@tool(effect="write", approval="ask")
def bill(ctx: ToolContext, invoice: Invoice, lines: list[Line], kind: Literal["a", "b"] = "a"):
    "Bill it."
    if kind == "b":
        return bill.fn(ctx, invoice, lines)
    late = later.coerce(b'{"what":{"n":4}}')["what"].n
    return {"n": helper(invoice.number), "cents": sum(l.cents for l in lines), "call": ctx.call_id,
            "tags": lines[0].tags, "name": bill.name, "later": late}

open(sys.argv[1], "wb").write(pack(bill))
"""


def in_worker(packed: bytes, arguments: object, tmp_path: Path) -> list[object]:
    (tmp_path / "tool").write_bytes(packed)
    command = [sys.executable, "-c", WORKER, str(tmp_path / "tool"), json.dumps(arguments)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def test_X2_a_scripts_tool_travels_by_value_with_types_and_helpers(tmp_path: Path) -> None:
    # Text annotations name globals that the function's code never mentions; they must come along.
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    subprocess.run([sys.executable, str(script), str(tmp_path / "out")], check=True, timeout=60)
    script.unlink()
    given = {"invoice": {"number": 7}, "lines": [{"cents": 5}, {"cents": 6}], "kind": "b"}
    ok, value, module = in_worker((tmp_path / "out").read_bytes(), given, tmp_path)
    assert (ok, module) == (True, "__main__")
    assert value == {"n": 21, "cents": 11, "call": "c9", "tags": [], "name": "bill", "later": 4}


def test_X2_an_importable_tool_travels_as_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped_tools.py").write_text(
        textwrap.dedent("""
        import threading
        from interlock.actors.tools import tool
        LOCK = threading.Lock()          # would not travel by value
        @tool
        def locked(n: int) -> int:
            with LOCK:
                return n + 1
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    import shipped_tools  # type: ignore[import-not-found]

    packed = pack(shipped_tools.locked)
    assert len(packed) < 200
    assert in_worker(packed, {"n": 1}, tmp_path) == [True, 2, "shipped_tools"]


BY_FILE = """
import dataclasses
import sqlite3
from interlock.actors.tools import tool

@dataclasses.dataclass
class Point:
    x: int

def shift(point):
    return point.x + 1

@tool
def use(point: Point) -> int:
    return shift(point)

db = sqlite3.connect(":memory:")

def through():
    return db.total_changes

@tool
def query() -> int:
    return through()
"""


@pytest.fixture
def by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module loaded from a file, under a name that no import finds, as a plug-in might be."""
    path = tmp_path / "plugin.py"
    path.write_text(BY_FILE)
    spec = importlib.util.spec_from_file_location("loaded_by_file", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "loaded_by_file", module)
    spec.loader.exec_module(module)
    return module


def test_X2_a_module_that_no_import_finds_travels_by_value(
    by_file: ModuleType, tmp_path: Path
) -> None:
    assert in_worker(pack(by_file.use), {"point": {"x": 4}}, tmp_path)[:2] == [True, 5]


def test_a_worker_that_lacks_the_module_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone_tools.py").write_text(
        "from interlock.actors.tools import tool\n@tool\ndef gone() -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import gone_tools  # type: ignore[import-not-found]

    packed = pack(gone_tools.gone)
    monkeypatch.delitem(sys.modules, "gone_tools")
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p != str(tmp_path)])
    with pytest.raises(ToolNotPortableError, match=r"gone_tools.*host's sys\.path"):
        unpack(packed)


db = sqlite3.connect(":memory:", check_same_thread=False)
lock = threading.Lock()


def test_a_global_that_cannot_travel_is_named_with_the_remedy() -> None:
    @tool
    def query() -> object:
        return db.total_changes

    with pytest.raises(TypeError) as caught:
        pack(query)
    words = str(caught.value)
    assert "tool query cannot travel to a worker: it uses 'db', a sqlite3.Connection" in words
    assert "Open it inside the body" in words
    assert "place='host'" in words


def test_a_global_of_a_helper_is_named_with_the_way_to_it(by_file: ModuleType) -> None:
    with pytest.raises(ToolNotPortableError, match=r"'db' \(through through\)") as caught:
        pack(by_file.query)
    assert caught.value.path == ("through", "db")


def test_closures_defaults_and_partials_are_searched_too() -> None:
    held = threading.Lock()

    def closure() -> bool:
        return held.locked()

    def default(n: int, guard: object = lock) -> None: ...

    partial = functools.partial(default, guard=lock)
    with pytest.raises(ToolNotPortableError, match=r"it uses 'held', a _thread\.lock"):
        pack(tool(closure))
    with pytest.raises(ToolNotPortableError, match=r"it uses 'default 0', a _thread\.lock"):
        pack(tool(default))
    with pytest.raises(ToolNotPortableError, match=r"it uses 'guard', a _thread\.lock"):
        pack(tool(partial, name="partial"))


def test_what_reconcile_uses_is_searched_too() -> None:
    @tool
    def pay() -> None: ...

    @pay.reconcile
    def look_up(call: object) -> object:
        return db.total_changes

    with pytest.raises(ToolNotPortableError, match="'db'"):
        pack(pay)


blob = bytes(PACK_LIMIT + 1)


def test_a_tool_that_drags_data_along_is_refused_naming_it() -> None:
    @tool
    def scan() -> int:
        return len(blob)

    with pytest.raises(ToolNotPortableError, match="the most of it is 'blob'"):
        pack(scan)


def test_host_tools_are_never_packed() -> None:
    @tool(place="host")
    def query() -> object:
        return db.total_changes

    with pytest.raises(ValueError, match="never packed"):
        pack(query)


def test_only_a_tool_is_unpacked() -> None:
    with pytest.raises(ToolNotPortableError, match="dict, not a tool"):
        unpack(b"\x80\x04}\x94.")
    with pytest.raises(ToolNotPortableError, match="could not be loaded"):
        unpack(b"junk")
