"""Exact payloads of event types that Interlock never writes, and of those that v2 had otherwise."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from ..payloads import (
    AssistantBody,
    Block,
    Count,
    Exact,
    ModelRoute,
    Number,
    Object,
    Range,
    Seqs,
    Text,
    Usage,
)


class AgentPreset(Exact):
    agent_preset: str


class PermissionPreset(Exact):
    preset: Text


class PlanMode(Exact):
    active: bool


class ModelSelection(Exact):
    provider: Text
    model: Text
    reasoning_effort: Text | UnsetType = UNSET


class HookInvoked(Exact):
    turn: Count
    point: Text
    dialect: Literal["claude-code", "codex"]
    handler_id: Text
    matcher: str | UnsetType = UNSET


class HookResult(Exact):
    turn: Count
    point: Text
    handler_id: Text
    decision: Text
    duration_ms: Annotated[float, Meta(ge=0)]
    exit_code: int | UnsetType = UNSET
    stderr_summary: str | UnsetType = UNSET


class Delivery(Exact):
    # Only a marker of the generation that reads it says anything about this log.
    session_id: Any
    through_seq: Any
    session_format_version: Count | UnsetType = UNSET


class OneShot(Exact, tag_field="mode", tag="one-shot"):
    version: Literal[3]
    provider: Text
    label: str | UnsetType = UNSET


class ToolFilter(Exact):
    allow: list[Text] | UnsetType = UNSET
    deny: list[Text] | UnsetType = UNSET


class Continuable(Exact, tag_field="mode", tag="continuable"):
    version: Literal[3]
    provider: Text
    label: Text
    agent_provider: Text | UnsetType = UNSET
    agent_model: Text | UnsetType = UNSET
    agent_reasoning_effort: Text | UnsetType = UNSET
    persona: Text | UnsetType = UNSET
    tool_filter: ToolFilter | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.agent_provider is UNSET) is not (self.agent_model is UNSET):
            raise ValueError("agentProvider and agentModel come together")
        wanted = self.tool_filter
        if isinstance(wanted, ToolFilter) and wanted.allow is UNSET and wanted.deny is UNSET:
            raise ValueError("a toolFilter allows or denies something")


class SelectionPolicy(Exact):
    allowed_models: Annotated[list[ModelRoute], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if len({(route.provider, route.model) for route in self.allowed_models}) != len(
            self.allowed_models
        ):
            raise ValueError("a model is allowed twice")


class TitleMessage(Exact):
    id: Text
    role: Literal["system", "user", "assistant"]
    content: list[Block]
    source: Object


class TitleRequest(Exact):
    title_provider: Text
    message_seqs: Annotated[list[Count], Meta(min_length=1)]
    route: ModelRoute
    system: str
    messages: list[TitleMessage]
    max_tokens: Number


class FeedbackRecord(Exact):
    text: Text


class FeedbackItem(Exact):
    message_id: str
    rating: Literal["positive", "negative"]
    version: str
    created_at: Count
    updated_at: Count
    note: str | UnsetType = UNSET


class FeedbackPut(Exact):
    session_id: str
    item: FeedbackItem


class FeedbackDelete(Exact):
    session_id: str
    message_id: str


class GoalRef(Exact):
    id: Text
    revision: Number


class BlockedReason(Exact):
    code: Text
    message: Text


class GoalSnapshot(Exact):
    id: Text
    revision: Number
    objective: Text
    phase: Literal["active", "paused", "blocked", "complete"]
    max_goal_rounds: Number
    blocked_reason: BlockedReason | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.phase == "blocked") is (self.blocked_reason is UNSET):
            raise ValueError("exactly a blocked goal has a blockedReason")


class GoalChange(Exact):
    kind: Literal["goal/change"]
    version: Literal[1]
    operation: Literal["create", "edit", "pause", "resume", "complete", "block", "clear"]
    goal: GoalSnapshot | UnsetType = UNSET
    rounds_started: Count | UnsetType = UNSET
    created_at: Count | UnsetType = UNSET
    updated_at: Count | UnsetType = UNSET
    cleared: GoalRef | UnsetType = UNSET
    cleared_at: Count | UnsetType = UNSET

    def __post_init__(self) -> None:
        kept = (self.goal, self.rounds_started, self.created_at, self.updated_at)
        gone = (self.cleared, self.cleared_at)
        expected, other = (gone, kept) if self.operation == "clear" else (kept, gone)
        if any(m is UNSET for m in expected) or any(m is not UNSET for m in other):
            raise ValueError(f"the members are not those of operation {self.operation}")


#: A UTC instant as JavaScript writes it.
Instant = Annotated[
    str,
    Meta(
        pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$"
    ),
]
ScheduleId = Annotated[str, Meta(pattern=r"^\S(.*\S)?$")]


class After(Exact, tag_field="kind", tag="after"):
    id: ScheduleId
    prompt: Text
    after_seconds: Number
    scheduled_at: Instant


class At(Exact, tag_field="kind", tag="at"):
    id: ScheduleId
    prompt: Text
    scheduled_at: Instant


class Every(Exact, tag_field="kind", tag="every"):
    id: ScheduleId
    prompt: Text
    every_seconds: Annotated[int, Meta(ge=300)]
    scheduled_at: Instant


class ScheduleCreate(Exact, tag_field="operation", tag="create"):
    version: Literal[1]
    schedule: After | At | Every


class ScheduleDelete(Exact, tag_field="operation", tag="delete"):
    version: Literal[1]
    id: ScheduleId


class ScheduleDispatch(Exact, tag_field="operation", tag="dispatch"):
    version: Literal[1]
    id: ScheduleId
    accepted_at: Instant | UnsetType = UNSET


class Member(Exact):
    id: Text
    name: str
    description: str
    provider: str
    context: Literal["fresh", "fork"]
    phase: Literal["provisioning", "active", "failed"]
    error: str | UnsetType = UNSET


class TeamMember(Exact):
    version: Literal[1]
    team_id: Text
    member: Member


class TeamDelivered(Exact):
    version: Literal[1]
    team_id: Text
    message_id: Text
    target_id: Text


class TeamText(Exact):
    id: Text
    sender_id: Text
    sender_name: str
    target_id: Text
    delivery: Literal["quiet", "wakeup"]
    content: list[Block]


class TeamQueued(Exact):
    version: Literal[1]
    team_id: Text
    message: TeamText


class Task(Exact):
    id: Text
    revision: Number
    subject: str
    description: str
    status: Literal["pending", "in_progress", "completed", "deleted"]
    blocked_by: list[Text]
    write_scopes: list[str]
    owner_id: Text | UnsetType = UNSET


class TeamTask(Exact):
    version: Literal[1]
    team_id: Text
    task: Task


class WorkflowAgentEnd(Exact):
    run_id: Text
    seq: Number
    outcome: Literal["completed", "failed", "cancelled"]


class WorkflowAgentStart(Exact):
    run_id: Text
    seq: Number
    label: str
    child_id: Text
    phase: str | UnsetType = UNSET


class WorkflowRunEnd(Exact):
    run_id: Text
    stop_reason: Literal["completed", "cancelled", "error"]


class WorkflowRunStart(Exact):
    run_id: Text
    name: Text


class SearchText(Exact, tag_field="type", tag="text"):
    text: str


class SearchMessage(Exact):
    role: Literal["user"]
    content: Annotated[list[SearchText], Meta(min_length=1, max_length=1)]


class SearchTool(Exact, rename=None):
    type: Literal["web_search_20250305"]
    name: Literal["web_search"]
    max_uses: Number


class SearchBody(Exact, rename=None):
    model: Text
    max_tokens: Number
    messages: Annotated[list[SearchMessage], Meta(min_length=1, max_length=1)]
    tools: Annotated[list[SearchTool], Meta(min_length=1, max_length=1)]


class SearchRequest(Exact):
    endpoint: Text
    api_version: Text
    body: SearchBody


class Summary(Exact):
    """As the current payload, but for ``maxTokens``, which may be 0 in the old generations."""

    compaction_id: Text
    summary: list[Block]
    shadowed_range: Range
    shadowed_seqs: Seqs
    shadowed_token_count: Count
    provider: Text
    model: Text
    source_command_id: Text | UnsetType = UNSET
    max_tokens: Count | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    raw_output: list[Block] | UnsetType = UNSET
    llm_stream_call: Literal[True] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.llm_stream_call is True and self.raw_output is UNSET:
            raise ValueError("llmStreamCall needs rawOutput")


class Answer(Exact):
    """As the current payload; what the stream's records hold is nobody's reference."""

    turn: Number
    step: Number
    message: AssistantBody
    stream: list[Object]
    usage: Usage | UnsetType = UNSET
    interrupted: Literal[True] | UnsetType = UNSET


class Attempted(Exact):
    turn: Number
    step: Number
    stream: list[Object]


AUDITED: dict[str, Any] = {
    "assistant/message": Answer,
    "assistant/attempt": Attempted,
    "agent-preset/selected": AgentPreset,
    "permission/preset": PermissionPreset,
    "plan/mode": PlanMode,
    "model/selection": ModelSelection,
    "hook/invoked": HookInvoked,
    "hook/result": HookResult,
    "session-log-deepseek/delivery-accepted": Delivery,
    "subagent/descriptor": OneShot | Continuable,
    "subagent/model-selection-policy": SelectionPolicy,
    "session/title-llm-request": TitleRequest,
    "feedback/record": FeedbackRecord,
    "feedback/message-put": FeedbackPut,
    "feedback/message-delete": FeedbackDelete,
    "goal/change": GoalChange,
    "schedule/change": ScheduleCreate | ScheduleDelete | ScheduleDispatch,
    "team/member": TeamMember,
    "team/message/delivered": TeamDelivered,
    "team/message/queued": TeamQueued,
    "team/task": TeamTask,
    "tool-workflow/agent-end": WorkflowAgentEnd,
    "tool-workflow/agent-start": WorkflowAgentStart,
    "tool-workflow/run-end": WorkflowRunEnd,
    "tool-workflow/run-start": WorkflowRunStart,
    "web/deepseek-search-llm-request": SearchRequest,
    "compaction/summary": Summary,
}
