"""One model answer as it streamed in: v1's chunk events, gathered into a v2 stream."""

from __future__ import annotations

from typing import Any

from ..event import MAX_SAFE_INTEGER
from .rows import Row, Run

_DELTAS = {
    "text-delta": ("text-chunks", "texts", "text"),
    "reasoning-delta": ("reasoning-chunks", "texts", "text"),
    "tool-call-delta": ("tool-call-chunks", "args", "argumentsDelta"),
}


class Attempt:
    """The chunks of one (turn, step) up to a ``finish``, and the events that came in between.

    Deltas of the same kind, block and call become one record; what was packed stays so.
    """

    __slots__ = (
        "_last_times",
        "_spans",
        "between",
        "count",
        "last_seq",
        "step",
        "stream",
        "terminal",
        "time",
        "turn",
    )

    def __init__(self, turn: int, step: int) -> None:
        self.turn = turn
        self.step = step
        self.stream: list[dict[str, Any]] = []
        self.terminal = False
        #: Events that arrived after the last chunk; they follow the attempt if it ends there.
        self.between: list[Row] = []
        self.count = 0
        self.last_seq = -1
        self.time = 0
        self._spans: list[list[int]] = []
        self._last_times: list[int] = []

    @property
    def first_seq(self) -> int | None:
        """The seq of the first chunk, or None before there is one."""
        return self._spans[0][0] if self._spans else None

    def add_chunk(self, seq: int, time: int, chunk: dict[str, Any]) -> None:
        """Take in one chunk event."""
        self._add(_record(time, chunk), time)
        self._note(seq, 1, time)
        self.terminal = chunk.get("type") == "finish"

    def extend(self, seq: int, time: int, chunk: Any) -> bool:
        """Take in a delta that joins the last record, if it does and nothing about it is odd."""
        if self.terminal or not self.stream or type(chunk) is not dict:
            return False
        previous, delta = self.stream[-1], _DELTAS.get(str(chunk.get("type")))
        if delta is None or previous["type"] != delta[0]:
            return False
        same = chunk.get("index") == previous["index"] and chunk.get("id") == previous.get("id")
        if not same or chunk.get("name") != previous.get("name") or chunk.get("name") == "":
            return False
        span, gap = self._spans[-1], time - self._last_times[-1]
        if span[0] + span[1] != seq or abs(gap) > MAX_SAFE_INTEGER:
            return False
        previous["dt"].append(gap)
        previous[delta[1]].append(chunk.get(delta[2]))
        self._last_times[-1] = self.time = time
        span[1] += 1
        self.count += 1
        self.last_seq = seq
        return True

    def add_run(self, run: Run) -> None:
        """Take in a packed row."""
        self._add(run.record, run.time)
        self._note(run.seq, run.count, run.time)

    def pass_over(self, seq: int, count: int, time: int) -> None:
        """Take in ``count`` sound chunks of which nobody will ask for the stream."""
        self._note(seq, count, time)

    def is_cited_by(self, sources: list[int]) -> bool:
        """Tell whether a list names every chunk of this attempt, in order."""
        if len(sources) != self.count:
            return False
        expected: list[int] = []
        for first, count in self._spans:
            expected.extend(range(first, first + count))
        return sources == expected

    def _note(self, seq: int, count: int, time: int) -> None:
        if self._spans and sum(self._spans[-1]) == seq:
            self._spans[-1][1] += count
        else:
            self._spans.append([seq, count])
        self.count += count
        self.last_seq = seq + count - 1
        self.time = time

    def _add(self, record: dict[str, Any], last_time: int) -> None:
        previous = self.stream[-1] if self.stream else None
        if previous is None or not self._joins(previous, record):
            self.stream.append(record)
            self._last_times.append(last_time)
            return
        member = "args" if "args" in record else "texts"
        previous["dt"].append(record["time0"] - self._last_times[-1])
        previous["dt"].extend(record["dt"])
        previous[member].extend(record[member])
        self._last_times[-1] = last_time

    def _joins(self, previous: dict[str, Any], record: dict[str, Any]) -> bool:
        return (
            record["type"] != "chunk"
            and previous["type"] == record["type"]
            and previous["index"] == record["index"]
            and previous.get("id") == record.get("id")
            and previous.get("name") == record.get("name")
            and abs(record["time0"] - self._last_times[-1]) <= MAX_SAFE_INTEGER
        )


def _record(time: int, chunk: dict[str, Any]) -> dict[str, Any]:
    """Return a chunk as a stream record: a run of one where it is a delta."""
    delta = _DELTAS.get(str(chunk.get("type")))
    if delta is None:
        return {"type": "chunk", "time": time, "chunk": chunk}
    kind, plural, member = delta
    record: dict[str, Any] = {"type": kind, "time0": time, "index": chunk.get("index"), "dt": []}
    if kind == "tool-call-chunks":
        # A call that has no id or name yet is no run that others could join.
        if not chunk.get("id") or chunk.get("name", "?") == "":
            return {"type": "chunk", "time": time, "chunk": chunk}
        record["id"] = chunk["id"]
        if "name" in chunk:
            record["name"] = chunk["name"]
    record[plural] = [chunk.get(member)]
    return record
