"""From chunks to an answer: what the model said, as the message that the log holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
    to_json,
)
from .stream import StreamRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer. ``interrupted`` says that it was cut off by us, and keeps text only."""

    provider: str
    model: str
    content: list[dict[str, Any]] = field(default_factory=list)
    stream: list[dict[str, Any]] = field(default_factory=list)
    finish: dict[str, Any] = field(default_factory=lambda: {"kind": "stop"})
    usage: Usage | None = None
    replay_state: dict[str, Any] | None = None
    interrupted: bool = False

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The tool calls in it, in model order: blocks with ``id``, ``name`` and ``arguments``."""
        return [block for block in self.content if block["type"] == "tool-call"]

    @property
    def text(self) -> str:
        """What it says, without its reasoning."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    def event_data(self, turn: int, step: int, message_id: str) -> dict[str, Any]:
        """Return the ``data`` of its ``assistant/message`` event."""
        source: dict[str, Any] = {"kind": "model", "provider": self.provider, "model": self.model}
        if self.replay_state is not None:
            source["replayState"] = self.replay_state
        data: dict[str, Any] = {
            "turn": turn,
            "step": step,
            "message": {
                "id": message_id,
                "role": "assistant",
                "content": self.content,
                "source": source,
            },
            "stream": self.stream,
        }
        if self.usage is not None:
            data["usage"] = to_json(self.usage)
        if self.interrupted:
            data["interrupted"] = True
        return data


class Accumulator:
    """Puts an answer together from its chunks, in the order in which they come; in one thread.

    A block's own end says what it holds; where that is missing, its deltas do. Call :meth:`add` for
    each chunk, then :meth:`answer`.
    """

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._recorder = StreamRecorder()
        self._blocks: dict[int, dict[str, Any]] = {}
        self._usage: Usage | None = None
        self._finish: Finish | None = None

    def add(self, chunk: Chunk, time: int) -> None:
        """Add the next chunk, which arrived at ``time`` (wall clock, ms)."""
        self._recorder.add(chunk, time)
        match chunk:
            case BlockStart(index=index, block_type=kind):
                self._blocks.setdefault(index, _empty(kind))
            case TextDelta(index=index, text=text):
                self._block(index, "text")["text"] += text
            case ReasoningDelta(index=index, text=text):
                self._block(index, "reasoning")["text"] += text
            case ToolCallDelta():
                self._add_call(chunk)
            case BlockEnd(index=index, block=block):
                self._blocks[index] = block
            case UsageReport(usage=usage):
                self._usage = usage
            case Finish():
                self._finish = chunk

    @property
    def finish(self) -> dict[str, Any] | None:
        """The reason that the model gave for ending, once it has ended."""
        return self._finish.reason if self._finish else None

    @property
    def stream(self) -> list[dict[str, Any]]:
        """The records so far, for an attempt that yields no message."""
        return self._recorder.records

    def answer(self, *, interrupted: bool = False) -> Answer:
        """Return the answer so far."""
        content = [self._blocks[index] for index in sorted(self._blocks)]
        finish = self.finish or {"kind": "tool-calls" if _calls(content) else "stop"}
        if interrupted:
            # A call that was cut off is not a call; blank text is not an answer.
            content = [b for b in content if b["type"] != "tool-call" and b.get("text", "").strip()]
        elif finish["kind"] == "max-tokens":
            content = [b for b in content if b["type"] != "tool-call"]
        state = self._finish.replay_state if self._finish else None
        return Answer(
            provider=self._provider,
            model=self._model,
            content=content,
            stream=self._recorder.records,
            finish=finish,
            usage=self._usage,
            replay_state=state if isinstance(state, dict) else None,
            interrupted=interrupted,
        )

    def _block(self, index: int, kind: str) -> dict[str, Any]:
        return self._blocks.setdefault(index, _empty(kind))

    def _add_call(self, chunk: ToolCallDelta) -> None:
        block = self._block(chunk.index, "tool-call")
        block["id"] = block["id"] or chunk.id
        if isinstance(chunk.name, str):
            block["name"] = block["name"] or chunk.name
        block["arguments"] += chunk.arguments_delta


def _empty(kind: str) -> dict[str, Any]:
    if kind == "tool-call":
        return {"type": "tool-call", "id": "", "name": "", "arguments": ""}
    return {"type": kind, "text": ""}


def _calls(content: list[dict[str, Any]]) -> bool:
    return any(block["type"] == "tool-call" for block in content)
