"""The calls that a log holds already: limits go on counting from there after a restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from interlock.backends.codes import Code
from interlock.backends.event import Event

from ..tools import jsontext

#: What a call ends as that was certainly not released.
NOT_RUN = frozenset(
    {
        Code.TOOL_NOT_STARTED,
        Code.ABORTED_BEFORE_DISPATCH,
        Code.UNKNOWN_TOOL,
        Code.INVALID_ARGS,
        Code.TOOL_DENIED,
        Code.APPROVAL_REJECTED,
        Code.APPROVAL_CANCELLED,
        Code.APPROVAL_UNAVAILABLE,
        Code.CHECKPOINT_FAILED,
    }
)


@dataclass
class Earlier:
    """A call of the log. ``age`` is how long ago (s) it was recorded; ``ran``: it may have run."""

    key: tuple[int, str]
    turn: int
    tool: str
    raw: Any
    age: float
    ran: bool = True

    @cached_property
    def arguments(self) -> Any:
        """The parsed arguments; empty for what is no object."""
        found = self.raw
        if isinstance(found, str):
            try:
                found = jsontext.decode(found or "{}")
            except ValueError:
                return {}
        return found if isinstance(found, dict) else {}


def earlier_calls(
    events: Iterable[Event], before: int, message_seq: int, now_ms: int
) -> list[Earlier]:
    """Return the calls that were recorded before event ``before``, oldest first.

    Calls of the message ``message_seq``, whose step is under way, count once they have a result:
    without one they are led by whoever asks. A nested call counts by itself.

    :param now_ms: the wall clock, in which events say their time.
    """
    calls: list[Earlier] = []
    waiting: dict[str, Earlier] = {}
    message = turn = -1
    for event in events:
        if event.type == "turn/start":
            turn = event.data["turn"]
        elif event.type == "assistant/message":
            waiting, message = {}, event.seq
        elif event.type in ("tool/call", "tool/ptc-dispatch-start") and event.seq < before:
            call = _call(event, message, turn, now_ms)
            calls.append(call)
            waiting[call.key[1]] = call
        elif event.type == "tool/result":
            found = waiting.pop(event.data["message"]["source"]["callId"], None)
            code = event.data.get("error", {}).get("code")
            if found is not None and code in NOT_RUN:
                found.ran = False
    led = {id(call) for call in waiting.values() if call.key[0] == message_seq}
    return [call for call in calls if id(call) not in led]


def _call(event: Event, message: int, turn: int, now_ms: int) -> Earlier:
    data, age = event.data, max(0.0, (now_ms - event.time) / 1000)
    name = "callId" if event.type == "tool/call" else "subCallId"
    return Earlier((message, data[name]), turn, data["name"], data["arguments"], age)
