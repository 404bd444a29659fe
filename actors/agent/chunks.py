"""The pieces in which a model's answer arrives, as the log keeps them (format, "chunk")."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


class _Chunk(msgspec.Struct, frozen=True, tag_field="type", rename="camel", omit_defaults=True):
    """A chunk; :func:`to_json` gives its stored form."""


class BlockStart(_Chunk, frozen=True, tag="block-start"):
    """A block of the answer begins. ``index`` is its place in the content, from 0."""

    index: int
    block_type: Literal["text", "reasoning", "tool-call"]


class TextDelta(_Chunk, frozen=True, tag="text-delta"):
    """More text of a text block."""

    index: int
    text: str


class ReasoningDelta(_Chunk, frozen=True, tag="reasoning-delta"):
    """More text of a reasoning block."""

    index: int
    text: str


class ToolCallDelta(_Chunk, frozen=True, tag="tool-call-delta"):
    """More of a tool call's argument string."""

    index: int
    id: str
    arguments_delta: str
    name: str | UnsetType = UNSET


class BlockEnd(_Chunk, frozen=True, tag="block-end"):
    """A block is complete: ``block`` is the whole of it."""

    index: int
    block: dict[str, Any]


class Usage(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Tokens that a request took; ``input_tokens`` counts uncached input only."""

    input_tokens: int
    output_tokens: int
    total_tokens: int | UnsetType = UNSET
    cache_read_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET


class UsageReport(_Chunk, frozen=True, tag="usage"):
    """What the request took so far; the last report counts."""

    usage: Usage


class Finish(_Chunk, frozen=True, tag="finish"):
    """The answer has ended. ``reason`` has the ``kind`` ``stop``, ``tool-calls``, ``max-tokens``,
    ``aborted`` or ``error`` (the last two with a ``failure``)."""

    reason: dict[str, Any]
    replay_state: dict[str, Any] | UnsetType = UNSET


Delta = TextDelta | ReasoningDelta | ToolCallDelta
Chunk = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageReport | Finish


def to_json(chunk: Chunk | Usage) -> dict[str, Any]:
    """Return a chunk as the JSON object that the log holds."""
    value: dict[str, Any] = msgspec.to_builtins(chunk)
    return value


def from_json(value: dict[str, Any]) -> Chunk:
    """Read a chunk from its stored form. Raises ``msgspec.ValidationError``."""
    chunk: Chunk = msgspec.convert(value, Chunk)
    return chunk


def chunks_of(
    blocks: list[dict[str, Any]],
    *,
    usage: Usage | None = None,
    pieces: int = 8,
    reason: dict[str, Any] | None = None,
) -> Iterator[Chunk]:
    """Give a complete answer in chunks, for models that do not stream.

    :param blocks: the answer's content.
    :param pieces: characters per delta.
    :param reason: of the finish; by default ``tool-calls`` or ``stop``, as the content says.
    """
    for index, block in enumerate(blocks):
        yield BlockStart(index, block["type"])
        if block["type"] == "tool-call":
            for part in _parts(block["arguments"], pieces):
                yield ToolCallDelta(index, block["id"], part, block["name"])
        else:
            make = TextDelta if block["type"] == "text" else ReasoningDelta
            for part in _parts(block["text"], pieces):
                yield make(index, part)
        yield BlockEnd(index, block)
    if usage is not None:
        yield UsageReport(usage)
    calls = any(block["type"] == "tool-call" for block in blocks)
    yield Finish(reason or {"kind": "tool-calls" if calls else "stop"})


def _parts(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]
