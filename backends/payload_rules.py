"""Rules of single payloads that their types cannot say."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .payloads import (
    AssistantAttempt,
    AssistantMessage,
    ChunkRecord,
    CompactionSummary,
    Exact,
    Failure,
    InboxSpliced,
    LlmRetry,
    Object,
    PluginSource,
    Request,
    RequestHeader,
    SessionTitle,
    StreamRecord,
    Text,
    ToolCallRun,
    TurnEnd,
    UserMessage,
    UserSource,
)

#: Kinds of user message source whose members the format does not list.
_OPEN_SOURCES = frozenset(
    {
        "agent-instructions",
        "session-reference",
        "team-message",
        "goal",
        "skill-invocation",
        "skill-catalog",
        "coordinator",
        "subagent-report",
        "subagent-settled",
        "webhook",
        "agent-message",
    }
)


def further_fault(value: Struct) -> str | None:
    """Return the first broken rule that a type cannot say, or None."""
    if isinstance(value, UserMessage):
        return _source_fault(value.source)
    if isinstance(value, TurnEnd):
        return _reason_fault(value.reason)
    if isinstance(value, (AssistantMessage, AssistantAttempt)):
        return _stream_fault(value.stream)
    if isinstance(value, InboxSpliced):
        return next(filter(None, (_source_fault(m.source) for m in value.inserted)), None)
    if isinstance(value, LlmRetry):
        return _retry_fault(value)
    if isinstance(value, CompactionSummary):
        stray = value.llm_stream_call is True and value.raw_output is UNSET
        return "llmStreamCall needs rawOutput" if stray else None
    if isinstance(value, SessionTitle):
        source = value.source
        if (source.kind == "provider") is (source.provider is UNSET):
            return "exactly a provider's title names its provider"
        by_user = source.kind == "user"
        return (
            "messageSeqs must be empty exactly for a user's title"
            if (by_user is bool(value.message_seqs))
            else None
        )
    if isinstance(value, RequestHeader):
        return request_fault(value.header)
    return None


_SOURCES: dict[str, type[Struct]] = {"user": UserSource, "plugin": PluginSource}


def _source_fault(source: Object) -> str | None:
    kind = source.get("kind")
    if kind in _OPEN_SOURCES:
        return None
    shape = _SOURCES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        return f"a user message cannot have a source of kind {kind!r}"
    return _fault(source, shape, "source")


def _fault(data: Any, shape: type[Struct], where: str) -> str | None:
    try:
        msgspec.convert(data, shape)
    except msgspec.ValidationError as error:
        return f"{where}: {error}"
    return None


class _Bare(Exact):
    kind: Text


class _Aborted(Exact):
    kind: Literal["aborted"]
    reason: Object


class _AbortedByHook(Exact):
    kind: Literal["hook"]
    reason: str


class _Errored(Exact):
    kind: Literal["error"]
    error: Failure


_PLAIN_ENDS = frozenset({"completed", "blocked", "max-tokens", "interrupted"})
_ABORTERS = frozenset({"user", "parent", "disposed", "legacy"})


def _reason_fault(reason: Object) -> str | None:
    kind = reason.get("kind")
    if not isinstance(kind, str) or not kind:
        return "the reason has no kind"
    if kind in _PLAIN_ENDS:
        return _fault(reason, _Bare, "reason")
    if kind == "error":
        return _fault(reason, _Errored, "reason")
    if kind != "aborted":
        return None
    fault = _fault(reason, _Aborted, "reason")
    if fault is not None:
        return fault
    by: Object = reason["reason"]
    if by.get("kind") == "hook":
        return _fault(by, _AbortedByHook, "reason.reason")
    known = by.keys() == {"kind"} and isinstance(by["kind"], str) and by["kind"] in _ABORTERS
    return None if known else "nobody aborted the turn"


def _stream_fault(stream: list[StreamRecord]) -> str | None:
    for record in stream:
        if isinstance(record, ChunkRecord):
            if not isinstance(record.chunk.get("type"), str):
                return "a chunk in the stream has no type"
            continue
        members = record.args if isinstance(record, ToolCallRun) else record.texts
        if len(record.dt) != len(members) - 1:
            return "a run in the stream does not have one dt between each two members"
    return None


def _retry_fault(value: LlmRetry) -> str | None:
    if value.mode == "always":
        return None if value.max_retries is UNSET else "mode always has no maxRetries"
    if isinstance(value.max_retries, UnsetType) or value.max_retries < value.retry:
        return "mode normal needs maxRetries, at least retry"
    return None


def request_fault(request: Request) -> str | None:
    """Return what is wrong between the members of a request's header, or None."""
    defaults = request.adapter_defaults
    if isinstance(defaults, UnsetType):
        return None
    if defaults.reasoning_effort is True and request.config.reasoning_effort is UNSET:
        return "adapterDefaults.reasoningEffort without the config value"
    if defaults.max_tokens is True and request.config.max_tokens is UNSET:
        return "adapterDefaults.maxTokens without the config value"
    return None
