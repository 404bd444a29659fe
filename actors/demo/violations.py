"""Holding the logs against the ledger: what happened although the log says otherwise, or nothing.

Pure: it takes what was read and returns findings. An empty list is the demo's claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from .ledger import Entry

#: Codes of calls whose bodies never ran, by the log's own word.
NEVER_RAN = frozenset(
    {
        *("TOOL_NOT_STARTED", "ABORTED_BEFORE_DISPATCH", "UNKNOWN_TOOL", "INVALID_ARGS"),
        *("TOOL_DENIED", "APPROVAL_REJECTED", "APPROVAL_CANCELLED", "APPROVAL_UNAVAILABLE"),
        *("CHECKPOINT_FAILED", "SANDBOX_UNAVAILABLE"),
    }
)


class LoggedEvent(Protocol):
    """What is read of an event (``interlock.backends.event.Event`` has it)."""

    @property
    def type(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


class Violation(msgspec.Struct, frozen=True):
    """One thing that must not be: what kind, of which call, in words."""

    kind: str
    session: str
    call_id: str
    message: str


@dataclass
class LoggedCall:
    """What a log says about one call. The demo's call ids are unique in their session."""

    name: str
    seq: int
    asked: list[str] = field(default_factory=list)
    granted: list[str] = field(default_factory=list)
    answered: bool = False
    #: The result's code; ``None`` for a success.
    code: str | None = None


@dataclass
class _Effect:
    tool: str
    begins: list[Entry] = field(default_factory=list)
    ends: list[Entry] = field(default_factory=list)


def violations(
    logs: Mapping[str, Iterable[LoggedEvent]], ledger: Iterable[Entry], acting: frozenset[str]
) -> list[Violation]:
    """Return everything in which logs and ledger contradict each other, in a stable order.

    :param logs: the events of each session, by its id; complete, after everything has ended.
    :param ledger: the lines that the tools wrote.
    :param acting: the names of the tools that write to the ledger.
    """
    ledger = list(ledger)
    effects: dict[tuple[str, str], _Effect] = {}
    for entry in ledger:
        effect = effects.setdefault((entry.session, entry.call_id), _Effect(entry.tool))
        (effect.begins if entry.phase == "begin" else effect.ends).append(entry)
    found: list[Violation] = []
    known: set[tuple[str, str]] = set()
    for session, events in logs.items():
        for call_id, call in calls_of(events).items():
            known.add((session, call_id))
            effect = effects.get((session, call_id), _Effect(call.name))
            found += [
                Violation(kind, session, call_id, message)
                for kind, message in _judge(call, effect, acts=call.name in acting)
            ]
    for (session, call_id), effect in effects.items():
        if (session, call_id) not in known:
            message = f"{effect.tool} acted, and the log holds no tool/call for it"
            found.append(Violation("effect-without-call", session, call_id, message))
    return found + _shared_keys(ledger)


def calls_of(events: Iterable[LoggedEvent]) -> dict[str, LoggedCall]:
    """Return what a session's events say about its recorded calls, by call id."""
    calls: dict[str, LoggedCall] = {}
    requests: dict[str, str] = {}
    for event in events:
        data = event.data
        if event.type == "tool/call":
            calls[data["callId"]] = LoggedCall(data["name"], event.seq)
        elif event.type == "approval/asked" and data.get("callId") in calls:
            requests[data["id"]] = data["callId"]
            calls[data["callId"]].asked.append(data["id"])
        elif event.type == "approval/decided" and data["id"] in requests:
            if data["outcome"] == "allowed-once":
                calls[requests[data["id"]]].granted.append(data["id"])
        elif event.type == "tool/result":
            call = calls.get(data["message"]["source"]["callId"])
            if call is not None:
                error = data.get("error")
                call.answered, call.code = True, error["code"] if error else None
    return calls


def _judge(call: LoggedCall, effect: _Effect, *, acts: bool) -> list[tuple[str, str]]:
    """The contradictions of one recorded call, as pairs of a kind and words."""
    name, found = call.name, []
    begun = bool(effect.begins)
    if any(not entry.recorded for entry in effect.begins):
        found.append(("effect-before-record", f"{name} began before its tool/call was in the file"))
    if begun and call.code in NEVER_RAN:
        found.append(("effect-of-unstarted-call", f"{name} acted, and its result is {call.code}"))
    if begun and set(call.asked) - set(call.granted):
        found.append(("effect-without-grant", f"{name} acted without a recorded grant"))
    if begun and not call.answered:
        found.append(("effect-without-result", f"{name} acted, and the log holds no result"))
    if len(effect.begins) > 1:
        found.append(("body-ran-twice", f"{name} began {len(effect.begins)} times"))
    succeeded = call.answered and call.code is None
    if acts and succeeded and not effect.ends:
        found.append(("success-without-effect", f"{name} has a success, and the ledger no end"))
    return found


def _shared_keys(ledger: Iterable[Entry]) -> list[Violation]:
    """I2: a key belongs to one call; one that began for several is shared."""
    begins = [entry for entry in ledger if entry.phase == "begin"]
    calls_by_key: dict[str, set[tuple[str, str]]] = {}
    for entry in begins:
        calls_by_key.setdefault(entry.key, set()).add((entry.session, entry.call_id))
    return [
        Violation("key-shared", *min(calls), f"key {key} was used by {len(calls)} calls")
        for key, calls in calls_by_key.items()
        if len(calls) > 1
    ]
