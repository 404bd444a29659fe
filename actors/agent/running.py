"""The course of one turn of an agent, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from interlock.actors.tools.result import ToolResult

from .answer import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOutcome:
    """How a turn of an agent ended.

    ``reason`` is that of its ``turn/end``, ``text`` what the model said last, ``results`` those of
    every call of the turn, in order.
    """

    turn: int
    reason: dict[str, Any]
    text: str = ""
    steps: int = 0
    results: list[ToolResult] = field(default_factory=list)

    @property
    def completed(self) -> bool:
        """Whether the model ended the turn by itself."""
        return bool(self.reason["kind"] == "completed")


@dataclass(slots=True)
class Running:
    """A turn under way; ``reason`` is ``None`` until it is over."""

    turn: int
    steps: int = 0
    text: str = ""
    results: list[ToolResult] = field(default_factory=list)
    reason: dict[str, Any] | None = None

    def stepped(
        self, answer: Answer | None, results: list[ToolResult], reason: dict[str, Any] | None
    ) -> None:
        """Take in a step that has ended."""
        self.steps += 1
        self.results += results
        self.reason = reason
        if answer is not None and answer.text:
            self.text = answer.text

    def outcome(self) -> AgentOutcome:
        """Return how the turn ended."""
        return AgentOutcome(
            turn=self.turn,
            reason=self.reason or {"kind": "interrupted"},
            text=self.text,
            steps=self.steps,
            results=self.results,
        )
