"""What every agent does right now, kept up to date from its session's stream; no I/O."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal

from interlock.backends.event import Event

State = Literal["waiting", "working", "asking", "killed", "done", "failed", "skipped"]

#: Characters of a text or argument that fit a cell.
TEXT_LIMIT = 60


@dataclass
class Row:
    """One agent. ``doing`` is for people; ``codes`` counts results, a success as ``OK``."""

    name: str
    state: State = "waiting"
    doing: str = ""
    last: str = ""
    calls: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    running: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    #: The raw arguments of calls that have no result yet.
    arguments: dict[str, str] = field(default_factory=dict)


class Board:
    """The rows of all agents, in the order in which they were added. One thread changes it."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}

    def add(self, name: str) -> Row:
        """Add an agent, or return its row."""
        return self.rows.setdefault(name, Row(name))

    def set(self, name: str, state: State, doing: str) -> str:
        """Say what no event says; returns the line to print where there is no table."""
        row = self.add(name)
        row.state, row.doing = state, plain(doing)
        return f"{name}: {row.doing}"

    def event(self, name: str, event: Event) -> str | None:
        """Take in an event; returns the line to print where there is no table, if any."""
        row, data = self.add(name), event.data
        match event.type:
            case "turn/start":
                row.state, row.doing = "working", f"begins turn {data['turn']}"
            case "step/start":
                row.doing = "thinks"
            case "assistant/message":
                self._said(row, data["message"]["content"])
            case "tool/call":
                row.calls += 1
                row.running[data["callId"]] = row.tools[data["callId"]] = data["name"]
                row.arguments[data["callId"]] = data["arguments"]
                row.doing = f"{data['name']} {arguments(data['arguments'])}"
            case "approval/asked":
                row.state, row.doing = "asking", f"waits for approval of {data['toolName']}"
                return f"{name}: {row.doing}"
            case "approval/decided":
                row.state, row.doing = "working", f"approval: {data['outcome']}"
                return f"{name}: {row.doing}"
            case "tool/result":
                return self._result(row, data)
            case "turn/end":
                return self._ended(row, data["reason"])
        return None

    def progress(self, name: str, call_id: str, value: Any) -> None:
        """Take in what a running call said of itself: an object with ``text``, if any."""
        row = self.add(name)
        if isinstance(value, dict) and isinstance(value.get("text"), str):
            row.doing = f"{row.running.get(call_id, 'call')}: {plain(value['text'])}"

    def _said(self, row: Row, content: list[dict[str, Any]]) -> None:
        text = " ".join(block["text"] for block in content if block["type"] == "text")
        if text:
            row.doing = plain(text)

    def _result(self, row: Row, data: dict[str, Any]) -> str:
        call_id = data["message"]["source"]["callId"]
        error = data.get("error")
        code = error["code"] if error else "OK"
        tool = row.tools.get(call_id, "call")
        row.running.pop(call_id, None)
        row.arguments.pop(call_id, None)
        row.codes[code] += 1
        row.last = f"{tool} {code}"
        if row.running:
            row.doing = ", ".join(sorted(set(row.running.values())))
        return f"{row.name}: {tool} → {code}"

    def _ended(self, row: Row, reason: dict[str, Any]) -> str:
        kind = reason["kind"]
        row.running.clear()
        if kind == "completed":
            row.state, row.doing = "done", "finished its turn"
        elif kind == "interrupted":
            row.state, row.doing = "working", "its interrupted turn was completed"
        else:
            error = reason.get("error") or {}
            row.state = "failed"
            row.doing = plain(f"turn ended: {error.get('message', kind)}")
        return f"{row.name}: {row.doing}"


def arguments(raw: str) -> str:
    """Return a call's arguments in a few words: the values, without their names."""
    try:
        value = json.loads(raw)
    except ValueError:
        return plain(raw)
    if not isinstance(value, dict):
        return plain(raw)
    return plain(" ".join(_shown(v) for v in value.values()))


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value)
    return value if isinstance(value, str) else json.dumps(value)


def plain(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return ``text`` on one line, cut, without what a terminal would obey: models wrote it."""
    flat = "".join(c if unicodedata.category(c)[0] != "C" else " " for c in text)
    flat = " ".join(flat.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
