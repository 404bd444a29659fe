"""A model that says what a script says: deterministic, offline, for tests, demos and benchmarks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from interlock.actors.tools import jsontext

from .chunks import Chunk, Usage, chunks_of
from .model import ModelConfig, ModelRequest


class ScriptError(ValueError):
    """A script that cannot be read; the message names the step."""


class ScriptedFailureError(Exception):
    """The failure that a script tells its model to have."""

    code = "SCRIPTED_FAILURE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Say:
    """One answer: its text, its tool calls, and how it comes.

    ``calls`` are pairs of a tool's name and its arguments: a mapping, or a string to send as it is.
    ``pause`` is how long the model thinks, in seconds. ``error`` makes it fail in the middle
    instead.
    """

    text: str = ""
    calls: Sequence[tuple[str, Mapping[str, Any] | str]] = field(default_factory=tuple)
    reasoning: str = ""
    pause: float = 0.0
    error: str = ""


class ScriptedModel:
    """Gives the answers of a script in order; past its end it says ``closing`` and calls nothing.

    The step is found by counting the assistant messages in the request's history, so one object
    serves any number of agents at once, and an agent that is resumed in another process goes on
    where it was.

    :param script: the answers, or a function from the request to the next one.
    :param closing: what it says when the script is over.
    :param model: the name under which it stands in the log.
    """

    def __init__(
        self,
        script: Sequence[Say] | Callable[[ModelRequest], Say],
        *,
        closing: str = "Done.",
        model: str = "scripted-1",
    ) -> None:
        self.config = ModelConfig(provider="scripted", model=model)
        self._script = script
        self._closing = closing

    @classmethod
    def from_table(cls, steps: Sequence[Mapping[str, Any]], **options: Any) -> ScriptedModel:
        """Read a script from the tables of a TOML file.

        Each step has ``text``, ``reasoning``, ``pause``, ``error`` and ``calls``, all optional; a
        call has ``tool`` and ``arguments``::

            [[script]]
            text = "Reading."
            calls = [{ tool = "read_file", arguments = { path = "README.md" } }]

        :raises ScriptError: a key or type that no script has, naming the step.
        """
        return cls([_read_step(number, step) for number, step in enumerate(steps, 1)], **options)

    def stream(self, request: ModelRequest) -> Iterator[Chunk]:
        """Give the next answer in chunks. From any thread."""
        say, position = self._next(request)
        if say.pause:
            time.sleep(say.pause)
        yield from self._chunks(say, position, request)

    async def astream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Give the next answer in chunks. On an event loop."""
        say, position = self._next(request)
        if say.pause:
            await asyncio.sleep(say.pause)
        for chunk in self._chunks(say, position, request):
            yield chunk

    def _next(self, request: ModelRequest) -> tuple[Say, int]:
        position = sum(message.role == "assistant" for message in request.messages)
        if callable(self._script):
            return self._script(request), position
        if position < len(self._script):
            return self._script[position], position
        return Say(text=self._closing), position

    def _chunks(self, say: Say, position: int, request: ModelRequest) -> Iterator[Chunk]:
        blocks = _blocks(say, position)
        size = sum(len(str(message.content)) for message in request.messages[-2:])
        # Tokens as a rough count of characters, so that usage is there and the same every time.
        usage = Usage(size // 4, sum(len(str(block)) for block in blocks) // 4)
        chunks = list(chunks_of(blocks, usage=usage))
        if say.error:
            yield from chunks[: len(chunks) // 2]
            raise ScriptedFailureError(say.error)
        yield from chunks


def _blocks(say: Say, position: int) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if say.reasoning:
        blocks.append({"type": "reasoning", "text": say.reasoning})
    if say.text:
        blocks.append({"type": "text", "text": say.text})
    for number, (name, arguments) in enumerate(say.calls, 1):
        raw = arguments if isinstance(arguments, str) else jsontext.encode(arguments).decode()
        call_id = f"call_{position + 1}_{number}"
        blocks.append({"type": "tool-call", "id": call_id, "name": name, "arguments": raw})
    return blocks


_STEP_KEYS = {"text": str, "reasoning": str, "pause": (int, float), "error": str, "calls": list}


def _read_step(number: int, step: Mapping[str, Any]) -> Say:
    _check(f"step {number} of the script", step, _STEP_KEYS)
    calls = [_read_call(number, place, call) for place, call in enumerate(step.get("calls", []), 1)]
    plain = {key: value for key, value in step.items() if key != "calls"}
    return Say(calls=tuple(calls), **plain)


def _read_call(number: int, place: int, call: Any) -> tuple[str, Mapping[str, Any] | str]:
    where = f"call {place} in step {number} of the script"
    _check(where, call, {"tool": str, "arguments": (dict, str)})
    if "tool" not in call:
        raise ScriptError(f"{where} names no tool")
    return call["tool"], call.get("arguments", {})


def _check(where: str, table: Any, keys: Mapping[str, Any]) -> None:
    if not isinstance(table, Mapping):
        raise ScriptError(f"{where} is {type(table).__name__}, not a table")
    for key, value in table.items():
        if key not in keys:
            raise ScriptError(f"{where} has {key!r}; it may have {', '.join(keys)}")
        if not isinstance(value, keys[key]) or isinstance(value, bool):
            raise ScriptError(f"{where}: {key} is {type(value).__name__}")
