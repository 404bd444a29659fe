"""What a tool is: declaring it, its arguments, its context and its result.

Importing this package loads neither pydantic nor pickle: :mod:`.schema` and :mod:`.coerce` are
loaded when a tool's schema is made or its body runs, :mod:`.pack` by the host and its workers only.
"""

from .command import Command
from .context import ToolContext, current_call
from .declare import Tool, tool
from .failure import CallCancelled, InvalidArgumentsError, ToolFailure, ToolNotPortableError
from .gates import Decision, Gate, GateCall, Guard, PostHook
from .identity import CallIdentity, idempotency_key
from .outcome import Outcome
from .result import CallRecord, Done, NotDone, Reconciliation, ToolResult, Unknown
from .spec import ToolSpec

__all__ = [
    "CallCancelled",
    "CallIdentity",
    "CallRecord",
    "Command",
    "Decision",
    "Done",
    "Gate",
    "GateCall",
    "Guard",
    "InvalidArgumentsError",
    "NotDone",
    "Outcome",
    "PostHook",
    "Reconciliation",
    "Tool",
    "ToolContext",
    "ToolFailure",
    "ToolNotPortableError",
    "ToolResult",
    "ToolSpec",
    "Unknown",
    "current_call",
    "idempotency_key",
    "tool",
]
