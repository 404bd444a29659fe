"""v1 → v2: a model's stream moves into the event that it led to.

Header: ``seedLength`` becomes ``isSeeded``. Every ``assistant/chunk`` goes:

- The chunks of one (turn, step) up to a ``finish`` are an attempt. An ``assistant/message`` that
  cites exactly that attempt gets it as ``data.stream`` and loses its sources; one without sources
  gets ``stream: []``.
- An attempt that led to no message becomes ``assistant/attempt`` at its last chunk's place and
  time: closed by ``llm/retry``, ``llm/retry-started``, ``step/end``, ``turn/end``, another attempt
  or the log's end. Events in between stay, in order.
- Events are numbered anew, and what refers to one moves with it.
- At the end of what was inherited stands ``session/end-seed {"inherited": true}``: one that is
  there already is tagged, otherwise it is inserted.
- ``turn/start n+1`` right after the inbox was filled while turn n was open, with no open step: turn
  n is closed first, as interrupted.
- A message of source ``goal`` with a change becomes ``goal/change`` and a message of the plugin.

Refused: unknown types even if ignorable; a message that does not cite its whole attempt; a
reference to a chunk; a cut inside an attempt; another unclosed turn; a delivery marker of v1 that
names another session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from ..header import StoredHeader
from .attempt import Attempt
from .inventory import V0_TYPES, check_members, delivery_fault
from .references import SeqMap
from .refusal import Refusal
from .rows import Item, Row, Run

_LOOKED_INTO = frozenset(
    {
        "session-log-deepseek/delivery-accepted",
        "session/end-seed",
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
    }
)
_CLOSE_ATTEMPT = frozenset({"turn/end", "step/end", "llm/retry", "llm/retry-started"})


class V1ToV2:
    """The edge, for one log. Holds one attempt and where each event went."""

    def __init__(self, source: StoredHeader) -> None:
        self.header = StoredHeader(2, source.header)
        self._cut = source.inherited
        self._cut_due = source.inherited is not None
        self._map = SeqMap()
        self._attempt: Attempt | None = None
        self._next = 0
        self._turn: int | None = None
        self._step: int | None = None
        self._previous: Row | None = None
        self._last_time = source.header.created_at

    def events(self, items: Iterable[Item]) -> Iterator[Row]:
        """Yield the events of v2. Raises :class:`Refusal`."""
        for item in items:
            yield from self.take(item)
        yield from self.finish()

    def take(self, item: Item) -> list[Row]:
        """Return the events that are sure when the next item has come. Raises :class:`Refusal`."""
        out: list[Row] = []
        if isinstance(item, Run):
            self._run(item, out)
        elif item.type != "assistant/chunk":
            self._event(item, out)
        elif not self._continues(item):
            self._chunk(item, out)
        return out

    def finish(self) -> list[Row]:
        """Return the events that only the log's end makes sure."""
        out: list[Row] = []
        self._finish_attempt(out)
        if self._cut_due:
            out.append(self._mark(self._last_time))
        return out

    def _run(self, run: Run, out: list[Row]) -> None:
        self._map.skip(run.count)
        self._previous = None
        self._last_time = run.time
        self._belongs_to(run.turn, run.step, out)
        attempt = self._open(run.turn, run.step)
        self._check_cut(attempt, run.seq, run.seq + run.count - 1)
        attempt.add_run(run)

    def _continues(self, row: Row) -> bool:
        """Take in a chunk that simply continues the run before it: nearly all of them do."""
        attempt, data = self._attempt, row.data
        if attempt is None or attempt.between or self._cut is not None:
            return False
        if (data.get("turn"), data.get("step")) != (attempt.turn, attempt.step):
            return False
        if not attempt.extend(row.seq, row.time, data.get("chunk")):
            return False
        self._map.skip()
        self._previous = row
        self._last_time = row.time
        return True

    def _chunk(self, row: Row, out: list[Row]) -> None:
        self._map.skip()
        self._previous = row
        self._last_time = row.time
        data = row.data
        turn, step, chunk = data.get("turn"), data.get("step"), data.get("chunk")
        if type(turn) is not int or type(step) is not int or not isinstance(chunk, dict):
            raise Refusal("assistant/chunk is malformed", seq=row.seq)
        self._belongs_to(turn, step, out)
        attempt = self._open(turn, step)
        self._check_cut(attempt, row.seq, row.seq)
        attempt.add_chunk(row.seq, row.time, chunk)

    def _belongs_to(self, turn: int, step: int, out: list[Row]) -> None:
        """End the attempt under way if a chunk is not its next one."""
        attempt = self._attempt
        if attempt is None:
            return
        if attempt.terminal or (attempt.turn, attempt.step) != (turn, step):
            self._finish_attempt(out)
        elif attempt.between:
            self._flush(attempt, out)

    def _open(self, turn: int, step: int) -> Attempt:
        if self._attempt is None:
            self._attempt = Attempt(turn, step)
        return self._attempt

    def _event(self, row: Row, out: list[Row]) -> None:
        kind = row.type
        self._map.skip()
        if kind not in V0_TYPES:
            raise Refusal(f"it holds the unknown event type {kind!r}", seq=row.seq)
        if kind in _LOOKED_INTO:
            self._look_into(row, out)
        self._previous = row
        self._last_time = row.time
        goal = _goal_change(row) if kind == "user/message" else None
        if kind == "assistant/message":
            self._message(row, out)
            return
        if goal is not None:
            self._emit_made(goal, row.seq, out)
        elif kind in _CLOSE_ATTEMPT:
            self._finish_attempt(out)
        elif self._attempt is not None:
            self._attempt.between.append(row)
            return
        self._emit(row, out)

    def _look_into(self, row: Row, out: list[Row]) -> None:
        """Check and note what some types say; emit what has to stand before the event."""
        kind = row.type
        if kind == "session-log-deepseek/delivery-accepted":
            self._check_delivery(row)
        elif kind == "session/end-seed":
            check_members(row, ())
        elif kind == "turn/start":
            interrupted = self._restart(row)
            self._turn, self._step = _number(row, "turn"), None
            if interrupted is not None:
                self._finish_attempt(out)
                self._emit_made(interrupted, row.seq, out)
        elif kind == "turn/end":
            self._turn = self._step = None
        elif kind == "step/start":
            self._step = _number(row, "step")
        elif kind == "step/end":
            self._step = None

    def _message(self, row: Row, out: list[Row]) -> None:
        sources, attempt = row.sourceEventSeqs, self._attempt
        row.sourceEventSeqs = UNSET
        here = (row.data.get("turn"), row.data.get("step"))
        if attempt is not None and (attempt.turn, attempt.step) != here:
            self._finish_attempt(out)
        elif sources is not UNSET and sources:
            if attempt is None or not attempt.is_cited_by(sources):
                raise Refusal("assistant/message does not cite one whole attempt", seq=row.seq)
            self._check_cut(attempt, row.seq, row.seq)
            self._flush(attempt, out)
            row.data["stream"] = attempt.stream
            self._emit(row, out)
            self._attempt = None
            return
        elif attempt is not None:
            if sources is UNSET:
                raise Refusal("assistant/message does not cite its attempt", seq=row.seq)
            self._finish_attempt(out)
        row.data["stream"] = []
        self._emit(row, out)

    def _finish_attempt(self, out: list[Row]) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        self._attempt = None
        data = {"turn": attempt.turn, "step": attempt.step, "stream": attempt.stream}
        made = Row("assistant/attempt", attempt.last_seq, attempt.time, data)
        self._emit_made(made, attempt.last_seq, out)
        self._flush(attempt, out)

    def _flush(self, attempt: Attempt, out: list[Row]) -> None:
        for row in attempt.between:
            self._emit(row, out)
        attempt.between.clear()

    def _emit(self, row: Row, out: list[Row]) -> None:
        source = row.seq
        if self._cut is not None:
            if row.type == "session/end-seed" and source == self._cut:
                row.data = {"inherited": True}
                self._cut_due = False
            else:
                self._mark_if_due(source, row.time, out)
        self._map.set(source, self._next)
        self._map.move(row)
        row.seq = self._next
        self._next += 1
        out.append(row)

    def _emit_made(self, row: Row, origin: int, out: list[Row]) -> None:
        """Emit an event that no source event becomes; ``origin`` is where it stands for the cut."""
        self._mark_if_due(origin, row.time, out)
        row.seq = self._next
        self._next += 1
        out.append(row)

    def _mark_if_due(self, origin: int, time: int, out: list[Row]) -> None:
        if self._cut_due and self._cut is not None and origin >= self._cut:
            out.append(self._mark(time))

    def _mark(self, time: int) -> Row:
        self._cut_due = False
        row = Row("session/end-seed", self._next, time, {"inherited": True})
        self._next += 1
        return row

    def _check_cut(self, attempt: Attempt, first: int, last: int) -> None:
        cut = self._cut
        if cut is None:
            return
        begin = first if attempt.first_seq is None else attempt.first_seq
        if (begin < cut) is not (last < cut):
            raise Refusal(f"what was inherited ends at {cut}, inside an attempt", seq=last)

    def _check_delivery(self, row: Row) -> None:
        header, data = self.header.header, row.data
        inherited = header.parent_session is not None and row.seq < (self._cut or 0)
        fault = delivery_fault(row, 1)
        if fault is not None:
            raise Refusal(fault, seq=row.seq)
        ours = data.get("sessionFormatVersion") != 1 or data.get("sessionId") == header.id
        if not ours and not inherited:
            raise Refusal("a delivery marker names another session", seq=row.seq)

    def _restart(self, row: Row) -> Row | None:
        """Return the end of a turn that a restarted program left open, if that is what happened."""
        if self._turn is None:
            return None
        before = self._previous
        filled = (
            before is not None
            and before.type == "agent/inbox/spliced"
            and before.data.get("target") == "next-turn"
            and bool(before.data.get("inserted"))
        )
        if not filled or self._step is not None or row.data.get("turn") != self._turn + 1:
            raise Refusal(f"turn/start while turn {self._turn} is open", seq=row.seq)
        data = {"turn": self._turn, "reason": {"kind": "interrupted"}}
        return Row("turn/end", row.seq, row.time, data)


def _goal_change(row: Row) -> Row | None:
    """Split an old goal message: return the change, leave the message to the plugin."""
    source = row.data.get("source")
    if not isinstance(source, dict) or source.get("kind") != "goal" or "change" not in source:
        return None
    change: dict[str, Any] = source["change"]
    if not isinstance(change, dict) or source.keys() != {
        "kind",
        "goalId",
        "revision",
        "round",
        "change",
    }:
        raise Refusal("a goal message has a malformed source", seq=row.seq)
    reference = change.get("cleared" if change.get("operation") == "clear" else "goal")
    named = (source["goalId"], source["revision"], source["round"])
    if not isinstance(reference, dict) or named != (
        reference.get("id"),
        reference.get("revision"),
        0,
    ):
        raise Refusal("a goal message and its change name different goals", seq=row.seq)
    row.data["source"] = {"kind": "plugin", "plugin": "goal"}
    return Row("goal/change", row.seq, row.time, change)


def _number(row: Row, member: str) -> int:
    value = row.data.get(member)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Refusal(f"{row.type} has a malformed {member}", seq=row.seq)
    return value
