"""The harness's sample logs with their oracles, and the shortest way to write an old log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from interlock.backends.errors import SessionError
from interlock.backends.event import to_json
from interlock.backends.reading import read_log


def _header(version: int, **more: Any) -> dict[str, Any]:
    row = {"type": "session", "version": version, "id": "s", "createdAt": 1, "cwd": "/work"}
    if version >= 2:
        row["isSeeded"] = False
    return row | {"delegationDepth": 0} | more


def _user(text: str = "hi", **more: Any) -> dict[str, Any]:
    message = {
        "id": f"u-{text}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }
    return {"type": "user/message", "data": message, "surfaceOp": "append"} | more


def _answer(*blocks: dict[str, Any], turn: int = 1, step: int = 1, **more: Any) -> dict[str, Any]:
    message = {
        "id": f"a-{turn}-{step}",
        "role": "assistant",
        "content": list(blocks),
        "source": {"kind": "model", "provider": "p", "model": "m"},
    }
    data = {"turn": turn, "step": step, "message": message}
    return {"type": "assistant/message", "data": data, "surfaceOp": "append"} | more


def _result(call_id: str, turn: int = 1, step: int = 1, **more: Any) -> dict[str, Any]:
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": [{"type": "text", "text": "done"}],
        "isError": False,
    }
    message = {
        "id": f"r-{call_id}",
        "role": "user",
        "content": [block],
        "source": {"kind": "tool", "callId": call_id},
    }
    data = {"turn": turn, "step": step, "message": message}
    return {"type": "tool/result", "data": data, "surfaceOp": "append"} | more


def _request(**header: Any) -> dict[str, Any]:
    config = {"config": {"provider": "p", "model": "m"}}
    return {"type": "request/header", "data": {"header": config | header, "reason": "initial"}}


def _event(kind: str, /, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def _chunk(kind: str, /, turn: int = 1, step: int = 1, **chunk: Any) -> dict[str, Any]:
    return _event("assistant/chunk", turn=turn, step=step, chunk={"type": kind, **chunk})


OLD = SimpleNamespace(
    header=_header,
    user=_user,
    answer=_answer,
    result=_result,
    request=_request,
    event=_event,
    chunk=_chunk,
    turn=lambda turn=1: _event("turn/start", turn=turn),
    turn_end=lambda turn=1, kind="completed": _event("turn/end", turn=turn, reason={"kind": kind}),
    step=lambda step=1, turn=1: _event("step/start", turn=turn, step=step),
    step_end=lambda step=1, turn=1: _event("step/end", turn=turn, step=step),
    tool=lambda call_id: {"type": "tool-call", "id": call_id, "name": "t", "arguments": "{}"},
    call=lambda call_id, turn=1, step=1: _event(
        "tool/call", turn=turn, step=step, callId=call_id, name="t", arguments="{}"
    ),
)


@pytest.fixture
def old() -> SimpleNamespace:
    """Rows of old logs by short names, without seq and time."""
    return OLD


@pytest.fixture
def write(root: Path) -> Callable[..., Path]:
    """Write an old log: rows get their seq and, if they have none, a time; packed rows count."""

    def write(version: int, rows: list[dict[str, Any]], **header: Any) -> Path:
        name = "session.jsonl" if version == 0 else f"session.v{version}.jsonl"
        path = root / "--work--" / "s" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines, seq = [_header(version, **header)], 0
        for row in rows:
            members = row["data"].get("texts") or row["data"].get("args")
            if row["type"].endswith("-chunks"):
                lines.append({"type": row["type"], "seq0": seq, "time0": seq, "data": row["data"]})
                seq += len(members or "x")
                continue
            lines.append({"seq": seq, "time": 1000 + seq} | row)
            seq += 1
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    return write


@pytest.fixture
def current(write) -> Callable[..., list[dict[str, Any]]]:
    """Write an old log and return its current events."""

    def current(version: int, rows: list[dict[str, Any]], **header: Any) -> list[dict[str, Any]]:
        return [to_json(event) for event in read_log(write(version, rows, **header)).events]

    return current


@pytest.fixture
def refusal(write) -> Callable[..., str]:
    """Write an old log, see it refused as unsupported, and return why."""

    def refusal(version: int, rows: list[dict[str, Any]], **header: Any) -> str:
        path = write(version, rows, **header)
        with pytest.raises(SessionError) as caught:
            read_log(path)
        assert caught.value.code == "SESSION_FORMAT_UNSUPPORTED", caught.value
        assert caught.value.details["version"] == version
        return str(caught.value.details.get("reason") or caught.value)

    return refusal


@pytest.fixture
def sample_root(shared: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Copy a v0 sample into a root that may be written to."""

    def copy(name: str) -> Path:
        root = tmp_path / name
        for file in (shared / "dsh" / "samples" / "v0" / name).glob("*/*/*"):
            target = root / file.parent.parent.name / file.parent.name / file.name
            target.parent.mkdir(parents=True)
            shutil.copyfile(file, target)
        return root

    return copy
