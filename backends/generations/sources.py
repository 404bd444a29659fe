"""Where a message came from: the exact shapes of every source kind that migration has audited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ..payloads import Count, Exact, Number, Text


class User(Exact, tag_field="kind", tag="user"):
    rpc_id: Text | UnsetType = UNSET
    client_time_zone: Text | UnsetType = UNSET


class Section(Exact):
    name: Text
    text: str


class Plugin(Exact, tag_field="kind", tag="plugin"):
    plugin: Text
    form: (
        Literal["instructions", "catalog", "snapshot", "notice", "relay", "recall"] | UnsetType
    ) = UNSET
    sections: list[Section] | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    compaction_id: Text | UnsetType = UNSET
    source_command_id: Text | UnsetType = UNSET


class Model(Exact, tag_field="kind", tag="model"):
    provider: Text
    model: Text
    replay_state: Any = UNSET


class Tool(Exact, tag_field="kind", tag="tool"):
    call_id: Text


class InstructionChange(Exact):
    action: Literal["set", "replace", "remove"]
    scope: str
    path: str
    digest: str | UnsetType = UNSET


class AgentInstructions(Exact, tag_field="kind", tag="agent-instructions"):
    form: Literal["instructions"]
    changes: list[InstructionChange]
    baseline: Literal[True] | UnsetType = UNSET
    baseline_identity: Text | UnsetType = UNSET


class Reference(Exact):
    session_id: Text
    label: str
    captured_through_seq: Count | None
    compacted: bool
    original_messages: Count
    retained_messages: Count
    omitted_messages: Count
    omitted_bytes: Count
    truncated: bool
    input_index: Count
    captured_format_version: Annotated[int, Meta(ge=1, le=2)] | UnsetType = UNSET


class SessionReference(Exact, tag_field="kind", tag="session-reference"):
    form: Literal["recall"]
    version: Literal[1]
    references: Annotated[list[Reference], Meta(min_length=1)]


class TeamMessage(Exact, tag_field="kind", tag="team-message"):
    team_id: Text
    message_id: Text
    sender_id: Text
    sender_name: str


class Goal(Exact, tag_field="kind", tag="goal"):
    goal_id: Text
    revision: Number
    round: Number


class SkillInvocation(Exact, tag_field="kind", tag="skill-invocation"):
    name: Text
    form: Literal["instructions"]


class SkillEntry(Exact):
    name: Text
    description: str


class SkillCatalog(Exact, tag_field="kind", tag="skill-catalog"):
    form: Literal["catalog"]
    entries: list[SkillEntry]
    update: Literal[True] | UnsetType = UNSET


class Coordinator(Exact, tag_field="kind", tag="coordinator"):
    form: Literal["relay"]
    sender_session_id: Text


class SubagentReport(Exact, tag_field="kind", tag="subagent-report"):
    form: Literal["relay"]
    sender_session_id: Text


class AgentMessage(Exact, tag_field="kind", tag="agent-message"):
    form: Literal["relay"]
    sender_session_id: Text


class SubagentSettled(Exact, tag_field="kind", tag="subagent-settled"):
    form: Literal["notice"]
    summary: str
    sender_session_id: Text


class Webhook(Exact, tag_field="kind", tag="webhook"):
    provider: Text
    source: Text
    delivery_id: Text
    rule_id: Text
    form: Literal["notice"]
    summary: str


Source = (
    User
    | Plugin
    | Model
    | Tool
    | AgentInstructions
    | SessionReference
    | TeamMessage
    | Goal
    | SkillInvocation
    | SkillCatalog
    | Coordinator
    | SubagentReport
    | AgentMessage
    | SubagentSettled
    | Webhook
)


def messages_of(data: dict[str, Any]) -> Iterable[dict[str, Any]]:
    """Return the messages of a person's or a plugin's that an event's payload holds."""
    if "inserted" in data:
        inserted: list[dict[str, Any]] = data["inserted"]
        return inserted
    if "messages" in data:
        messages: list[dict[str, Any]] = data["messages"]
        return messages
    return (data,)


def source_fault(source: dict[str, Any]) -> str | None:
    """Return what is wrong with a message's source, or None."""
    if source == {"kind": "user"}:
        return None
    try:
        value: Any = msgspec.convert(source, Source)
    except msgspec.ValidationError as error:
        return f"a message's source: {error}"
    if isinstance(value, Plugin):
        return _plugin_fault(value)
    if isinstance(value, SessionReference):
        return _references_fault(value.references)
    return None


def _plugin_fault(source: Plugin) -> str | None:
    compact = source.plugin == "compact"
    if compact is (source.compaction_id is UNSET):
        return "exactly a message of the plugin 'compact' has a compactionId"
    if not compact and source.source_command_id is not UNSET:
        return "only a message of the plugin 'compact' has a sourceCommandId"
    if (source.form == "snapshot") is (source.sections is UNSET):
        return "exactly a snapshot has sections"
    if (source.form == "notice") is (source.summary is UNSET):
        return "exactly a notice has a summary"
    return None


def _references_fault(references: list[Reference]) -> str | None:
    for index, reference in enumerate(references):
        omitted = reference.original_messages - reference.retained_messages
        if omitted < 0 or omitted != reference.omitted_messages:
            return "a session reference's message counts do not add up"
        if reference.truncated != (omitted > 0 or reference.omitted_bytes > 0):
            return "a session reference's truncated disagrees with what it omits"
        if reference.input_index != index:
            return "a session reference's inputIndex is not its position"
    if len({reference.session_id for reference in references}) != len(references):
        return "two references name the same session"
    return None
