"""What a session's log says about a request: the arguments are there, not in the request (A6)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from interlock.backends.disk import OsDisk
from interlock.backends.errors import InterlockError
from interlock.backends.event import Event
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_events
from interlock.backends.source import find_log

from ..messages import ApprovalAsked


@dataclass(frozen=True)
class Background:
    """The call's raw arguments, and when it was asked (ms); None for what the log lacks."""

    arguments: str | None
    asked_at: int | None


def background(root: str, asked: ApprovalAsked) -> Background:
    """Look a request up in its session's log below ``root``; what is not durable yet is None."""
    try:
        directory = JsonlBackend(Path(root)).find(asked.session)
        path = find_log(directory, OsDisk()) if directory is not None else None
        if path is None:
            return Background(None, None)
        return _from_log(read_events(path, max(0, asked.message_seq)), asked)
    except (OSError, InterlockError):
        return Background(None, None)


def _from_log(events: Iterator[Event], asked: ApprovalAsked) -> Background:
    arguments: str | None = None
    nested = asked.call_id + asked.nested
    for event in events:
        if event.seq == asked.message_seq and event.type == "assistant/message":
            for block in event.data["message"]["content"]:
                if block.get("type") == "tool-call" and block.get("id") == asked.call_id:
                    arguments = None if asked.nested else block["arguments"]
        elif event.type == "tool/ptc-dispatch-start" and event.data["subCallId"] == nested:
            arguments = _text(event.data["arguments"])
        elif event.type == "approval/asked" and event.data["id"] == asked.request:
            return Background(arguments, event.time)
    return Background(arguments, None)


def _text(arguments: object) -> str:
    from ..tools import jsontext

    return arguments if isinstance(arguments, str) else jsontext.encode(arguments).decode()
