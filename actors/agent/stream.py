"""Recording the chunks of an answer as the log's ``stream`` records.

Consecutive deltas of one kind and block become one run, with the times between them; everything
else is stored chunk by chunk. Chunk boundaries survive: a run expands to the chunks that it was
made of.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from .chunks import Chunk, Delta, ReasoningDelta, TextDelta, ToolCallDelta, from_json, to_json

#: Integers that survive every JSON reader.
_SAFE = 2**53 - 1

_RUNS = {
    TextDelta: ("text-chunks", "texts"),
    ReasoningDelta: ("reasoning-chunks", "texts"),
    ToolCallDelta: ("tool-call-chunks", "args"),
}


class StreamRecorder:
    """Takes chunks with their times and gives the records; for one answer, in one thread."""

    def __init__(self) -> None:
        self._records: list[dict[str, Any]] = []
        self._key: tuple[Any, ...] | None = None
        self._last = 0

    def add(self, chunk: Chunk, time: int) -> None:
        """Add the next chunk, which arrived at ``time`` (wall clock, ms)."""
        if not isinstance(chunk, TextDelta | ReasoningDelta | ToolCallDelta) or not _packs(chunk):
            self._records.append({"type": "chunk", "time": time, "chunk": to_json(chunk)})
            self._key = None
            return
        key = _key(chunk)
        if key == self._key and abs(time - self._last) <= _SAFE:
            run = self._records[-1]
            run["dt"].append(time - self._last)
            run[_RUNS[type(chunk)][1]].append(_piece(chunk))
        else:
            self._records.append(_run(chunk, time))
        self._key, self._last = key, time

    @property
    def records(self) -> list[dict[str, Any]]:
        """The ``stream`` of the message or attempt."""
        return self._records


def _packs(chunk: Delta) -> bool:
    # A run's id and name are never empty; such a delta stays as it is.
    return not isinstance(chunk, ToolCallDelta) or bool(chunk.id and chunk.name != "")


def _key(chunk: Delta) -> tuple[Any, ...]:
    if isinstance(chunk, ToolCallDelta):
        return (ToolCallDelta, chunk.index, chunk.id, chunk.name)
    return (type(chunk), chunk.index)


def _piece(chunk: Delta) -> str:
    return chunk.arguments_delta if isinstance(chunk, ToolCallDelta) else chunk.text


def _run(chunk: Delta, time: int) -> dict[str, Any]:
    kind, pieces = _RUNS[type(chunk)]
    run: dict[str, Any] = {"type": kind, "time0": time, "index": chunk.index, "dt": []}
    if isinstance(chunk, ToolCallDelta):
        run["id"] = chunk.id
        if chunk.name is not UNSET:
            run["name"] = chunk.name
    run[pieces] = [_piece(chunk)]
    return run


def expand(records: Iterable[dict[str, Any]]) -> Iterator[tuple[int, Chunk]]:
    """Give back the chunks that records were made of, each with its time (ms)."""
    for record in records:
        if record["type"] == "chunk":
            yield record["time"], from_json(record["chunk"])
        else:
            yield from _expand_run(record)


def _expand_run(record: dict[str, Any]) -> Iterator[tuple[int, Chunk]]:
    time, index = record["time0"], record["index"]
    gaps = [0, *record["dt"]]
    for gap, piece in zip(gaps, record.get("texts") or record.get("args") or [], strict=True):
        time += gap
        if record["type"] == "text-chunks":
            yield time, TextDelta(index, piece)
        elif record["type"] == "reasoning-chunks":
            yield time, ReasoningDelta(index, piece)
        else:
            yield time, ToolCallDelta(index, record["id"], piece, record.get("name", UNSET))
