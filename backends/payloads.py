"""The exact members of each event type's payload (format v3), as types that check themselves."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Union

from msgspec import UNSET, Meta, Struct, UnsetType

Text = Annotated[str, Meta(min_length=1)]
Number = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=0)]
Seqs = list[Count]
Object = dict[str, Any]


class Exact(Struct, forbid_unknown_fields=True, rename="camel"):
    """Every member named, none besides."""


class TextBlock(Exact, tag_field="type", tag="text"):
    text: str


class ReasoningBlock(Exact, tag_field="type", tag="reasoning"):
    text: str


class ToolCallBlock(Exact, tag_field="type", tag="tool-call"):
    id: Text
    name: Text
    arguments: str


class ToolResultBlock(Exact, tag_field="type", tag="tool-result"):
    tool_call_id: Text
    content: list[Block]
    is_error: bool | UnsetType = UNSET


class Dimensions(Exact):
    width: Number
    height: Number


class ImageAttachment(Exact):
    attachment_id: Text
    media_type: Literal["image/png", "image/jpeg", "image/webp", "image/gif"]
    bytes: Count
    width: Number
    height: Number
    name: str | UnsetType = UNSET
    original_dimensions: Dimensions | UnsetType = UNSET


class ImageBlock(Exact, tag_field="type", tag="image"):
    attachment: ImageAttachment


class FileAttachment(Exact):
    attachment_id: Text
    name: str
    bytes: Count


class FileBlock(Exact, tag_field="type", tag="file"):
    attachment: FileAttachment


# Evaluated by msgspec at run time, where a string inside `|` would be a plain TypeError.
Block = Union[TextBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock, ImageBlock, FileBlock]  # noqa: UP007


class UserSource(Exact):
    kind: Literal["user"]
    rpc_id: Any = UNSET
    client_time_zone: str | UnsetType = UNSET


class Section(Exact):
    name: str
    text: str


class PluginSource(Exact):
    kind: Literal["plugin"]
    plugin: Text
    form: Literal["snapshot", "notice"] | UnsetType = UNSET
    sections: list[Section] | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    compaction_id: Text | UnsetType = UNSET
    source_command_id: Text | UnsetType = UNSET


class ModelSource(Exact):
    kind: Literal["model"]
    provider: Text
    model: Text
    replay_state: Any = UNSET


class ToolSource(Exact):
    kind: Literal["tool"]
    call_id: Text


class UserMessage(Exact):
    id: Text
    role: Literal["user"]
    content: list[Block]
    source: Object


class AssistantBody(Exact):
    id: Text
    role: Literal["assistant"]
    content: list[Block]
    source: ModelSource


class SystemBody(Exact):
    id: Text
    role: Literal["system"]
    content: list[Block]
    source: PluginSource


class ToolBody(Exact):
    id: Text
    role: Literal["user"]
    content: Annotated[list[ToolResultBlock], Meta(min_length=1, max_length=1)]
    source: ToolSource


class Usage(Exact):
    input_tokens: Count
    output_tokens: Count
    total_tokens: Count | UnsetType = UNSET
    cache_read_tokens: Count | UnsetType = UNSET
    cache_write_tokens: Count | UnsetType = UNSET
    reasoning_tokens: Count | UnsetType = UNSET


class ChunkRecord(Exact, tag_field="type", tag="chunk"):
    time: int
    chunk: Object


class TextRun(Exact, tag_field="type", tag="text-chunks"):
    time0: int
    index: Count
    dt: list[int]
    texts: Annotated[list[str], Meta(min_length=1)]


class ReasoningRun(Exact, tag_field="type", tag="reasoning-chunks"):
    time0: int
    index: Count
    dt: list[int]
    texts: Annotated[list[str], Meta(min_length=1)]


class ToolCallRun(Exact, tag_field="type", tag="tool-call-chunks"):
    time0: int
    index: Count
    dt: list[int]
    id: Text
    args: Annotated[list[str], Meta(min_length=1)]
    name: Text | UnsetType = UNSET


StreamRecord = ChunkRecord | TextRun | ReasoningRun | ToolCallRun


class Turn(Exact):
    turn: Number


class Failure(Exact):
    message: str
    code: Text
    status: Annotated[int, Meta(ge=100, le=599)] | UnsetType = UNSET
    provider_retry_after_ms: Annotated[float, Meta(gt=0)] | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class TurnEnd(Exact):
    turn: Number
    reason: Object


class Step(Exact):
    turn: Number
    step: Number


class AssistantMessage(Exact):
    turn: Number
    step: Number
    message: AssistantBody
    stream: list[StreamRecord]
    usage: Usage | UnsetType = UNSET
    interrupted: Literal[True] | UnsetType = UNSET


class AssistantAttempt(Exact):
    turn: Number
    step: Number
    stream: list[StreamRecord]


class SystemMessage(Exact):
    turn: Number
    step: Number
    message: SystemBody


class ToolCall(Exact):
    turn: Number
    step: Number
    call_id: Text
    name: Text
    arguments: str


class ToolError(Exact):
    name: Text
    code: Text
    # Not in the format's own list, but real v3 logs hold it and the real codec accepts it.
    reason: str | UnsetType = UNSET


class ToolResult(Exact):
    turn: Number
    step: Number
    message: ToolBody
    error: ToolError | UnsetType = UNSET
    meta: Any = UNSET


class ApprovalAsked(Exact):
    id: Text
    tool_name: Text
    call_id: Text | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class ApprovalDecided(Exact):
    id: Text
    outcome: Literal["allowed-once", "rejected", "cancelled", "unavailable"]


class ApprovalPolicy(Exact):
    policy: Literal["ask", "never"]
    source: Literal["delegation"] | UnsetType = UNSET


class SandboxMode(Exact):
    mode: Literal["read-only", "workspace-write", "danger-full-access"]
    source: Literal["delegation"] | UnsetType = UNSET


class RequestConfig(Exact):
    provider: Text
    model: Text
    reasoning_effort: str | UnsetType = UNSET
    temperature: float | UnsetType = UNSET
    max_tokens: Number | UnsetType = UNSET
    stop: list[str] | UnsetType = UNSET


class AdapterDefaults(Exact):
    reasoning_effort: Literal[True] | UnsetType = UNSET
    max_tokens: Literal[True] | UnsetType = UNSET


class ToolDeclaration(Exact):
    name: Text
    description: str
    parameters: Object


class Request(Exact):
    config: RequestConfig
    adapter_defaults: AdapterDefaults | UnsetType = UNSET
    tools: list[ToolDeclaration] | UnsetType = UNSET


class RequestHeader(Exact):
    header: Request
    reason: Literal["initial", "resume", "change", "series"]
    starts_series: Literal[True] | UnsetType = UNSET


class RequestContext(Exact):
    provider: Text
    model: Text
    context_window: Number | UnsetType = UNSET
    # As with ToolError.reason: real v3 logs hold it and the real codec accepts it.
    system_prompt_update: Any = UNSET


class InboxSpliced(Exact):
    target: Literal["next-turn", "next-step"]
    start: Count
    inserted: list[UserMessage]
    removed_count: Count | UnsetType = UNSET
    outcome: Literal["canceled"] | UnsetType = UNSET


class EndSeed(Exact):
    inherited: Literal[True] | UnsetType = UNSET


class Range(Exact):
    start: Count
    end: Count


class CompactionStart(Exact):
    compaction_id: Text
    turn: Number | None
    source_command_id: Text | UnsetType = UNSET


class CompactionSummary(Exact):
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


class CompactionEnd(Exact):
    compaction_id: Text
    turn: Number | None
    source_command_id: Text | UnsetType = UNSET
    error: str | UnsetType = UNSET


class CompactionPrune(Exact):
    shadowed_range: Range
    shadowed_seqs: Seqs
    shadowed_token_count: Count


class LlmRetry(Exact):
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


class LlmRetryStarted(Exact):
    retry_id: Text
    turn: Number
    step: Number
    retry: Number


class ModelRoute(Exact):
    provider: Text
    model: Text


class TitleSource(Exact):
    kind: Literal["fallback", "user", "provider"]
    provider: Text | UnsetType = UNSET
    model: ModelRoute | UnsetType = UNSET


class SessionTitle(Exact):
    title: str
    message_seqs: Seqs
    source: TitleSource


class CommandSource(Exact):
    kind: Literal["user"]


class CommandRun(Exact):
    command_id: Text
    name: Text
    source: CommandSource
    args: Any = UNSET


class CommandDone(Exact):
    command_id: Text
    kind: Literal["success", "error"]
    text: str | UnsetType = UNSET
    source_event_seq: Count | UnsetType = UNSET


class Todo(Exact):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoWrite(Exact):
    todos: list[Todo]


class DispatchStart(Exact):
    root_call_id: Text
    parent_call_id: Text
    sub_call_id: Text
    name: Text
    arguments: Any


class Dispatch(Exact):
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
