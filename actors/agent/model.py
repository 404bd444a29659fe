"""What a model is to Interlock: something that turns a request into chunks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Protocol

import msgspec
from interlock.actors.tools.spec import ToolSpec
from msgspec import UNSET, UnsetType

from .chunks import Chunk


class ModelConfig(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Which model to ask, and how. ``None`` of an option means the provider's own default."""

    provider: str
    model: str
    reasoning_effort: str | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    max_tokens: int | UnsetType = UNSET
    stop: list[str] | UnsetType = UNSET


class Message(msgspec.Struct, frozen=True):
    """One message of the history: ``role`` is ``user`` or ``assistant``, ``content`` its blocks.

    The results of an assistant message's calls are one user message of ``tool-result`` blocks,
    right behind it and in the order of the calls.
    """

    role: str
    content: list[dict[str, Any]]


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a model needs for its next answer."""

    config: ModelConfig
    system: str = ""
    messages: list[Message]
    tools: list[dict[str, Any]] = []

    @property
    def header(self) -> dict[str, Any]:
        """What the log's ``request/header`` holds of it."""
        header: dict[str, Any] = {"config": msgspec.to_builtins(self.config)}
        if self.tools:
            header["tools"] = self.tools
        return header


def declarations(specs: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    """Return tools as a request declares them: name, description, parameters."""
    return [
        {
            "name": spec.name,
            "description": spec.description,
            "parameters": json.loads(spec.schema),
        }
        for spec in specs
    ]


class Model(Protocol):
    """A model that is asked from a thread. One object may serve any number of agents."""

    config: ModelConfig

    def stream(self, request: ModelRequest) -> Iterator[Chunk]:
        """Ask, and give the answer in chunks, the last one a ``Finish``.

        Nothing may leave the process before the first chunk is asked for (K1): write it as a
        generator. What it raises ends the agent's turn as an error; a ``code`` attribute of the
        exception is kept.
        """
        ...


class AsyncModel(Protocol):
    """A model that is asked from an event loop; otherwise as :class:`Model`."""

    config: ModelConfig

    def astream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """As :meth:`Model.stream`; write it as an async generator."""
        ...
