"""The exact members of each event type's payload (format v3), as types that check themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Text = Annotated[str, Meta(min_length=1)]
Number = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Seqs = list[Count]
Object = dict[str, Any]


class _Exact(Struct, forbid_unknown_fields=True, rename="camel"):
    """Every member named, none besides."""


class TextBlock(_Exact, tag_field="type", tag="text"):
    text: str


class ReasoningBlock(_Exact, tag_field="type", tag="reasoning"):
    text: str


class ToolCallBlock(_Exact, tag_field="type", tag="tool-call"):
    id: Text
    name: Text
    arguments: str


class ToolResultBlock(_Exact, tag_field="type", tag="tool-result"):
    tool_call_id: Text
    content: list[Block]
    is_error: bool | UnsetType = UNSET


class Dimensions(_Exact):
    width: Count
    height: Count


class ImageAttachment(_Exact):
    attachment_id: Text
    media_type: Text
    bytes: Count
    width: Count
    height: Count
    name: str | UnsetType = UNSET
    original_dimensions: Dimensions | UnsetType = UNSET


class ImageBlock(_Exact, tag_field="type", tag="image"):
    attachment: ImageAttachment


class FileAttachment(_Exact):
    attachment_id: Text
    name: str
    bytes: Count


class FileBlock(_Exact, tag_field="type", tag="file"):
    attachment: FileAttachment


# Evaluated by msgspec at run time, where a string inside `|` would be a plain TypeError.
Block = Union[TextBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock, ImageBlock, FileBlock]  # noqa: UP007


class UserSource(_Exact):
    kind: Literal["user"]
    rpc_id: Any = UNSET
    client_time_zone: str | UnsetType = UNSET


class Section(_Exact):
    name: str
    text: str


class PluginSource(_Exact):
    kind: Literal["plugin"]
    plugin: Text
    form: Literal["snapshot", "notice"] | UnsetType = UNSET
    sections: list[Section] | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    compaction_id: Text | UnsetType = UNSET
    source_command_id: Text | UnsetType = UNSET


class ModelSource(_Exact):
    kind: Literal["model"]
    provider: Text
    model: Text
    replay_state: Any = UNSET


class ToolSource(_Exact):
    kind: Literal["tool"]
    call_id: Text


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


class UserMessage(_Exact):
    id: Text
    role: Literal["user"]
    content: list[Block]
    source: Object


class AssistantBody(_Exact):
    id: Text
    role: Literal["assistant"]
    content: list[Block]
    source: ModelSource


class SystemBody(_Exact):
    id: Text
    role: Literal["system"]
    content: list[Block]
    source: PluginSource


class ToolBody(_Exact):
    id: Text
    role: Literal["user"]
    content: Annotated[list[ToolResultBlock], Meta(min_length=1, max_length=1)]
    source: ToolSource


class Usage(_Exact):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count | UnsetType = UNSET
    cache_read_tokens: Count | UnsetType = UNSET
    cache_write_tokens: Count | UnsetType = UNSET
    reasoning_tokens: Count | UnsetType = UNSET


class ChunkRecord(_Exact, tag_field="type", tag="chunk"):
    time: int
    chunk: Object


class TextRun(_Exact, tag_field="type", tag="text-chunks"):
    time0: int
    index: Count
    dt: list[int]
    texts: Annotated[list[str], Meta(min_length=1)]


class ReasoningRun(_Exact, tag_field="type", tag="reasoning-chunks"):
    time0: int
    index: Count
    dt: list[int]
    texts: Annotated[list[str], Meta(min_length=1)]


class ToolCallRun(_Exact, tag_field="type", tag="tool-call-chunks"):
    time0: int
    index: Count
    dt: list[int]
    id: Text
    args: Annotated[list[str], Meta(min_length=1)]
    name: Text | UnsetType = UNSET


StreamRecord = ChunkRecord | TextRun | ReasoningRun | ToolCallRun


class Turn(_Exact):
    turn: Number


class Failure(_Exact):
    message: str
    code: Text
    status: Annotated[int, Meta(ge=100, le=599)] | UnsetType = UNSET
    provider_retry_after_ms: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class TurnEnd(_Exact):
    turn: Number
    reason: Object


class Step(_Exact):
    turn: Number
    step: Number


class AssistantMessage(_Exact):
    turn: Number
    step: Number
    message: AssistantBody
    stream: list[StreamRecord]
    usage: Usage | UnsetType = UNSET
    interrupted: Literal[True] | UnsetType = UNSET


class AssistantAttempt(_Exact):
    turn: Number
    step: Number
    stream: list[StreamRecord]


class SystemMessage(_Exact):
    turn: Number
    step: Number
    message: SystemBody


class ToolCall(_Exact):
    turn: Number
    step: Number
    call_id: Text
    name: Text
    arguments: str


class ToolError(_Exact):
    name: Text
    code: Text
    # Not in the format's own list, but real v3 logs hold it and the real codec accepts it.
    reason: str | UnsetType = UNSET


class ToolResult(_Exact):
    turn: Number
    step: Number
    message: ToolBody
    error: ToolError | UnsetType = UNSET
    meta: Any = UNSET


class ApprovalAsked(_Exact):
    id: Text
    tool_name: Text
    call_id: Text | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ApprovalDecided(_Exact):
    id: Text
    outcome: Literal["allowed-once", "rejected", "cancelled", "unavailable"]


class ApprovalPolicy(_Exact):
    policy: Literal["ask", "never"]
    source: Literal["delegation"] | UnsetType = UNSET


class SandboxMode(_Exact):
    mode: Literal["read-only", "workspace-write", "danger-full-access"]
    source: Literal["delegation"] | UnsetType = UNSET


class RequestConfig(_Exact):
    provider: Text
    model: Text
    reasoning_effort: str | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    max_tokens: Number | UnsetType = UNSET
    stop: list[str] | UnsetType = UNSET


class AdapterDefaults(_Exact):
    reasoning_effort: Literal[True] | UnsetType = UNSET
    max_tokens: Literal[True] | UnsetType = UNSET


class ToolDeclaration(_Exact):
    name: Text
    description: str
    parameters: Object


class Request(_Exact):
    config: RequestConfig
    adapter_defaults: AdapterDefaults | UnsetType = UNSET
    tools: list[ToolDeclaration] | UnsetType = UNSET


class RequestHeader(_Exact):
    header: Request
    reason: Literal["initial", "resume", "change", "series"]
    starts_series: Literal[True] | UnsetType = UNSET


class RequestContext(_Exact):
    provider: Text
    model: Text
    context_window: Number | UnsetType = UNSET
    # As with ToolError.reason: real v3 logs hold it and the real codec accepts it.
    system_prompt_update: Any = UNSET


class InboxSpliced(_Exact):
    target: Literal["next-turn", "next-step"]
    start: Count
    inserted: list[UserMessage]
    removed_count: Count | UnsetType = UNSET
    outcome: Literal["canceled"] | UnsetType = UNSET


class EndSeed(_Exact):
    inherited: Literal[True] | UnsetType = UNSET


class Range(_Exact):
    start: Count
    end: Count


class CompactionStart(_Exact):
    compaction_id: Text
    turn: Number | None
    source_command_id: Text | UnsetType = UNSET


class CompactionSummary(_Exact):
    compaction_id: Text
    summary: list[Block]
    shadowed_range: Range
    shadowed_seqs: Seqs
    shadowed_token_count: Count
    provider: Text
    model: Text
    source_command_id: Text | UnsetType = UNSET
    max_tokens: Number | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    raw_output: list[Any] | UnsetType = UNSET
    llm_stream_call: Literal[True] | UnsetType = UNSET


class CompactionEnd(_Exact):
    compaction_id: Text
    turn: Number | None
    source_command_id: Text | UnsetType = UNSET
    error: str | UnsetType = UNSET


class CompactionPrune(_Exact):
    shadowed_range: Range
    shadowed_seqs: Seqs
    shadowed_token_count: Count


class LlmRetry(_Exact):
    retry_id: Text
    turn: Number
    step: Number
    provider: Text
    mode: Literal["normal", "always"]
    policy_key: Text
    retry: Number
    delay_ms: Annotated[float, Meta(ge=0, le=2147483647)]
    failure: Failure
    max_retries: Number | UnsetType = UNSET


class LlmRetryStarted(_Exact):
    retry_id: Text
    turn: Number
    step: Number
    retry: Number


class ModelRoute(_Exact):
    provider: Text
    model: Text


class TitleSource(_Exact):
    kind: Literal["fallback", "user", "provider"]
    provider: Text | UnsetType = UNSET
    model: ModelRoute | UnsetType = UNSET


class SessionTitle(_Exact):
    title: str
    message_seqs: Seqs
    source: TitleSource


class CommandSource(_Exact):
    kind: Literal["user"]


class CommandRun(_Exact):
    command_id: Text
    name: Text
    source: CommandSource
    args: Any = UNSET


class CommandDone(_Exact):
    command_id: Text
    kind: Literal["success", "error"]
    text: str | UnsetType = UNSET
    source_event_seq: Count | UnsetType = UNSET


class Todo(_Exact):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoWrite(_Exact):
    todos: list[Todo]


class DispatchStart(_Exact):
    root_call_id: Text
    parent_call_id: Text
    sub_call_id: Text
    name: Text
    arguments: Any


class Dispatch(_Exact):
    root_call_id: Text
    parent_call_id: Text
    sub_call_id: Text
    name: Text
    arguments: Any
    is_error: bool
    content: list[Block]
    # As with ToolError.reason: real v3 logs hold it and the real codec accepts it.
    error: ToolError | UnsetType = UNSET


BY_TYPE: dict[str, type[Struct]] = {
    "turn/start": Turn,
    "turn/end": TurnEnd,
    "step/start": Step,
    "step/end": Step,
    "user/message": UserMessage,
    "assistant/message": AssistantMessage,
    "assistant/attempt": AssistantAttempt,
    "system/message": SystemMessage,
    "tool/call": ToolCall,
    "tool/result": ToolResult,
    "approval/asked": ApprovalAsked,
    "approval/decided": ApprovalDecided,
    "approval/policy": ApprovalPolicy,
    "sandbox/mode": SandboxMode,
    "request/header": RequestHeader,
    "request/context": RequestContext,
    "agent/inbox/spliced": InboxSpliced,
    "session/end-seed": EndSeed,
    "compaction/start": CompactionStart,
    "compaction/summary": CompactionSummary,
    "compaction/end": CompactionEnd,
    "compaction/prune": CompactionPrune,
    "llm/retry": LlmRetry,
    "llm/retry-started": LlmRetryStarted,
    "session/title": SessionTitle,
    "command/run": CommandRun,
    "command/done": CommandDone,
    "todo/write": TodoWrite,
    "tool/ptc-dispatch-start": DispatchStart,
    "tool/ptc-dispatch": Dispatch,
}


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
        by_user = value.source.kind == "user"
        return (
            "messageSeqs must be empty exactly for a user's title"
            if (by_user is bool(value.message_seqs))
            else None
        )
    if isinstance(value, RequestHeader):
        return _request_fault(value.header)
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


class _Bare(_Exact):
    kind: Text


class _Aborted(_Exact):
    kind: Literal["aborted"]
    reason: Object


class _AbortedByHook(_Exact):
    kind: Literal["hook"]
    reason: str


class _Errored(_Exact):
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
    return None if by.keys() == {"kind"} and by["kind"] in _ABORTERS else "nobody aborted the turn"


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


def _request_fault(request: Request) -> str | None:
    defaults = request.adapter_defaults
    if isinstance(defaults, UnsetType):
        return None
    if defaults.reasoning_effort is True and request.config.reasoning_effort is UNSET:
        return "adapterDefaults.reasoningEffort without the config value"
    if defaults.max_tokens is True and request.config.max_tokens is UNSET:
        return "adapterDefaults.maxTokens without the config value"
    return None
