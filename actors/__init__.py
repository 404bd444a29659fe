"""The running system: the runtime that people embed, its sessions and tools, the agent loop.

Names are loaded when they are first used, so that a process that needs only a part of them
(an owner, a worker) starts without the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interlock.backends.codes import Code
    from interlock.backends.errors import InterlockError, LogError, SessionError

    from .agent import Agent, AsyncAgent, Model, ModelRequest, Say, ScriptedModel
    from .answering.desk import Answering, Taken
    from .answering.request import ApprovalRequest
    from .answering.route import Route
    from .errors import ApprovalError, RuntimeFailureError, SandboxError, ToolError
    from .hooks.pieces import (
        Ask,
        Budget,
        Deny,
        LoopDetector,
        Only,
        RateLimit,
        ResultLimit,
    )
    from .runtime.aio import AsyncRuntime, AsyncSession, AsyncStep, AsyncTurn
    from .runtime.subscription import Progress, StreamedEvent, WriteTrouble
    from .runtime.sync import Runtime, Session, Step, Turn
    from .runtime.turn import ToolCall
    from .tools import (
        CallCancelled,
        CallRecord,
        Command,
        Decision,
        Done,
        GateCall,
        NotDone,
        Tool,
        ToolContext,
        ToolFailure,
        ToolNotPortableError,
        ToolResult,
        Unknown,
        tool,
    )

_HOMES = {
    "interlock.backends.codes": ("Code",),
    "interlock.backends.errors": ("InterlockError", "LogError", "SessionError"),
    "interlock.actors.errors": (
        "ApprovalError",
        "RuntimeFailureError",
        "SandboxError",
        "ToolError",
    ),
    "interlock.actors.agent": (
        "Agent",
        "AsyncAgent",
        "Model",
        "ModelRequest",
        "Say",
        "ScriptedModel",
    ),
    "interlock.actors.hooks.pieces": (
        "Ask",
        "Budget",
        "Deny",
        "LoopDetector",
        "Only",
        "RateLimit",
        "ResultLimit",
    ),
    "interlock.actors.runtime.aio": ("AsyncRuntime", "AsyncSession", "AsyncStep", "AsyncTurn"),
    "interlock.actors.answering.desk": ("Answering", "Taken"),
    "interlock.actors.answering.request": ("ApprovalRequest",),
    "interlock.actors.answering.route": ("Route",),
    "interlock.actors.runtime.subscription": ("Progress", "StreamedEvent", "WriteTrouble"),
    "interlock.actors.runtime.sync": ("Runtime", "Session", "Step", "Turn"),
    "interlock.actors.runtime.turn": ("ToolCall",),
    "interlock.actors.tools": (
        "CallCancelled",
        "CallRecord",
        "Command",
        "Decision",
        "Done",
        "GateCall",
        "NotDone",
        "Tool",
        "ToolContext",
        "ToolFailure",
        "ToolNotPortableError",
        "ToolResult",
        "Unknown",
        "tool",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [  # noqa: PLE0604 - every name above
    *sorted(_HOME_OF),
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
