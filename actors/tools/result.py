"""The result of a call as a program sees it, and as it stands in the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import jsontext

if TYPE_CHECKING:
    from .outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What became of one call.

    The live result and the one read back from the log are equal: both are made of what the log
    holds.

    ``value`` is the JSON that the body returned; ``None`` for an error, and for a result that was
    spilled to a file (``meta["spill"]`` says which). ``content`` is what the model is shown: a list
    of blocks. ``code`` is ``None`` for a success, ``message`` is the error's text. ``meta`` is for
    programs.
    """

    call_id: str
    name: str
    is_error: bool = False
    code: str | None = None
    message: str = ""
    value: Any = None
    content: list[dict[str, Any]] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Everything in ``content`` that is text, joined by newlines."""
        return "\n".join(b["text"] for b in self.content if b.get("type") == "text")

    @classmethod
    def of(cls, call_id: str, name: str, outcome: Outcome) -> ToolResult:
        """Build the result of a call from what its body's process (or the dispatcher) said."""
        return cls._read(
            call_id, name, not outcome.ok, outcome.code, outcome.blocks(), outcome.event_meta()
        )

    @classmethod
    def from_event(cls, name: str, data: Mapping[str, Any]) -> ToolResult:
        """Read the ``data`` of a ``tool/result`` event; ``name`` comes from its ``tool/call``."""
        block = data["message"]["content"][0]
        error = data.get("error")
        meta = data.get("meta")
        return cls._read(
            block["toolCallId"],
            name,
            bool(block.get("isError", False)),
            error["code"] if error else None,
            list(block["content"]),
            dict(meta) if isinstance(meta, Mapping) else {},
        )

    @classmethod
    def _read(
        cls,
        call_id: str,
        name: str,
        is_error: bool,
        code: str | None,
        content: list[dict[str, Any]],
        meta: dict[str, Any],
    ) -> ToolResult:
        result = cls(
            call_id=call_id, name=name, is_error=is_error, code=code, content=content, meta=meta
        )
        text = result.text
        if is_error:
            object.__setattr__(result, "message", text)
        else:
            object.__setattr__(result, "value", _value(text, meta))
        return result

    def event_data(self, turn: int, step: int, message_id: str) -> dict[str, Any]:
        """Return the ``data`` of the call's ``tool/result`` event."""
        block = {
            "type": "tool-result",
            "toolCallId": self.call_id,
            "content": self.content,
            "isError": self.is_error,
        }
        data: dict[str, Any] = {
            "turn": turn,
            "step": step,
            "message": {
                "id": message_id,
                "role": "user",
                "content": [block],
                "source": {"kind": "tool", "callId": self.call_id},
            },
        }
        if self.is_error and self.code is not None:
            data["error"] = {"name": error_name(self.code), "code": self.code}
        if self.meta:
            data["meta"] = self.meta
        return data


def _value(text: str, meta: Mapping[str, Any]) -> Any:
    """What the body returned: text, JSON shown as text, or a value kept apart from it."""
    if "spill" in meta:
        return None
    if "value" in meta:
        return meta["value"]
    if meta.get("format") == "json":
        return jsontext.decode(text)
    return text


def error_name(code: str) -> str:
    """Return the log's name for a code: ``ToolNotStartedError`` for ``TOOL_NOT_STARTED``."""
    return "".join(part.capitalize() for part in code.split("_")) + "Error"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """What the log holds about a call with an unknown outcome; given to a tool's ``reconcile``
    (R4).

    ``arguments`` are the parsed arguments and ``raw_arguments`` the model's own text, ``attempts``
    how often the body was released, ``created_at`` the session's creation time in ms.
    """

    session_id: str
    created_at: int
    message_seq: int
    call_id: str
    tool: str
    arguments: dict[str, Any]
    raw_arguments: str
    idempotency_key: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Done:
    """The outside world shows the call's effect. ``value`` becomes the call's result (JSON)."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class NotDone:
    """The outside world shows that the call had no effect, and cannot have one later."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outside world does not say."""

    reason: str = ""


Reconciliation = Done | NotDone | Unknown
