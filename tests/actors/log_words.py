"""The events that a host appends, by short names."""

from __future__ import annotations

from interlock.backends.event import Draft, draft


def turn_start(turn: int = 1) -> Draft:
    return draft("turn/start", {"turn": turn})


def turn_end(turn: int = 1) -> Draft:
    return draft("turn/end", {"turn": turn, "reason": {"kind": "completed"}})


def step_start(step: int = 1, turn: int = 1) -> Draft:
    return draft("step/start", {"turn": turn, "step": step})


def step_end(step: int = 1, turn: int = 1) -> Draft:
    return draft("step/end", {"turn": turn, "step": step})


def user(text: str = "hi") -> Draft:
    data = {
        "id": f"u-{text}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }
    return draft("user/message", data, surface_op="append")


def message(calls: list[tuple[str, str, str]], step: int = 1, turn: int = 1) -> Draft:
    """An assistant message with ``calls``: (call id, tool, raw arguments)."""
    content = [
        {"type": "tool-call", "id": call_id, "name": tool, "arguments": arguments}
        for call_id, tool, arguments in calls
    ]
    body = {
        "id": f"m-{turn}-{step}",
        "role": "assistant",
        "content": content,
        "source": {"kind": "model", "provider": "external", "model": "none"},
    }
    data = {"turn": turn, "step": step, "message": body, "stream": []}
    return draft("assistant/message", data, surface_op="append")


def approval_policy(policy: str) -> Draft:
    return draft("approval/policy", {"policy": policy})


def sandbox_mode(mode: str) -> Draft:
    return draft("sandbox/mode", {"mode": mode})


def note(text: str = "n") -> Draft:
    return draft("app/note", {"text": text}, ignorable=True)
