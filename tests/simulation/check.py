"""What must hold when a run is over: the world's record of effects against the logs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from interlock.actors.roles import Role
from interlock.backends.codes import Code
from interlock.backends.event import Event
from interlock.backends.fold import LogFold
from interlock.backends.repair import closers

if TYPE_CHECKING:
    from .outside import Effect
    from .world import World

#: Codes that say for certain that the body never ran (I3).
NEVER_RAN = frozenset(
    {
        Code.TOOL_NOT_STARTED,
        Code.ABORTED_BEFORE_DISPATCH,
        Code.CHECKPOINT_FAILED,
        Code.TOOL_DENIED,
        Code.APPROVAL_REJECTED,
        Code.APPROVAL_CANCELLED,
        Code.APPROVAL_UNAVAILABLE,
        Code.UNKNOWN_TOOL,
        Code.INVALID_ARGS,
    }
)


def check(world: World) -> list[str]:
    """Note everything that is wrong with a run that is over."""
    for session in world.agents:
        log = repaired(world, session)
        if log is not None:
            _acknowledged(world, session, log)
            _results(world, session, log)
            _approvals(world, session, log)
    return world.violations


def repaired(world: World, session: str) -> list[Event] | None:
    """The log as it is after a power cut now and a repair."""
    log = world.disk.durable(session)
    fold = LogFold()
    for expected, event in enumerate(log):
        if event.seq != expected:
            world.wrong(f"L1: {session} has event {event.seq} at place {expected}")
            return None
        try:
            fold.replay(event)
        except ValueError as error:
            world.wrong(f"L1: {session} cannot be read: {error}")
            return None
    if not fold.balanced:
        log = log + fold.admit(closers(fold), fold.last_time)
    return log


def _acknowledged(world: World, session: str, log: list[Event]) -> None:
    durable = world.durable.get(session, -1)
    if durable >= len(log):
        world.wrong(f"L2: {session} ends at {len(log) - 1}, and {durable} was acknowledged")
    for seq, (kind, digest) in world.said.get(session, {}).items():
        if seq > min(durable, len(log) - 1):
            continue
        found = log[seq]
        if (found.type, hashlib.sha256(found.raw).digest()) != (kind, digest):
            world.wrong(f"L2: event {seq} of {session} is another than was acknowledged")


def _results(world: World, session: str, log: list[Event]) -> None:
    bodies: dict[str, list[Effect]] = {}
    for effect in world.effects:
        if effect.session == session and effect.parent is None:
            bodies.setdefault(effect.call_id, []).append(effect)
    results: dict[str, Event] = {}
    order: dict[int, list[str]] = {}
    for event in log:
        if event.type == "assistant/message":
            blocks = event.data["message"]["content"]
            order[event.seq] = [b["id"] for b in blocks if b["type"] == "tool-call"]
        elif event.type == "tool/result":
            call_id = event.data["message"]["source"]["callId"]
            if call_id in results:
                world.wrong(f"R1: {call_id} has two results")
            results[call_id] = event
    for calls in order.values():
        for call_id in calls:
            if call_id not in results:
                world.wrong(f"R1: {call_id} has no result")
            else:
                _result(world, call_id, results[call_id], bodies.get(call_id, []))
    for call_id in bodies:
        if not any(call_id in calls for calls in order.values()):
            world.wrong(f"K2: {call_id} ran, and no log asks for it")


def _result(world: World, call_id: str, result: Event, bodies: list[Effect]) -> None:
    code = result.data.get("error", {}).get("code")
    text = result.data["message"]["content"][0]["content"]
    meta = result.data.get("meta", {})
    if code in NEVER_RAN and any(not _undone(meta, body) for body in bodies):
        world.wrong(f"I3: {call_id} ran, and the log says {code}")
    if code is None and not bodies:
        world.wrong(f"I3: {call_id} never ran, and the log has its result")
    if code is None and not any(body.acted for body in bodies):
        world.wrong(f"I3: {call_id} did nothing, and the log says that it was done")
    last = bodies[-1] if bodies else None
    if last is None or last.tool == "run":
        return
    if code is None and not meta.get("reconciled") and last.key not in str(text):
        world.wrong(f"P7: the result of {call_id} is not what its body returned")
    if code == Code.TOOL_OUTCOME_UNKNOWN and last.end in ("ok", "failed") and last.reported:
        _lost_result(world, call_id, last)


def _undone(meta: dict[str, object], body: Effect) -> bool:
    return meta.get("reconciled") == "not-done" and not body.acted


def _lost_result(world: World, call_id: str, body: Effect) -> None:
    """F2: what a dispatcher was told it records, as long as it lives."""
    node = world.network.owners.get(Role.DISPATCHER)
    core: Any = node.core if node is not None else None
    key = body.message_seq, body.call_id
    if core is not None and key in core._log.held.get(body.session, {}):
        return  # nobody has opened the session again
    if not world.network.lost and not world.dispatcher_died:
        world.wrong(f"F2: {call_id} ended, its dispatcher lives, and the log says unknown")


def _approvals(world: World, session: str, log: list[Event]) -> None:
    asked: dict[str, int] = {}
    decided: dict[str, int] = {}
    policy, forbidden = "ask", set[str]()
    for event in log:
        if event.type == "approval/policy":
            policy = event.data["policy"]
        elif event.type == "approval/asked":
            asked[event.data["id"]] = asked.get(event.data["id"], 0) + 1
            if policy == "never":
                forbidden.add(event.data["id"])
        elif event.type == "approval/decided":
            decided[event.data["id"]] = decided.get(event.data["id"], 0) + 1
            if event.data["outcome"] == "allowed-once" and event.data["id"] in forbidden:
                world.wrong(f"A1: {event.data['id']} was asked about though the policy is never")
            if event.data["outcome"] == "allowed-once" and event.data["id"] not in world.allowed:
                world.wrong(f"A3: {event.data['id']} counts as allowed, and nobody allowed it")
    for request, times in asked.items():
        if times != 1 or decided.get(request, 0) != 1:
            world.wrong(
                f"A4: {request} of {session} was asked {times} and decided "
                f"{decided.get(request, 0)} times"
            )
