"""What each event type may hold: the inventory, the checks of every reader, and exact payloads.

Two degrees of strictness. :func:`check_row` is what reading any v3 log asks of each event, also one
that the harness or a plugin wrote. :func:`check_payload` is what Interlock asks before it appends:
the exact members of the format, since later format versions audit them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from . import payloads
from .event import MAX_SAFE_INTEGER, Draft, Event, Replace
from .payload_rules import further_fault

SURFACE_TYPES = frozenset({"user/message", "assistant/message", "tool/result", "system/message"})

#: Known types whose payloads Interlock neither writes nor looks into.
OTHER_TYPES = frozenset(
    {
        "permission/preset",
        "agent-preset/selected",
        "plan/mode",
        "model/selection",
        "hook/invoked",
        "hook/result",
        "session-log-deepseek/delivery-accepted",
        "subagent/descriptor",
        "subagent/model-selection-policy",
        "session/title-llm-request",
        "feedback/record",
        "feedback/message-put",
        "feedback/message-delete",
        "goal/change",
        "schedule/change",
        "web/deepseek-search-llm-request",
    }
)
_OTHER_FAMILIES = ("team/", "tool-workflow/")

#: Interlock's own types, always ``ignorable``, so that any other reader can pass over them.
OWN_TYPES = frozenset(
    {"interlock/writer", "interlock/approval", "interlock/settled", "interlock/notice"}
)

_KNOWN = (payloads.BY_TYPE.keys() | OTHER_TYPES) - OWN_TYPES

#: v0–v2 names that v3 renamed: a required one is not a v3 event, whatever else is wrong.
RETIRED_TYPES = frozenset({"tool/code-dispatch-start", "tool/code-dispatch"})


class SchemaError(ValueError):
    """An event's members break the format; the text says which rule."""


def is_known(kind: str) -> bool:
    """Tell whether a v3 log may hold this type without marking it ``ignorable``."""
    return kind in _KNOWN or kind.startswith(_OTHER_FAMILIES)


def check_row(event: Event) -> None:
    """Check one event of a known type as every v3 reader does; :class:`SchemaError` says why not.

    A type that is not known stays opaque.
    """
    check = _ROW_CHECKS.get(event.type)
    if check is not None:
        check(event)
    elif (event.surface_op is not None or event.sources is not None) and is_known(event.type):
        raise SchemaError(f"{event.type} may have neither surfaceOp nor sourceEventSeqs")


def _check_user_row(event: Event) -> None:
    _check_surface_members(event)
    _check_message(event.data, "user")


def _check_assistant_row(event: Event) -> None:
    _check_surface_members(event)
    _check_assistant(event.data)
    if not isinstance(event.data.get("stream"), list):
        raise SchemaError("assistant/message has no stream")


def _check_result_row(event: Event) -> None:
    _check_surface_members(event)
    data = event.data
    _check_tool_result(data)
    if "error" in data and data["message"]["content"][0].get("isError") is not True:
        raise SchemaError("a tool result with an error must be marked isError")


def _check_system_row(event: Event) -> None:
    _check_surface_members(event)
    check_structure(event.type, event.data)


def _check_request_row(event: Event) -> None:
    if event.surface_op is not None or event.sources is not None:
        raise SchemaError("request/header may have neither surfaceOp nor sourceEventSeqs")
    check_structure(event.type, event.data)


#: What a row of these types must hold; others must only keep away from the surface.
_ROW_CHECKS: dict[str, Callable[[Event], None]] = {
    "user/message": _check_user_row,
    "assistant/message": _check_assistant_row,
    "tool/result": _check_result_row,
    "system/message": _check_system_row,
    "request/header": _check_request_row,
}


def check_body(kind: str, data: dict[str, Any]) -> None:
    """Check the message in a surface event, as far as every generation has it."""
    if kind == "tool/result":
        _check_tool_result(data)
    elif kind == "assistant/message":
        _check_assistant(data)
    elif kind == "user/message":
        _check_message(data, "user")


def check_structure(kind: str, data: Any) -> None:
    """Check what no v3 file may hold, not even behind a damaged row."""
    if kind == "request/header":
        header = data.get("header") if isinstance(data, dict) else None
        if not isinstance(header, dict):
            raise SchemaError("request/header has no header object")
        if "system" in header:
            raise SchemaError("request/header has a system prompt, which v3 keeps in messages")
        if header.get("tools") == [] or header.get("adapterDefaults") == {}:
            raise SchemaError("request/header has an empty tools or adapterDefaults")
    elif kind == "system/message":
        payload(kind, data)


def check_draft(draft: Draft, seq: int, time: int) -> Event:
    """Check a draft that would become event ``seq`` and return that event, its payload decoded.

    Raises :class:`SchemaError`.
    """
    kind = draft.type
    if kind in OWN_TYPES or not is_known(kind):
        if not draft.ignorable:
            raise SchemaError(
                f"{kind} is no event type of this format; mark it ignorable to keep it"
            )
        if kind in SURFACE_TYPES:
            raise SchemaError(f"{kind} cannot be ignorable")
    raw = draft.data
    event = Event(kind, seq, time, raw, draft.ignorable, draft.surface_op, draft.sources)
    try:
        data: Any = event.data
    except ValueError as error:
        raise SchemaError(f"data is {error}") from error
    if not isinstance(data, dict):
        raise SchemaError("data is no JSON object")
    _check_references(draft, seq)
    check_row(event)
    payload(kind, data)
    if b"\n" in raw or b"\r" in raw:
        # It spreads over lines: encoded again when it is asked for.
        return msgspec.structs.replace(event, encoded=None)
    return event


def payload(kind: str, data: Any) -> None:
    """Check a payload's exact members, for the types whose members Interlock knows."""
    shape = payloads.BY_TYPE.get(kind)
    if shape is None:
        return
    try:
        value = msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        raise SchemaError(f"{kind}: {error}") from error
    except RecursionError as error:
        raise SchemaError(f"{kind}: nested too deeply") from error
    reason = further_fault(value)
    if reason is not None:
        raise SchemaError(f"{kind}: {reason}")


def _check_references(draft: Draft, seq: int) -> None:
    sources = draft.sources
    if sources is not None:
        if not sources:
            raise SchemaError("sourceEventSeqs is empty")
        if len(set(sources)) != len(sources) or min(sources) < 0 or max(sources) >= seq:
            raise SchemaError("sourceEventSeqs are not unique earlier seqs")
    operation = draft.surface_op
    if isinstance(operation, Replace) and not (
        0 <= operation.start_seq < seq and 0 <= operation.end_seq < seq
    ):
        raise SchemaError("a replacement names events that are not earlier")


def _check_surface_members(event: Event) -> None:
    operation = event.surface_op
    if operation is None:
        raise SchemaError(f"{event.type} has no surfaceOp")
    if isinstance(operation, Replace) and not (
        0 <= operation.start_seq < event.seq and 0 <= operation.end_seq < event.seq
    ):
        raise SchemaError("a replacement names events that are not earlier")
    if event.sources is not None and event.type == "assistant/message":
        raise SchemaError("assistant/message may not have sourceEventSeqs")


def _check_message(message: Any, role: str) -> dict[str, Any]:
    """Check what every message has; members beyond the known ones survive reading."""
    if type(message) is dict:
        name, source = message.get("id"), message.get("source")
        if (
            type(name) is str
            and name
            and message.get("role") == role
            and type(message.get("content")) is list
            and type(source) is dict
            and type(source.get("kind")) is str
        ):
            return message
    raise SchemaError(_message_fault(message, role))


def _message_fault(message: Any, role: str) -> str:
    if not isinstance(message, dict):
        return "the event has no message object"
    if not isinstance(message.get("id"), str) or not message["id"]:
        return "the message has no id"
    if message.get("role") != role:
        return f"the message's role is not {role}"
    if not isinstance(message.get("content"), list):
        return "the message's content is no list"
    return "the message has no source"


def _check_assistant(data: dict[str, Any]) -> None:
    message = _check_message(data.get("message"), "assistant")
    if message["source"]["kind"] != "model":
        raise SchemaError("the assistant message's source is no model")
    for block in message["content"]:
        if type(block) is dict and block.get("type") == "tool-call":
            call_id = block.get("id")
            if not (
                type(call_id) is type(block.get("name")) is type(block.get("arguments")) is str
                and call_id
            ):
                raise SchemaError("a tool-call block lacks its id, name or arguments")


def _check_tool_result(data: dict[str, Any]) -> None:
    message = _check_message(data.get("message"), "user")
    source, content = message["source"], message["content"]
    block = content[0] if len(content) == 1 else None
    if type(block) is not dict or block.get("type") != "tool-result":
        raise SchemaError("a tool result holds exactly one tool-result block")
    call_id = source.get("callId")
    if source["kind"] != "tool" or type(call_id) is not str or not call_id:
        raise SchemaError("a tool result's source is no tool call")
    if block.get("toolCallId") != call_id:
        raise SchemaError("a tool result's block and source name different calls")


def check_time(time: int) -> None:
    """Refuse a time that JSON readers elsewhere could not hold."""
    if abs(time) > MAX_SAFE_INTEGER:
        raise SchemaError(f"time {time} is out of range")
