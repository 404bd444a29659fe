"""Rows of a v0 or v1 log, decoded straight into types that hold nothing but what may be there.

What nearly every row of such a log is needs no look into dictionaries then: that it was decoded
says that its members are those which the edge to v3 would check one by one. Other types of the
generation are decoded as plain rows are; text with anything else in it is left to ``rows``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import UNSET, Meta, UnsetType

from .. import payloads
from ..event import RowError, count_rows
from ..payloads import AssistantBody, Block, Exact, Number, Text, ToolError, ToolSource, Usage
from .inventory import STORED_TYPES
from .rows import (
    LAST_WITH_CHUNKS,
    Arguments,
    Count,
    Integer,
    Row,
    Run,
    Texts,
    make_run,
    sources_are_sound,
)


class Lean(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    """One event, its payload in ``data`` of a type of its own. Nobody changes it."""

    seq: Count
    time: Integer
    surfaceOp: Any = UNSET  # noqa: N815 - the name in the file
    sourceEventSeqs: list[Count] | UnsetType = UNSET  # noqa: N815 - the name in the file

    def row(self) -> Row:
        """Return the event as every other reader of it has it; the order of members is lost."""
        data = self.data  # type: ignore[attr-defined]
        kind, ignorable = self.__struct_config__.tag, getattr(self, "ignorable", UNSET)
        if type(data) is not dict:
            data = msgspec.to_builtins(data)
        return Row(
            str(kind), self.seq, self.time, data, ignorable, self.surfaceOp, self.sourceEventSeqs
        )


class TurnStart(Lean, tag="turn/start", kw_only=True):
    data: payloads.Turn


class TurnEnd(Lean, tag="turn/end", kw_only=True):
    data: payloads.TurnEnd


class StepStart(Lean, tag="step/start", kw_only=True):
    data: payloads.Step


class StepEnd(Lean, tag="step/end", kw_only=True):
    data: payloads.Step


class UserMessage(Lean, tag="user/message", kw_only=True):
    data: payloads.UserMessage


class Answer(Exact):
    """An answer whose stream still stands in events of its own."""

    turn: Number
    step: Number
    message: AssistantBody
    usage: Usage | UnsetType = UNSET
    interrupted: Literal[True] | UnsetType = UNSET


class AssistantMessage(Lean, tag="assistant/message", kw_only=True):
    data: Answer


class ToolCall(Lean, tag="tool/call", kw_only=True):
    data: payloads.ToolCall


class ResultBody(Exact):
    id: Text
    role: Literal["user"]
    # Any block: where only one kind may stand, msgspec would take it without its type.
    content: Annotated[list[Block], Meta(min_length=1, max_length=1)]
    source: ToolSource


class Result(Exact):
    """As the current payload."""

    turn: Number
    step: Number
    message: ResultBody
    error: ToolError | UnsetType = UNSET
    meta: Any = UNSET


class ToolResult(Lean, tag="tool/result", kw_only=True):
    data: Result


class OldRequest(payloads.Request):
    """A request that still holds the prompt."""

    system: str = ""


class OldHeader(payloads.RequestHeader):
    header: OldRequest


class RequestHeader(Lean, tag="request/header", kw_only=True):
    data: OldHeader


class Context(Exact):
    """As the current payload, without what only v3 logs have."""

    provider: Text
    model: Text
    context_window: Number | UnsetType = UNSET


class RequestContext(Lean, tag="request/context", kw_only=True):
    data: Context


class TextDelta(Exact, tag_field="type", tag="text-delta"):
    index: int
    text: str


class ReasoningDelta(Exact, tag_field="type", tag="reasoning-delta"):
    index: int
    text: str


class ArgumentsDelta(Exact, tag_field="type", tag="tool-call-delta"):
    index: int
    id: str
    arguments_delta: str
    name: str | UnsetType = UNSET


class BlockStart(Exact, tag_field="type", tag="block-start"):
    index: int
    block_type: Literal["text", "reasoning", "image", "file", "tool-call", "tool-result"]


class BlockEnd(Exact, tag_field="type", tag="block-end"):
    index: int
    block: Block


class UsageTold(Exact, tag_field="type", tag="usage"):
    usage: Any


class Finish(Exact, tag_field="type", tag="finish"):
    reason: Any
    replay_state: Any = UNSET


class ChunkData(Exact):
    """A chunk in which the edge to v3 finds no fault, whatever its stream holds besides."""

    turn: int
    step: int
    chunk: TextDelta | ReasoningDelta | ArgumentsDelta | BlockStart | BlockEnd | UsageTold | Finish


class Chunk(msgspec.Struct, forbid_unknown_fields=True, tag_field="type", tag="assistant/chunk"):
    """One event of a stream."""

    seq: Count
    time: Integer
    data: ChunkData

    def row(self) -> Row:
        """Return the event as every other reader of it has it; the order of members is lost."""
        return Row("assistant/chunk", self.seq, self.time, msgspec.to_builtins(self.data))


class Chunks(msgspec.Struct, gc=False):
    """Chunks that follow each other in one step's stream; only the last may end it."""

    turn: int
    step: int
    chunks: list[Chunk]


class _Packed(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    seq0: Count
    time0: Integer


class _TextRun(_Packed, tag="text-chunks"):
    data: Texts


class _ReasoningRun(_Packed, tag="reasoning-chunks"):
    data: Texts


class _ArgumentsRun(_Packed, tag="tool-call-chunks"):
    data: Arguments


_TYPED = (
    TurnStart,
    TurnEnd,
    StepStart,
    StepEnd,
    UserMessage,
    AssistantMessage,
    ToolCall,
    ToolResult,
    RequestHeader,
    RequestContext,
)
_RUNS: dict[Any, str] = {
    _TextRun: "text-chunks",
    _ReasoningRun: "reasoning-chunks",
    _ArgumentsRun: "tool-call-chunks",
}
#: A seed's end says something about the file as a whole, which only ``stored`` knows.
_NOT_LEAN = frozenset({"session/end-seed"})


def _others(version: int) -> tuple[type[Lean], ...]:
    """Return a type for each other event type of a generation, its payload looked into later."""
    typed = {kind.__struct_config__.tag for kind in (*_TYPED, Chunk)}
    members: list[Any] = [
        ("data", dict[str, Any]),
        ("ignorable", Literal[True] | UnsetType, UNSET),
    ]
    kinds = sorted(STORED_TYPES[version] - typed - _NOT_LEAN)
    made: list[Any] = [
        msgspec.defstruct("Other", members, bases=(Lean,), tag=kind, kw_only=True) for kind in kinds
    ]
    return tuple(made)


_DECODE = {
    version: msgspec.json.Decoder(Union[(*_TYPED, Chunk, *_RUNS, *_others(version))]).decode_lines
    for version in range(LAST_WITH_CHUNKS + 1)
}


def decode_lean(text: bytes, version: int, first_seq: int) -> list[Lean | Run | Chunks] | None:
    """Decode whole lines that hold the events from ``first_seq`` on, all at once.

    Returns None where a line is something else, or only ``rows`` can tell.
    """
    count = count_rows(text)
    if not count:
        return None
    try:
        rows: list[Any] = _DECODE[version](text)
        return _items(rows, version, first_seq) if len(rows) == count else None
    except (RowError, RecursionError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _items(rows: list[Any], version: int, expected: int) -> list[Lean | Run | Chunks] | None:
    items: list[Lean | Run | Chunks] = []
    at, count = 0, len(rows)
    while at < count:
        row = rows[at]
        kind = type(row)
        if kind is Chunk:
            chunks = _chunks(rows, at)
            if [chunk.seq for chunk in chunks] != list(range(expected, expected + len(chunks))):
                return None
            items.append(Chunks(row.data.turn, row.data.step, chunks))
            at += len(chunks)
            expected += len(chunks)
            continue
        at += 1
        packed = _RUNS.get(kind)
        if packed is not None:
            if row.seq0 != expected:
                return None
            run = make_run(packed, expected, row.time0, row.data)
            expected += run.count
            items.append(run)
            continue
        sources = row.sourceEventSeqs
        if row.seq != expected or (sources is not UNSET and not _sound(sources, row, version)):
            return None
        expected += 1
        items.append(row)
    return items


def _chunks(rows: list[Any], begin: int) -> list[Chunk]:
    """Return the chunks from ``begin`` on that go on in the same step, up to one that ends it."""
    data, at = rows[begin].data, begin
    turn, step = data.turn, data.step
    while type(data.chunk) is not Finish:
        at += 1
        if at == len(rows) or type(rows[at]) is not Chunk:
            return rows[begin:at]
        data = rows[at].data
        if data.turn != turn or data.step != step:
            return rows[begin:at]
    return rows[begin : at + 1]


def _sound(sources: list[int], row: Lean, version: int) -> bool:
    if len(sources) == 1:
        return sources[0] < row.seq
    return sources_are_sound(sources, row.seq, str(row.__struct_config__.tag), version)
