"""Events: what a log is made of, and the line of text that each one becomes.

An event row of the third generation, keys in the order in which they are written::

    {"type":…,"seq":…,"time":…,"data":{…}[,"ignorable":true][,"sourceEventSeqs":[…]][,"surfaceOp":…]}\\n
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeGuard

import msgspec

from . import jsontext

MAX_SAFE_INTEGER = 2**53 - 1

_ENVELOPE = frozenset(
    {"type", "seq", "time", "data", "ignorable", "surfaceOp", "sourceEventSeqs"},
)


class Replace(msgspec.Struct, frozen=True):
    """A surface operation that puts the event in the place of a span of earlier ones.

    ``start_seq`` and ``end_seq`` name events that are on the surface now, in surface order,
    inclusive.
    """

    start_seq: int
    end_seq: int


SurfaceOp = Literal["append"] | Replace


class Draft(msgspec.Struct, frozen=True):
    """An event that someone wants appended; the log writer gives it ``seq`` and ``time``.

    ``data`` is an encoded JSON object. ``spill`` holds bytes that belong beside the log: the log
    writes them to ``spill/<seq>`` and names that file in ``data.meta.spill.file`` (P7).
    """

    type: str
    data: bytes
    ignorable: bool = False
    surface_op: SurfaceOp | None = None
    sources: tuple[int, ...] | None = None
    spill: bytes | None = None


class Event(msgspec.Struct, frozen=True, dict=True):
    """One event of a log. ``raw`` is the encoded ``data``; :attr:`data` decodes it when asked."""

    type: str
    seq: int
    time: int
    raw: bytes
    ignorable: bool = False
    surface_op: SurfaceOp | None = None
    sources: tuple[int, ...] | None = None

    @cached_property
    def data(self) -> dict[str, Any]:
        """The decoded payload. Shared by all who ask: do not change it."""
        value: dict[str, Any] = jsontext.loads(self.raw)
        return value


class RowError(ValueError):
    """A line that is no event row at all: not JSON, no object, or without a type or seq."""


class EnvelopeError(ValueError):
    """An event row whose members are wrong; ``seq`` and ``type`` say which row it claims to be."""

    def __init__(self, reason: str, *, type: str, seq: int) -> None:  # noqa: A002 - the row's own word
        super().__init__(reason)
        self.type = type
        self.seq = seq


def draft(
    type: str,  # noqa: A002 - the row's own word
    data: dict[str, Any],
    *,
    ignorable: bool = False,
    surface_op: SurfaceOp | None = None,
    sources: Iterable[int] | None = None,
    spill: bytes | None = None,
) -> Draft:
    """Build a :class:`Draft` from a payload object. ``ValueError`` if the payload is not JSON."""
    cited = None if sources is None else tuple(sources)
    return Draft(type, jsontext.dumps(data), ignorable, surface_op, cited, spill)


def encode_line(event: Event) -> bytes:
    """Return the event's row, with its newline."""
    tail = b""
    if event.ignorable:
        tail = b',"ignorable":true'
    if event.sources is not None:
        tail += b',"sourceEventSeqs":' + _encode_sources(event.sources)
    if event.surface_op is not None:
        tail += b',"surfaceOp":' + _encode_surface_op(event.surface_op)
    return b'{"type":%b,"seq":%d,"time":%d,"data":%b%b}\n' % (
        _encode_type(event.type),
        event.seq,
        event.time,
        event.raw,
        tail,
    )


def to_json(event: Event) -> dict[str, Any]:
    """Return the event as an object of the current event stream, sources expanded."""
    row: dict[str, Any] = {
        "type": event.type,
        "seq": event.seq,
        "time": event.time,
        "data": event.data,
    }
    if event.ignorable:
        row["ignorable"] = True
    if event.sources is not None:
        row["sourceEventSeqs"] = list(event.sources)
    if event.surface_op is not None:
        row["surfaceOp"] = _surface_op_json(event.surface_op)
    return row


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """The shape of nearly every row, decoded in one pass without touching ``data``."""

    type: str
    seq: int
    time: int
    data: msgspec.Raw
    ignorable: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    surfaceOp: Any = msgspec.UNSET  # noqa: N815 - the name in the file
    sourceEventSeqs: Any = msgspec.UNSET  # noqa: N815 - the name in the file


_decode_row = msgspec.json.Decoder(_Row).decode


def decode_line(line: bytes) -> Event:
    """Decode one row (with or without its newline) and check its envelope.

    Raises :class:`RowError` if the line is no event row, :class:`EnvelopeError` if a member is
    wrong; both are ``ValueError`` and say why.
    """
    try:
        row = _decode_row(line)
        raw = bytes(row.data)
        data = jsontext.loads(raw)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return _decode_slowly(line)
    return _event(
        row.type,
        row.seq,
        row.time,
        raw,
        data,
        row.ignorable is True,
        row.surfaceOp,
        row.sourceEventSeqs,
    )


def _decode_slowly(line: bytes) -> Event:
    """Decode a row that the fast path refused: say what is wrong, or accept lone surrogates."""
    try:
        row = jsontext.loads(line)
    except ValueError as error:
        raise RowError(str(error)) from error
    if not isinstance(row, dict):
        raise RowError("the line is JSON but no object")
    kind, seq = row.get("type"), row.get("seq")
    if not isinstance(kind, str):
        raise RowError("the row has no type")
    if not is_integer(seq) or seq < 0:
        raise RowError("the row has no seq")
    unknown = sorted(row.keys() - _ENVELOPE)
    if unknown:
        raise EnvelopeError(f"unexpected member {unknown[0]!r}", type=kind, seq=seq)
    time = row.get("time")
    if not is_integer(time):
        raise EnvelopeError("time is no integer", type=kind, seq=seq)
    if row.get("ignorable", True) is not True:
        raise EnvelopeError("ignorable may only be true", type=kind, seq=seq)
    data = row.get("data")
    raw = jsontext.dumps(data)
    absent = msgspec.UNSET
    return _event(
        kind,
        seq,
        time,
        raw,
        data,
        "ignorable" in row,
        row.get("surfaceOp", absent),
        row.get("sourceEventSeqs", absent),
    )


def _event(
    kind: str,
    seq: int,
    time: int,
    raw: bytes,
    data: Any,
    ignorable: bool,
    surface_op: Any,
    sources: Any,
) -> Event:
    if not isinstance(data, dict):
        raise EnvelopeError("data is no object", type=kind, seq=seq)
    if abs(time) > MAX_SAFE_INTEGER:
        raise EnvelopeError("time is out of range", type=kind, seq=seq)
    try:
        operation = None if surface_op is msgspec.UNSET else _decode_surface_op(surface_op)
        cited = None if sources is msgspec.UNSET else decode_sources(sources, seq)
    except ValueError as error:
        raise EnvelopeError(str(error), type=kind, seq=seq) from error
    event = Event(kind, seq, time, raw, ignorable, operation, cited)
    event.__dict__["data"] = data
    return event


@lru_cache(maxsize=512)
def _encode_type(kind: str) -> bytes:
    return jsontext.dumps(kind)


def _surface_op_json(operation: SurfaceOp) -> Any:
    if isinstance(operation, Replace):
        return {"op": "replace", "startSeq": operation.start_seq, "endSeq": operation.end_seq}
    return operation


def _encode_surface_op(operation: SurfaceOp) -> bytes:
    return b'"append"' if operation == "append" else jsontext.dumps(_surface_op_json(operation))


def _decode_surface_op(value: Any) -> SurfaceOp:
    if value == "append":
        return "append"
    if not isinstance(value, dict) or value.keys() != {"op", "startSeq", "endSeq"}:
        raise ValueError("surfaceOp is neither append nor an exact replacement")
    start, end = value["startSeq"], value["endSeq"]
    if value["op"] != "replace" or not (is_integer(start) and is_integer(end)):
        raise ValueError("surfaceOp is neither append nor an exact replacement")
    return Replace(int(start), int(end))


def _encode_sources(sources: tuple[int, ...]) -> bytes:
    """Write runs of three and more as ``[first,last]`` where the list rises strictly."""
    if any(a >= b for a, b in pairwise(sources)):
        return jsontext.dumps(list(sources))
    stored: list[int | list[int]] = []
    start = 0
    for i in range(1, len(sources) + 1):
        if i < len(sources) and sources[i] == sources[i - 1] + 1:
            continue
        if i - start >= 3:
            stored.append([sources[start], sources[i - 1]])
        else:
            stored.extend(sources[start:i])
        start = i
    return jsontext.dumps(stored)


def decode_sources(value: Any, seq: int) -> tuple[int, ...]:
    """Expand a stored ``sourceEventSeqs`` of event ``seq``; ``ValueError`` says what is wrong."""
    if not isinstance(value, list) or not value:
        raise ValueError("sourceEventSeqs is no list or empty")
    expanded: list[int] = []
    ranged = False
    for item in value:
        if is_integer(item):
            expanded.append(int(item))
        elif isinstance(item, list) and len(item) == 2 and all(is_integer(end) for end in item):
            first, last = item
            ranged = True
            # The bound keeps a line of thirty bytes from asking for a list of a billion.
            if not 0 <= first <= last < seq or (expanded and first <= expanded[-1]):
                raise ValueError("a range in sourceEventSeqs is not rising or not earlier")
            expanded.extend(range(first, last + 1))
        else:
            raise ValueError("sourceEventSeqs holds something that is no seq")
    if ranged and any(a >= b for a, b in pairwise(expanded)):
        raise ValueError("sourceEventSeqs with ranges does not rise strictly")
    if len(set(expanded)) != len(expanded) or min(expanded) < 0 or max(expanded) >= seq:
        raise ValueError("sourceEventSeqs are not unique earlier seqs")
    return tuple(expanded)


def is_integer(value: Any) -> TypeGuard[int]:
    """Tell whether a decoded JSON value is an integer; ``true`` is none."""
    return isinstance(value, int) and not isinstance(value, bool)
