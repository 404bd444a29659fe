"""Which event types each old generation has, and the exact members that v2 audits before v3.

The audit is where a migration can still refuse: what the inventory does not know may hold a
reference to another event, and would then be carried over wrong. Payloads that v2 and v3 share are
described once, in ``payloads``; here stand those that only migration looks into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from .. import payloads
from ..payload_rules import further_fault
from .audited import AUDITED
from .refusal import Refusal
from .rows import Row
from .sources import messages_of, source_fault

_CURRENT_ONLY = frozenset(
    {"system/message", "assistant/attempt", "tool/ptc-dispatch-start", "tool/ptc-dispatch"}
)
_DISPATCHES = frozenset({"tool/code-dispatch-start", "tool/code-dispatch"})

_SHARED = frozenset(payloads.BY_TYPE) - _CURRENT_ONLY
_FEEDBACK = frozenset({"feedback/message-put", "feedback/message-delete"})

#: The frozen inventory of v0; v1 has the same.
V0_TYPES = (_SHARED | frozenset(AUDITED) | {"assistant/chunk"} | _DISPATCHES) - (
    _FEEDBACK | {"assistant/attempt"}
)
#: v2 has no chunks of their own any more, and attempts instead.
V2_TYPES = (V0_TYPES - {"assistant/chunk"}) | {"assistant/attempt"} | _FEEDBACK

_LEGACY = frozenset(
    {"steering/message", "compact/start", "compact/summary", "compact/end", "compact/prune"}
)
#: What a reader of each generation knows.
STORED_TYPES = {0: V0_TYPES | _LEGACY, 1: V0_TYPES, 2: V2_TYPES}

_RENAMED = {
    "tool/code-dispatch-start": "tool/ptc-dispatch-start",
    "tool/code-dispatch": "tool/ptc-dispatch",
}


def check_members(row: Row, members: tuple[str, ...]) -> None:
    """Refuse a payload that has not exactly these members."""
    if row.data.keys() != set(members):
        expected = ", ".join(members) or "none"
        raise Refusal(f"{row.type} should have these members: {expected}", seq=row.seq)


def delivery_fault(row: Row, version: int) -> str | None:
    """Return what is wrong with a delivery marker, if it is one of generation ``version``."""
    data = row.data
    if data.get("sessionFormatVersion", 0) != version:
        return None
    session_id, through = data.get("sessionId"), data.get("throughSeq")
    if not isinstance(session_id, str) or not session_id:
        return "a delivery marker names no session"
    if type(through) is not int or not 0 <= through < row.seq:
        return "a delivery marker names no earlier event"
    return None


def audit(row: Row) -> None:
    """Check a v2 event's exact payload, as the edge to v3 does. Raises :class:`Refusal`.

    ``header.system`` must be gone from a ``request/header`` already: v3 has no such member.
    """
    kind = row.type
    shape = AUDITED.get(kind) or payloads.BY_TYPE[_RENAMED.get(kind, kind)]
    try:
        value: Any = msgspec.convert(row.data, shape)
        further = _FURTHER.get(kind)
        fault = further(value, row.data) if further is not None else None
    except (msgspec.ValidationError, RecursionError) as error:
        raise Refusal(f"{kind}: {error}", seq=row.seq) from error
    if fault is not None:
        raise Refusal(f"{kind}: {fault}", seq=row.seq)


def _request(value: Any, data: dict[str, Any]) -> str | None:
    if data["header"]["config"].get("reasoningEffort") == "":
        return "reasoningEffort is empty"
    return further_fault(value)


def _retry(value: Any, data: dict[str, Any]) -> str | None:
    return _failure(data["failure"]) or further_fault(value)


def _turn_end(value: Any, data: dict[str, Any]) -> str | None:
    fault, reason = further_fault(value), data["reason"]
    return _failure(reason["error"]) if fault is None and reason["kind"] == "error" else fault


def _failure(failure: dict[str, Any]) -> str | None:
    empty = not failure["message"] or failure.get("requestId") == ""
    return "a failure's message or requestId is empty" if empty else None


def _command(_value: Any, data: dict[str, Any]) -> str | None:
    return None if isinstance(data.get("args", ""), str) else "a command's args are no text"


def _messages(_value: Any, data: dict[str, Any]) -> str | None:
    for message in messages_of(data):
        fault = source_fault(message["source"])
        if fault is not None:
            return fault
    return None


def _stream(value: Any, _data: dict[str, Any]) -> str | None:
    return stream_fault(value.stream)


def stream_fault(stream: list[dict[str, Any]]) -> str | None:
    """Return what is wrong with the single chunks in an answer's stream, or None."""
    for record in stream:
        if record.get("type") == "chunk":
            fault = _chunk_fault(record.get("chunk"))
            if fault is not None:
                return fault
    return None


_BLOCKS = frozenset({"text", "reasoning", "image", "file", "tool-call", "tool-result"})


def _chunk_fault(chunk: Any) -> str | None:
    if not isinstance(chunk, dict):
        return "a chunk in the stream is no object"
    kind = chunk.get("type")
    block = chunk.get("blockType")
    if kind == "block-start" and not (isinstance(block, str) and block in _BLOCKS):
        return f"the stream starts a block of the unknown kind {block!r}"
    if kind == "block-end":
        try:
            msgspec.convert(chunk.get("block"), payloads.Block)
        except msgspec.ValidationError as error:
            return f"a block in the stream: {error}"
    return None


def _no_extra(*members: str) -> Callable[[Any, dict[str, Any]], str | None]:
    """Refuse members that real v3 logs have and no v2 log may."""

    def check(_value: Any, data: dict[str, Any]) -> str | None:
        return next((f"unexpected member {name!r}" for name in members if name in data), None)

    return check


def _result(_value: Any, data: dict[str, Any]) -> str | None:
    error = data.get("error")
    if isinstance(error, dict) and "reason" in error:
        return "unexpected member 'reason' in the error"
    return None


def _title(value: Any, data: dict[str, Any]) -> str | None:
    if not data["title"]:
        return "the title is empty"
    return further_fault(value)


_FURTHER: dict[str, Callable[[Any, dict[str, Any]], str | None]] = {
    "turn/end": _turn_end,
    "llm/retry": _retry,
    "request/header": _request,
    "command/run": _command,
    "session/title": _title,
    "user/message": _messages,
    "agent/inbox/spliced": _messages,
    "session/title-llm-request": _messages,
    "assistant/message": _stream,
    "assistant/attempt": _stream,
    "tool/result": _result,
    "tool/code-dispatch": _no_extra("error"),
    "request/context": _no_extra("systemPromptUpdate"),
}
