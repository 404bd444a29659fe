"""Rows of the generations v0, v1 and v2, decoded once and then carried from edge to edge.

An event row is the envelope that every generation has. v0 and v1 also pack a run of consecutive
``assistant/chunk`` events into one row, which stays a :class:`Run` until it is asked to be events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta

from .. import jsontext
from ..event import (
    MAX_SAFE_INTEGER,
    EnvelopeError,
    RowError,
    count_rows,
    decode_sources,
    is_integer,
)

#: The last generation that stores a model's stream as events of their own.
LAST_WITH_CHUNKS = 1

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0, le=MAX_SAFE_INTEGER)]
Integer = Annotated[int, Meta(ge=-MAX_SAFE_INTEGER, le=MAX_SAFE_INTEGER)]

_ENVELOPE = ("type", "seq", "time", "data", "ignorable", "surfaceOp", "sourceEventSeqs")


class Row(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One event. The edges change it in place: it belongs to whoever got it last.

    ``surfaceOp`` and ``sourceEventSeqs`` are as stored, ranges expanded; ``ranged`` says that there
    were ranges.
    """

    type: str
    seq: Count
    time: Integer
    data: dict[str, Any]
    ignorable: Literal[True] | msgspec.UnsetType = UNSET
    surfaceOp: Any = UNSET  # noqa: N815 - the name in the file
    sourceEventSeqs: list[Count] | msgspec.UnsetType = UNSET  # noqa: N815 - the name in the file


class Run(msgspec.Struct):
    """``count`` chunks of one answer, from event ``seq`` on; ``time`` is the last one's.

    ``record`` is the run as a v2 stream holds it: type, time0, index, dt and texts, or id, name and
    args.
    """

    seq: int
    count: int
    time: int
    turn: int
    step: int
    record: dict[str, Any]

    def expand(self) -> Iterator[Row]:
        """Yield the events that the run stands for."""
        record = self.record
        kind, time = record["type"], record["time0"]
        shared: dict[str, Any] = {"index": record["index"]}
        if kind == "tool-call-chunks":
            shared = {"type": "tool-call-delta", **shared, "id": record["id"]}
            if "name" in record:
                shared["name"] = record["name"]
            member, texts = "argumentsDelta", record["args"]
        else:
            shared = {"type": kind.removesuffix("chunks") + "delta", **shared}
            member, texts = "text", record["texts"]
        for i, text in enumerate(texts):
            if i:
                time += record["dt"][i - 1]
            chunk = {**shared, member: text}
            data = {"turn": self.turn, "step": self.step, "chunk": chunk}
            yield Row("assistant/chunk", self.seq + i, time, data)


Item = Row | Run


class Texts(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of a packed row of text or reasoning."""

    turn: Count
    step: Count
    index: Count
    dt: list[Integer]
    texts: Annotated[list[str], Meta(min_length=1)]


class Arguments(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of a packed row of a call's arguments."""

    turn: Count
    step: Count
    index: Count
    dt: list[Integer]
    id: Text
    args: Annotated[list[str], Meta(min_length=1)]
    name: str | msgspec.UnsetType = UNSET


class _Packed(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    seq0: Count
    time0: Integer
    data: dict[str, Any]


#: What no row of a file can hold: the member is absent.
_NO_SEQ = -1
_NO_TIME = -(2**60)


class _Any(Row, kw_only=True):
    """A row of either layout, as many are decoded at once; which one it is shows afterwards."""

    seq: Count = _NO_SEQ
    time: Integer = _NO_TIME
    seq0: Count = _NO_SEQ
    time0: Integer = _NO_TIME


_decode_any = msgspec.json.Decoder(_Any).decode_lines
_decode_row = msgspec.json.Decoder(Row).decode
_decode_packed = msgspec.json.Decoder(_Packed).decode
_SHAPES: dict[str, type[Texts] | type[Arguments]] = {
    "text-chunks": Texts,
    "reasoning-chunks": Texts,
    "tool-call-chunks": Arguments,
}
_TAGS = tuple(b'{"type":"%b"' % tag.encode() for tag in _SHAPES)


def decode_item(line: bytes, version: int) -> tuple[Item, bool]:
    """Decode one line of a log of generation ``version``; say whether its sources held ranges.

    Raises :class:`RowError` if the line is no row and ``EnvelopeError`` if a member is wrong.
    """
    try:
        if version <= LAST_WITH_CHUNKS and line.startswith(_TAGS):
            packed = _decode_packed(line)
            return _run(packed.type, packed.seq0, packed.time0, packed.data), False
        row = _decode_row(line)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return _decode_slowly(line, version)
    sources = row.sourceEventSeqs
    if sources is not UNSET and not sources_are_sound(sources, row.seq, row.type, version):
        raise EnvelopeError(_BAD_SOURCES, type=row.type, seq=row.seq)
    return row, False


def decode_items(
    text: bytes, version: int, first_seq: int, plain: frozenset[str]
) -> list[Item] | None:
    """Decode whole lines that hold the events from ``first_seq`` on, all at once.

    ``plain`` are the types that need no further look. Returns None where a line is something else,
    or only :func:`decode_item` can tell.
    """
    count = count_rows(text)
    if not count:
        return None
    items: list[Item] = []
    expected = first_seq
    try:
        for row in _decode_any(text):
            if row.seq == expected and row.type in plain:
                sources = row.sourceEventSeqs
                if sources is not UNSET and not sources_are_sound(
                    sources, expected, row.type, version
                ):
                    return None
                if row.time == _NO_TIME or row.seq0 != _NO_SEQ or row.time0 != _NO_TIME:
                    return None
                items.append(row)
                expected += 1
            elif row.seq0 == expected and _is_packed(row, version):
                run = _run(row.type, expected, row.time0, row.data)
                items.append(run)
                expected += run.count
            else:
                return None
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return items if len(items) == count else None


def _is_packed(row: _Any, version: int) -> bool:
    """Tell whether a row has exactly the members of a packed one."""
    return (
        version <= LAST_WITH_CHUNKS
        and row.type in _SHAPES
        and (row.seq, row.time) == (_NO_SEQ, _NO_TIME)
        and row.time0 != _NO_TIME
        and row.ignorable is row.surfaceOp is row.sourceEventSeqs is UNSET
    )


_BAD_SOURCES = "sourceEventSeqs are not unique earlier seqs"


def sources_are_sound(sources: list[int], seq: int, kind: str, version: int) -> bool:
    """Tell whether an expanded source list names earlier events, each once."""
    if not sources:
        return kind == "assistant/message" and version <= LAST_WITH_CHUNKS
    if len(sources) == 1:
        return sources[0] < seq
    return max(sources) < seq and len(set(sources)) == len(sources)


def _decode_slowly(line: bytes, version: int) -> tuple[Item, bool]:
    """Decode a row that the fast path refused: say what is wrong, or accept what it cannot."""
    try:
        value = jsontext.loads(line)
    except ValueError as error:
        raise RowError(str(error)) from error
    if not isinstance(value, dict):
        raise RowError("the line is JSON but no object")
    kind, seq = value.get("type"), value.get("seq")
    if not isinstance(kind, str):
        raise RowError("the row has no type")
    if version <= LAST_WITH_CHUNKS and kind in _SHAPES:
        return _slow_run(kind, value), False
    if not is_integer(seq) or not 0 <= seq <= MAX_SAFE_INTEGER:
        raise RowError("the row has no seq")
    for key in value:
        if key not in _ENVELOPE:
            raise EnvelopeError(f"unexpected member {key!r}", type=kind, seq=seq)
    time, data = value.get("time"), value.get("data")
    if not is_integer(time) or abs(time) > MAX_SAFE_INTEGER:
        raise EnvelopeError("time is no integer", type=kind, seq=seq)
    if value.get("ignorable", True) is not True:
        raise EnvelopeError("ignorable may only be true", type=kind, seq=seq)
    if not isinstance(data, dict):
        raise EnvelopeError("data is no object", type=kind, seq=seq)
    row = Row(kind, seq, time, data, surfaceOp=value.get("surfaceOp", UNSET))
    if "ignorable" in value:
        row.ignorable = True
    if "sourceEventSeqs" not in value:
        return row, False
    stored = value["sourceEventSeqs"]
    row.sourceEventSeqs = _expand_sources(stored, kind, seq, version)
    return row, any(isinstance(member, list) for member in stored)


def _expand_sources(stored: Any, kind: str, seq: int, version: int) -> list[int]:
    if stored == [] and sources_are_sound([], seq, kind, version):
        return []
    try:
        return list(decode_sources(stored, seq))
    except ValueError as error:
        raise EnvelopeError(str(error), type=kind, seq=seq) from error


def _slow_run(kind: str, value: dict[str, Any]) -> Run:
    try:
        packed = msgspec.convert(value, _Packed)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RowError(f"a malformed {kind} row: {error}") from error
    return _run(kind, packed.seq0, packed.time0, packed.data)


def _run(kind: str, seq: int, time0: int, data: dict[str, Any]) -> Run:
    try:
        shape = msgspec.convert(data, _SHAPES[kind])
    except msgspec.ValidationError as error:
        raise RowError(f"a malformed {kind} row: {error}") from error
    return make_run(kind, seq, time0, shape)


def make_run(kind: str, seq: int, time0: int, shape: Texts | Arguments) -> Run:
    """Return the run that a packed row stands for. Raises :class:`RowError`."""
    texts = shape.args if isinstance(shape, Arguments) else shape.texts
    gaps = shape.dt
    if len(gaps) != len(texts) - 1:
        raise RowError(f"a malformed {kind} row: not one dt between each two members")
    last = time0 + sum(gaps)
    if seq + len(texts) > MAX_SAFE_INTEGER or not _times_fit(time0, gaps):
        raise RowError(f"a malformed {kind} row: a seq or time is out of range")
    record: dict[str, Any] = {"type": kind, "time0": time0, "index": shape.index, "dt": gaps}
    if isinstance(shape, Arguments):
        record["id"] = shape.id
        if shape.name is not UNSET:
            record["name"] = shape.name
        record["args"] = texts
    else:
        record["texts"] = texts
    return Run(seq, len(texts), last, shape.turn, shape.step, record)


def _times_fit(time0: int, gaps: list[int]) -> bool:
    # A bound on every partial sum, without taking each: real gaps are milliseconds.
    reach = max(max(gaps, default=0), -min(gaps, default=0)) * len(gaps)
    if abs(time0) + reach <= MAX_SAFE_INTEGER:
        return True
    time = time0
    for gap in gaps:
        time += gap
        if abs(time) > MAX_SAFE_INTEGER:
            return False
    return True


def to_json(row: Row) -> dict[str, Any]:
    """Return the event as a JSON object of its own generation, sources expanded."""
    value: dict[str, Any] = {
        "type": row.type,
        "seq": row.seq,
        "time": row.time,
        "data": row.data,
    }
    if row.ignorable is True:
        value["ignorable"] = True
    if row.sourceEventSeqs is not UNSET:
        value["sourceEventSeqs"] = row.sourceEventSeqs
    if row.surfaceOp is not UNSET:
        value["surfaceOp"] = row.surfaceOp
    return value
