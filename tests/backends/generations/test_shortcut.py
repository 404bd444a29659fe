"""The short way of reading an old log must end where the long way does, whatever the log says."""

from __future__ import annotations

import copy
import json
from array import array
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
from interlock.backends.disk import OsDisk
from interlock.backends.errors import SessionError
from interlock.backends.frames import encode
from interlock.backends.generations.current import Chain, MigratingReader
from interlock.backends.generations.refusal import Refusal
from interlock.backends.generations.stored import StoredPass
from interlock.backends.paths import log_name
from interlock.backends.source import LogFile

SAMPLES = Path(__file__).parents[3] / ".." / "shared" / "dsh" / "samples"
Rows = list[dict[str, Any]]

#: What a value is replaced by, one at a time.
ODD = (
    None,
    True,
    0,
    1,
    1.0,
    "",
    "call",
    [],
    {},
    [0],
    "append",
    "v2-to-v3-system-x",
)


_OTHER = {"provider": "q", "model": "m"}
_MARKED = {"maxTokens": True}
_STARTED = {"retryId": "r", "turn": 1, "step": 1, "retry": 1}
_RETRY = {
    **_STARTED,
    "provider": "p",
    "mode": "normal",
    "policyKey": "k",
    "delayMs": 5,
    "maxRetries": 3,
    "failure": {"message": "m", "code": "c"},
}
_BLOCK = ("data", "message", "content", 0)


def picture(value: Any) -> Any:
    """Return an object's whole state as plain values."""
    if isinstance(value, dict):
        return {key: picture(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | array):
        return [picture(item) for item in value]
    if isinstance(value, msgspec.Struct) or not type(value).__module__.startswith("interlock"):
        return value
    names = list(getattr(value, "__dict__", ())) + list(getattr(value, "__slots__", ()))
    # The event before only matters if it fills the inbox, and none of those goes the short way.
    left_out = ("_previous", "_rules")
    return {name: picture(getattr(value, name)) for name in names if name not in left_out}


def taken(path: Path, *, short: bool) -> Any:
    """Return what became of a log: everything that is known at its end, or why it is refused."""
    try:
        with LogFile(path, OsDisk()) as file:
            rows = StoredPass(file)
            chain = Chain(rows.header)
            if short:
                chain.read(rows.lean_batches())
            else:
                for _ in chain.events(rows.items()):
                    pass
            return picture(chain)
    except (Refusal, SessionError) as error:
        return type(error), str(error), getattr(error, "seq", None)


def whole(old: Any, version: int) -> Rows:
    """Three turns with all that goes the short way, and what they are cited by at the end."""
    rows: Rows = [old.turn(1), old.step(1), old.request(system="Be kind."), old.user("u")]
    rows += [old.answer({"type": "text", "text": "hello"}, sourceEventSeqs=[]), old.step_end(1)]
    rows += [old.turn_end(1), old.turn(2), old.step(1, 2), old.user("w")]
    first = len(rows)
    place = {"turn": 2, "step": 1}
    rows += [
        old.chunk("block-start", **place, index=0, blockType="text"),
        old.chunk("text-delta", **place, index=0, text="a"),
        old.chunk("text-delta", **place, index=0, text="b"),
        old.chunk("block-end", **place, index=0, block={"type": "text", "text": "ab"}),
        old.chunk("finish", **place, reason={"kind": "tool-calls"}),
    ]
    tools = [old.tool("call"), old.tool("other")]
    cited = list(range(first, len(rows)))
    rows.append(old.answer(*tools, turn=2, sourceEventSeqs=cited))
    rows += [old.call("call", 2), old.call("other", 2)]
    rows += [old.result("call", 2, sourceEventSeqs=[len(rows) - 2]), old.result("other", 2)]
    rows += [old.step_end(1, 2), old.step(2, 2), old.user("note")]
    rows += [old.answer(turn=2, step=2), old.step_end(2, 2), old.turn_end(2)]
    title = {"title": "t", "messageSeqs": [3, 9], "source": {"kind": "fallback"}}
    rows += [{"type": "session/title", "data": title}, old.turn(3), old.step(1, 3)]
    instead = old.result("call", 2, sourceEventSeqs=[18])
    instead["surfaceOp"] = {"op": "replace", "start": 18, "end": 18}
    return numbered([*rows, instead])


def winding(old: Any, _version: int) -> Rows:
    """What leaves the short way and comes back to it: streams cut short, compactions, a seed."""
    rows: Rows = [old.turn(1), old.step(1), old.request(), old.user("u")]
    note = old.event("todo/write", todos=[])
    one = old.chunk("text-delta", index=0, text="a")
    end = old.chunk("finish", reason={"kind": "stop"})
    call = {"turn": 1, "step": 1, "callId": "c", "name": "t", "arguments": "{}"}
    rows += [one, note, one, end, old.answer(old.tool("c"), sourceEventSeqs=[4, 6, 7])]
    rows += [old.event("tool/call", **call), one, end, old.result("c")]
    rows += [old.event("llm/retry", **_RETRY), old.event("llm/retry-started", **_STARTED)]
    rows += [old.request(config=_OTHER, tools=[], adapterDefaults={}, system="")]
    rows += [old.event("request/context", **_OTHER, contextWindow=5)]
    rows += [old.event("llm/retry", **_RETRY | {"provider": "q", "retryId": "s"})]
    rows += [old.event("llm/retry-started", **_STARTED | {"retryId": "s"})]
    rows += [one, old.user("between"), end, old.step_end(1), old.turn_end(1)]
    place = {"turn": 2, "step": 1}
    one = old.chunk("text-delta", **place, index=0, text="a")
    end = old.chunk("finish", **place, reason={"kind": "stop"})
    rows += [old.turn(2), old.step(1, 2), one, end, one]
    rows += [old.answer({"type": "text", "text": "a"}, turn=2, sourceEventSeqs=[28])]
    rows += [old.event("compaction/start", compactionId="k", turn=2), old.user("in it")]
    rows += [old.event("compaction/end", compactionId="k", turn=2, error="no"), one]
    rows += [old.step_end(1, 2), old.turn_end(2)]
    rows += [old.event("compaction/start", compactionId="l", turn=None), old.turn(3)]
    rows += [old.event("session/end-seed"), old.turn_end(3), old.turn(4), old.step(1, 4)]
    rows += [old.event("compaction/start", compactionId="m", turn=4), old.step_end(1, 4)]
    return numbered([*rows, old.turn_end(4), old.event("session/end-seed"), old.turn(5)])


def numbered(rows: Rows) -> Rows:
    """Give rows their seqs and times, in the order in which every writer has the members."""
    return [
        {"type": row["type"], "seq": seq, "time": 1000 + seq} | row for seq, row in enumerate(rows)
    ]


@pytest.fixture
def put(old, tmp_path: Path):
    """Write rows as they are, in lines as every writer has them: raw, or a frame for each.

    Only rows that stand in one frame, or in the raw file, are decoded at once.
    """

    def put(version: int, rows: Rows, *, framed: bool = False, **header: Any) -> Path:
        path = tmp_path / log_name(version, compressed=framed)
        lines = [old.header(version, **header), *rows]
        texts = [json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines]
        path.write_bytes(b"".join(map(encode, texts) if framed else texts))
        return path

    return put


def bare(rows: Rows) -> Rows:
    return [{key: row[key] for key in row if key not in ("seq", "time")} for row in rows]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where each value of a row stands, those within others too."""
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield (*path, key)
        if isinstance(value[key], dict | list):
            yield from leaves(value[key], (*path, key))


def replaced(row: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    row = copy.deepcopy(row)
    at: Any = row
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return row


def without(row: dict[str, Any], path: tuple[Any, ...]) -> dict[str, Any]:
    row = copy.deepcopy(row)
    at: Any = row
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return row


def damaged(rows: Rows, at: int) -> Iterator[Rows]:
    """Yield the log with one row gone, doubled, moved, or another in one value."""
    row, before, behind = rows[at], rows[:at], rows[at + 1 :]
    yield numbered(bare(before + behind))
    yield numbered(bare([*before, row, row, *behind]))
    yield numbered(bare([*before, *behind[:1], row, *behind[1:]]))
    yield numbered(bare([*before, *behind[:2], row, *behind[2:]]))
    yield numbered(bare([*before, *behind[:4], row, *behind[4:]]))
    yield [*before, row | {"ignorable": True}, *behind]
    yield [*before, row | {"surfaceOp": "append"}, *behind]
    yield [*before, row | {"sourceEventSeqs": [0, 2]}, *behind]
    yield [*before, row | {"sourceEventSeqs": [12]}, *behind]
    if row["type"] == "request/header":
        header = row["data"]["header"]
        for more in ({"config": _OTHER | {"reasoningEffort": ""}}, {"adapterDefaults": _MARKED}):
            yield [*before, replaced(row, ("data", "header"), header | more), *behind]
    if row["type"] == "tool/result":
        block = row["data"]["message"]["content"][0]
        failed = {"data": row["data"] | {"error": {"name": "n", "code": "c"}}}
        yield [*before, row | failed, *behind]
        yield [*before, replaced(row | failed, (*_BLOCK, "isError"), True), *behind]
        yield [*before, replaced(row, _BLOCK, block["content"][0]), *behind]
        yield [*before, replaced(row, _BLOCK[:-1], [block, block]), *behind]
    for path in leaves(row):
        yield [*before, without(row, path), *behind]
        for value in ODD:
            yield [*before, replaced(row, path, value), *behind]


@pytest.mark.parametrize("version", [0, 1])
def test_a_plain_log_goes_the_short_way_nearly_whole(old, put, monkeypatch, version: int) -> None:
    path, long = put(version, whole(old, version)), []
    expected = taken(path, short=False)
    take_all = Chain._take_all
    monkeypatch.setattr(
        Chain, "_take_all", lambda s, row: (long.append(row.type), take_all(s, row))
    )
    assert isinstance(expected, dict), expected
    assert taken(path, short=True) == expected
    # What makes a system message, cites others by seq, or replaces another.
    assert long == ["step/start", "request/header", "session/title", "tool/result"]


@pytest.mark.parametrize("base", [whole, winding])
@pytest.mark.parametrize("version", [0, 1])
def test_both_ways_end_alike_whatever_one_row_says(old, put, version: int, base) -> None:
    rows, sound, refused = base(old, version), 0, 0
    # Some rows of the winding one are not decoded with others.
    framed = base is winding
    assert isinstance(taken(put(version, rows), short=False), dict)
    for at in range(len(rows)):
        # The two differ in one edge only: v1 gets a share.
        for other in islice(damaged(rows, at), 0, None, 1 if version == 0 else 5):
            path = put(version, other, framed=framed)
            expected = taken(path, short=False)
            assert taken(path, short=True) == expected, (expected, other[at])
            sound += isinstance(expected, dict)
            refused += isinstance(expected, tuple)
    assert min(sound, refused) > (500 if version == 0 else 100)


@pytest.mark.parametrize("boundary", ["turn/start", "turn/end"])
def test_a_turn_that_crosses_a_compaction_is_refused_whichever_way(old, put, boundary) -> None:
    start = old.event("compaction/start", compactionId="k", turn=None)
    turn = [old.turn(1), old.step(1), old.step_end(1)]
    if boundary == "turn/start":
        rows = [start, *turn]
    else:
        start["data"]["turn"] = 1
        rows = [*turn, start, old.turn_end(1)]
    path = put(0, numbered(rows))
    expected = taken(path, short=False)
    assert expected[1] == f"{boundary} crosses an open compaction"
    assert taken(path, short=True) == expected


def test_a_request_outside_a_turn_is_refused_whichever_way(old, put) -> None:
    for row in (old.request(), old.event("request/context", **_OTHER)):
        path = put(0, numbered([row, old.turn(1)]))
        expected = taken(path, short=False)
        assert expected[1] == f"{row['type']} stands outside a turn"
        assert taken(path, short=True) == expected


@pytest.mark.parametrize("inherited", [0, 4, 10])
def test_what_was_inherited_is_marked_whichever_way(old, put, inherited: int) -> None:
    path = put(0, whole(old, 0), seedLength=inherited, parentSession="p")
    folds = []
    for way in ("read", "events"):
        with LogFile(path, OsDisk()) as file:
            reader = MigratingReader(file)
            for _ in getattr(reader, way)() or ():
                pass
            folds.append(picture(reader.fold))
    assert folds[0] == folds[1]
    assert folds[0]["inherited_cut"] is not None


def test_the_samples_end_alike(shared: Path) -> None:
    paths = sorted((shared / "dsh" / "samples").glob("v0/*/*/*/session*.jsonl*"))
    assert len(paths) > 20
    for path in paths:
        try:
            expected = taken(path, short=False)
        except LookupError:
            continue
        assert taken(path, short=True) == expected, path
