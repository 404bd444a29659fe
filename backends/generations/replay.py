"""Playing a message's stream again: it must give the message that stands beside it.

Only migration asks this, before it publishes; ordinary reading does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..event import Event
from .refusal import Refusal
from .rows import Run

_TEXTS = {"text-delta": "text", "reasoning-delta": "reasoning"}


class _Block:
    """One content block as its chunks build it; ``closed`` is what ended it, which then holds."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.text = ""
        self.call_id: str | None = None
        self.name = ""
        self.closed: dict[str, Any] | None = None

    def content(self, index: int) -> dict[str, Any]:
        if self.closed is not None:
            return self.closed
        if self.kind == "tool-call":
            call_id = f"call-{index}" if self.call_id is None else self.call_id
            return {
                "type": self.kind,
                "id": call_id,
                "name": self.name,
                "arguments": self.text,
            }
        if self.kind in _TEXTS.values():
            return {"type": self.kind, "text": self.text}
        raise Refusal(f"a stream leaves a block of kind {self.kind!r} unfinished")


class _Assembly:
    """What a stream says, chunk by chunk."""

    def __init__(self) -> None:
        self.blocks: dict[int, _Block] = {}
        self.usage: Any = None
        self.finish = "stop"
        self._replay_state: Any = None

    def take(self, chunk: dict[str, Any]) -> None:
        kind = chunk["type"]
        if kind in _TEXTS:
            block = self._block(chunk, _TEXTS[kind])
            # What comes after a block's end is a straggler and changes nothing.
            if block.closed is None:
                block.text += chunk["text"]
        elif kind == "tool-call-delta":
            block = self._block(chunk, "tool-call")
            if block.closed is None:
                block.call_id = chunk["id"]
                block.name = chunk.get("name") or block.name
                block.text += chunk["argumentsDelta"]
        elif kind == "block-start":
            self._block(chunk, chunk["blockType"])
        elif kind == "block-end":
            block = self._block(chunk, chunk["block"]["type"])
            block.closed = block.closed or chunk["block"]
        elif kind == "usage":
            self.usage = chunk["usage"]
        elif kind == "finish":
            self.finish = chunk["reason"]["kind"]
            self._replay_state = chunk.get("replayState")
        else:
            raise Refusal(f"a stream holds a chunk of the unknown kind {kind!r}")

    def whole(self) -> tuple[list[dict[str, Any]], Any]:
        """Return the content of a finished answer, and its replay state."""
        every = [block.content(index) for index, block in self.blocks.items()]
        # A call that the model could not finish writing cannot be made.
        cut = self.finish == "max-tokens"
        kept = [not (cut and content["type"] == "tool-call") for content in every]
        content = [block for block, keep in zip(every, kept, strict=True) if keep]
        state = self._replay_state
        if not isinstance(state, dict) or state.get("blocks") is None:
            return content, state
        if len(state["blocks"]) != len(every):
            return content, None
        if all(kept):
            return content, state
        pairs = zip(state["blocks"], kept, strict=True)
        return content, state | {"blocks": [entry for entry, keep in pairs if keep]}

    def interrupted(self) -> list[dict[str, Any]]:
        """Return what an interrupted answer keeps: text that says something."""
        content: list[dict[str, Any]] = []
        for index, block in self.blocks.items():
            kind = block.kind if block.closed is None else block.closed["type"]
            if kind in _TEXTS.values():
                made = block.content(index)
                if made["text"].strip():
                    content.append(made)
        return content

    def _block(self, chunk: dict[str, Any], kind: str) -> _Block:
        return self.blocks.setdefault(chunk["index"], _Block(kind))


def check_replay(event: Event) -> None:
    """Check an ``assistant/message`` or ``assistant/attempt``; an empty stream proves nothing.

    Raises :class:`Refusal` where a stream cannot be played, or gives another message.
    """
    data = event.data
    if not data["stream"]:
        return
    try:
        assembly = _Assembly()
        for chunk in _chunks(data["stream"]):
            assembly.take(chunk)
        if event.type == "assistant/attempt":
            return
        content, state = assembly.whole()
        if data.get("interrupted") is True:
            content = assembly.interrupted()
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Refusal(f"a stream is malformed: {error!r}", seq=event.seq) from error
    message = data["message"]
    pairs = (
        ("content", content, message["content"]),
        ("usage", assembly.usage, data.get("usage")),
        ("replay state", state, message["source"].get("replayState")),
    )
    for what, streamed, stored in pairs:
        if streamed != stored:
            raise Refusal(f"a message's {what} is not what its stream gives", seq=event.seq)


def _chunks(stream: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for record in stream:
        if record["type"] == "chunk":
            yield record["chunk"]
        else:
            run = Run(0, 0, 0, 1, 1, record)
            for row in run.expand():
                yield row.data["chunk"]
