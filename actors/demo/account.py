"""The closing account: what the logs and the ledger say, as a document and as sentences."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from interlock.backends.event import Event
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log

from . import ledger
from .scene import Scene
from .stage import Killed, Played
from .tools import ACTING
from .tree import Tree
from .violations import Violation, calls_of, violations


@dataclass(frozen=True)
class Account:
    """Everything that is told at the end."""

    tree: str
    duration_s: float
    agents: int
    finished: int
    calls: int
    results_by_code: dict[str, int]
    killed: Killed | None
    worker_killed: Killed | None
    flushes: list[float]
    sandbox: dict[str, Any]
    violations: list[Violation]
    troubles: list[str] = field(default_factory=list)
    root: Path | None = None

    @property
    def good(self) -> bool:
        """Whether every agent finished and log and world agree."""
        return self.finished == self.agents and not self.violations and not self.troubles

    def document(self) -> dict[str, Any]:
        """Return what ``--json`` prints."""
        return {
            "agents": self.agents,
            "finished": self.finished,
            "calls": self.calls,
            "results_by_code": self.results_by_code,
            "killed": msgspec.to_builtins(self.killed),
            "worker_killed": msgspec.to_builtins(self.worker_killed),
            "flush_ms": {
                "median": round(_quantile(self.flushes, 0.5), 3),
                "p99": round(_quantile(self.flushes, 0.99), 3),
                "count": len(self.flushes),
            },
            "sandbox": self.sandbox,
            "violations": msgspec.to_builtins(self.violations),
            "troubles": self.troubles,
            "tree": self.tree,
            "root": str(self.root) if self.root is not None else None,
            "duration_s": round(self.duration_s, 2),
        }


def settle(
    scene: Scene, tree: Tree, played: Played, agents: int, duration: float, *, kept: bool
) -> Account:
    """Read every log of the run and the ledger, and hold them against each other."""
    logs = read_logs(scene)
    performing = {session: events for session, events in logs.items() if _has_turn(events)}
    calls = {session: calls_of(events) for session, events in logs.items()}
    every = [call for found in calls.values() for call in found.values()]
    wrong = violations(logs, ledger.read(scene.ledger), ACTING)
    wrong += [
        Violation("sandbox-let-through", "", "", f"{path} was written from inside the sandbox")
        for path in scene.escaped(agents)
    ]
    codes = Counter(call.code or "OK" for call in every if call.answered)
    return Account(
        tree=tree.label,
        duration_s=duration,
        agents=agents + 1,
        finished=sum(_completed(events) for events in performing.values()),
        calls=len(every),
        results_by_code=dict(sorted(codes.items(), key=lambda pair: (-pair[1], pair[0]))),
        killed=played.killed,
        worker_killed=_worker_killed(scene, played, logs),
        flushes=played.flushes,
        sandbox=_sandbox(logs),
        violations=wrong,
        troubles=played.troubles,
        root=scene.root if kept else None,
    )


def read_logs(scene: Scene) -> dict[str, list[Event]]:
    """Return the events of every session of this run, by its id."""
    logs = {}
    for listing in JsonlBackend(scene.root).list():
        if listing.header is None or listing.path is None:
            continue
        if listing.header.id.startswith(f"demo-{scene.run}-"):
            logs[listing.header.id] = list(read_log(listing.path).events)
    return logs


def _has_turn(events: Iterable[Event]) -> bool:
    return any(event.type == "turn/start" for event in events)


def _completed(events: Iterable[Event]) -> bool:
    ends = [event.data["reason"]["kind"] for event in events if event.type == "turn/end"]
    return bool(ends) and ends[-1] == "completed"


def _worker_killed(scene: Scene, played: Played, logs: Mapping[str, list[Event]]) -> Killed | None:
    if played.worker_killed is None:
        return None
    name, call_id, pid = played.worker_killed
    session = scene.session(name)
    for event in logs.get(session, ()):
        if event.type == "tool/result" and event.data["message"]["source"]["callId"] == call_id:
            error = event.data.get("error")
            text = event.data["message"]["content"][0]["content"][0]["text"]
            code = error["code"] if error else "OK"
            return Killed(call_id, session, "convert", pid, ["tool/call"], code, text)
    return None


def _sandbox(logs: Mapping[str, list[Event]]) -> dict[str, Any]:
    """What confined the commands, by their own results."""
    for events in logs.values():
        for event in events:
            held = (
                (event.data.get("meta") or {}).get("sandbox")
                if (event.type == "tool/result")
                else None
            )
            if held and held["backend"] != "none":
                return {key: held[key] for key in ("backend", "enforcement", "gaps")}
    return {"backend": "none", "enforcement": "none", "gaps": []}


def _quantile(values: list[float], share: float) -> float:
    if not values:
        return 0.0
    ordered = sorted(values)
    if share == 0.5:
        return statistics.median(ordered)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def sentences(account: Account) -> list[str]:
    """Return the account as paragraphs for a person."""
    codes = ", ".join(f"{count} {code}" for code, count in account.results_by_code.items())
    summary = (
        f"{account.finished} of {account.agents} agents finished on {account.tree}: "
        f"{account.calls} calls in {account.duration_s:.1f} s ({codes})."
    )
    told = [summary, *_about_kills(account)]
    box = account.sandbox
    if box["backend"] == "none":
        told.append("No sandbox works here, so no command was run; see `interlock doctor`.")
    else:
        open_ends = f": not held are {', '.join(box['gaps'])}" if box["gaps"] else ""
        told.append(
            f"Commands were confined by {box['backend']} ({box['enforcement']} enforcement"
            f"{open_ends})."
        )
    if account.flushes:
        median, p99 = _quantile(account.flushes, 0.5), _quantile(account.flushes, 0.99)
        told.append(
            f"Making a record durable took {median:.1f} ms (median of {len(account.flushes)} "
            f"forced flushes; p99 {p99:.1f} ms)."
        )
    told += [f"Trouble: {trouble}" for trouble in account.troubles]
    if account.violations:
        found = [f"{v.kind}: {v.session} {v.call_id}: {v.message}" for v in account.violations]
        told.append("\n  ".join([f"{len(found)} violations of the contract were found:", *found]))
    else:
        told.append(
            "No violations: every effect in the tools' own ledger has its record in a log, written "
            "before it began."
        )
    return told


def _about_kills(account: Account) -> list[str]:
    told = []
    if account.killed is not None:
        k = account.killed
        knew = " and ".join(k.held) + ("" if "tool/result" in k.held else ", and no result")
        became = (
            "The call had been released, so it ran on to its end without the agent, and its result "
            "was recorded: OK."
            if k.became == "OK"
            else f"It became {k.became}: {k.text}"
        )
        told.append(
            f"The agent's process {k.pid} was killed (SIGKILL) in the middle of {k.tool} "
            f"({k.call_id}). At that moment the log held its {knew}. {became} The session was "
            "reopened here, and the agent went on without repeating it."
        )
    if account.worker_killed is not None:
        k = account.worker_killed
        told.append(
            f"The worker process {k.pid} was killed in the middle of {k.tool} ({k.call_id}). Its "
            f"call became {k.became}: {k.text}"
        )
    return told
