"""Which members of an event name other events of the same log, and how they move with them."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from .refusal import Refusal
from .rows import Row

#: In a :class:`SeqMap`: the source event has no counterpart (or none yet).
GONE = -1


class SeqMap:
    """Where each source event went, by its seq. Eight bytes an event, however long the log."""

    __slots__ = ("_targets",)

    def __init__(self) -> None:
        self._targets = array("q")

    def __len__(self) -> int:
        return len(self._targets)

    def skip(self, count: int = 1) -> None:
        """Note ``count`` further source events without a counterpart."""
        if count == 1:
            self._targets.append(GONE)
        else:
            self._targets.extend([GONE] * count)

    def append(self, target: int) -> None:
        """Note where the next source event went."""
        self._targets.append(target)

    def set(self, source: int, target: int) -> None:
        """Note where a source event went."""
        self._targets[source] = target

    def went(self, source: int) -> int:
        """Return where an event that was noted went, or :data:`GONE`."""
        return self._targets[source]

    def move(self, row: Row) -> None:
        """Rewrite, in place, every reference that an event holds.

        Raises :class:`Refusal` for one that names no earlier event or one that has gone.
        """
        sources = row.sourceEventSeqs
        if sources is not UNSET:
            row.sourceEventSeqs = self._all(sources, row)
        operation = row.surfaceOp
        if operation is not UNSET and operation != "append":
            if not isinstance(operation, dict) or operation.keys() != {"op", "start", "end"}:
                raise Refusal(f"{row.type} has a malformed surfaceOp", seq=row.seq)
            row.surfaceOp = {"op": operation["op"], **self._range(operation, row)}
        members = _MEMBERS.get(row.type)
        if members is not None:
            members(self, row, row.data)

    def _one(self, source: Any, row: Row) -> int:
        known = isinstance(source, int) and 0 <= source < min(row.seq, len(self._targets))
        target = self._targets[source] if known else GONE
        if target == GONE:
            raise Refusal(f"{row.type} refers to event {source}, which has gone", seq=row.seq)
        return target

    def _all(self, sources: Any, row: Row) -> list[int]:
        if not isinstance(sources, list):
            raise Refusal(f"{row.type} has a malformed list of events", seq=row.seq)
        if len(sources) == 1:
            return [self._one(sources[0], row)]
        return [self._one(source, row) for source in sources]

    def _range(self, bounds: Any, row: Row) -> dict[str, int]:
        if not isinstance(bounds, dict) or not {"start", "end"} <= bounds.keys():
            raise Refusal(f"{row.type} has a malformed range", seq=row.seq)
        return {"start": self._one(bounds["start"], row), "end": self._one(bounds["end"], row)}

    def _command(self, row: Row, data: dict[str, Any]) -> None:
        if "sourceEventSeq" in data:
            data["sourceEventSeq"] = self._one(data["sourceEventSeq"], row)

    def _shadowed(self, row: Row, data: dict[str, Any]) -> None:
        data["shadowedRange"] = self._range(data.get("shadowedRange"), row)
        data["shadowedSeqs"] = self._all(data.get("shadowedSeqs"), row)

    def _messages(self, row: Row, data: dict[str, Any]) -> None:
        data["messageSeqs"] = self._all(data.get("messageSeqs"), row)


_MEMBERS: dict[str, Callable[[SeqMap, Row, dict[str, Any]], None]] = {
    "command/done": SeqMap._command,
    "compaction/summary": SeqMap._shadowed,
    "compaction/prune": SeqMap._shadowed,
    "session/title": SeqMap._messages,
    "session/title-llm-request": SeqMap._messages,
}
