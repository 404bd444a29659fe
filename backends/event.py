"""Events: what a log is made of, and the line of text that each one becomes.

An event row of the third generation, keys in the order in which they are written::

    {"type":…,"seq":…,"time":…,"data":{…}[,"ignorable":true][,"sourceEventSeqs":[…]][,"surfaceOp":…]}\\n
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Any, Literal, TypeGuard

import msgspec

from . import jsontext

MAX_SAFE_INTEGER = 2**53 - 1

_ENVELOPE = frozenset(
    {"type", "seq", "time", "data", "ignorable", "surfaceOp", "sourceEventSeqs"},
)


#: How every writer begins a row, and so what stands between two of them.
_BEGIN = b'{"type":"'
_BETWEEN = b"}\n" + _BEGIN


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


class Event(msgspec.Struct, frozen=True, eq=False):
    """One event of a log.

    Its payload is given as ``encoded`` JSON, as a ``decoded`` object, or both; :attr:`raw` and
    :attr:`data` are the payload in either form, made when it is first asked for.
    """

    type: str
    seq: int
    time: int
    encoded: bytes | None
    ignorable: bool = False
    surface_op: SurfaceOp | None = None
    sources: tuple[int, ...] | None = None
    decoded: dict[str, Any] | None = None

    @property
    def data(self) -> dict[str, Any]:
        """The decoded payload. Shared by all who ask: do not change it."""
        data = self.decoded
        if data is None:
            data = jsontext.loads(self.encoded or b"")
            msgspec.structs.force_setattr(self, "decoded", data)
        return data

    @property
    def raw(self) -> bytes:
        """The encoded payload, one line of JSON."""
        raw = self.encoded
        if raw is None:
            raw = jsontext.dumps(self.decoded)
            msgspec.structs.force_setattr(self, "encoded", raw)
        return raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and _members(self) == _members(other)

    def __hash__(self) -> int:
        return hash((self.type, self.seq))


def _members(event: Event) -> tuple[Any, ...]:
    head = (event.type, event.seq, event.time, event.ignorable)
    return (*head, event.surface_op, event.sources, event.data)


class RowError(ValueError):
    """A line that is no event row at all: not JSON, no object, or without a type or seq."""


class EnvelopeError(ValueError):
    """An event row whose members are wrong; ``seq`` and ``type`` say which row it claims to be."""

    def __init__(self, reason: str, *, type: str, seq: int) -> None:  # noqa: A002 - the row's own word
        super().__init__(reason)
        self.type = type
        self.seq = seq


def is_marked_ignorable(line: bytes) -> bool:
    """Tell whether a row with wrong members says that it may be passed over."""
    row = jsontext.loads(line)
    return isinstance(row, dict) and row.get("ignorable") is True


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
    """The shape of nearly every row."""

    type: str
    seq: int
    time: int
    data: dict[str, Any]
    ignorable: Literal[True] | msgspec.UnsetType = msgspec.UNSET
    surfaceOp: Any = msgspec.UNSET  # noqa: N815 - the name in the file
    sourceEventSeqs: Any = msgspec.UNSET  # noqa: N815 - the name in the file


_decoder = msgspec.json.Decoder(_Row)
_decode_row = _decoder.decode
_decode_rows = _decoder.decode_lines


def decode_line(line: bytes) -> Event:
    """Decode one row (with or without its newline) and check its envelope.

    Raises :class:`RowError` if the line is no event row, :class:`EnvelopeError` if a member is
    wrong; both are ``ValueError`` and say why.
    """
    try:
        row = _decode_row(line)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return _decode_slowly(line)
    return _event(row)


def decode_lines(text: bytes, first_seq: int) -> list[Event] | None:
    """Decode whole lines that hold the events from ``first_seq`` on, all at once.

    Returns None where any of them is something else, or only :func:`decode_line` can tell.
    """
    count = count_rows(text)
    if not count:
        return None
    events: list[Event] = []
    try:
        rows = _decode_rows(text)
        for seq, row in enumerate(rows, first_seq):
            if row.seq != seq:
                return None
            events.append(_event(row))
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return events if len(events) == count else None


def count_rows(text: bytes) -> int:
    """Return how many lines ``text`` has if each begins and ends as rows are written, else 0.

    Then no value can go on over a line's end, since none may have ``}`` before it and ``{``
    behind: as many values as lines means one in each.
    """
    count = text.count(b"\n")
    whole = text.startswith(_BEGIN) and text.endswith(b"}\n")
    return count if whole and text.count(_BETWEEN) == count - 1 else 0


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
    if not isinstance(data, dict):
        raise EnvelopeError("data is no object", type=kind, seq=seq)
    stored = _Row(kind, seq, time, data)
    if "ignorable" in row:
        stored.ignorable = True
    stored.surfaceOp = row.get("surfaceOp", msgspec.UNSET)
    stored.sourceEventSeqs = row.get("sourceEventSeqs", msgspec.UNSET)
    return _event(stored)


def _event(row: _Row) -> Event:
    seq, time = row.seq, row.time
    if not -MAX_SAFE_INTEGER <= time <= MAX_SAFE_INTEGER:
        raise EnvelopeError("time is out of range", type=row.type, seq=seq)
    operation, sources = row.surfaceOp, row.sourceEventSeqs
    try:
        if operation is msgspec.UNSET:
            operation = None
        elif operation != "append":
            operation = _decode_surface_op(operation)
        sources = None if sources is msgspec.UNSET else decode_sources(sources, seq)
    except ValueError as error:
        raise EnvelopeError(str(error), type=row.type, seq=seq) from error
    ignorable = row.ignorable is True
    return Event(row.type, seq, time, None, ignorable, operation, sources, row.data)


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
    if len(value) == 1 and type(value[0]) is int and 0 <= value[0] < seq:
        return (value[0],)
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
