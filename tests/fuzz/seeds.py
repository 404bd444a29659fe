"""Sound logs of every generation to start from: rows, without frames."""

from __future__ import annotations

import json
from typing import Any

Rows = list[dict[str, Any]]


def _message(role: str, name: str, *content: dict[str, Any], **source: Any) -> dict[str, Any]:
    return {"id": name, "role": role, "content": list(content), "source": source}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _turn(version: int, turn: int) -> Rows:
    """One turn with a streamed answer, a call, its result, and an answer of two lines."""
    call = {"type": "tool-call", "id": f"c{turn}", "name": "bash", "arguments": '{"n":1}'}
    answer = _message("assistant", f"a{turn}", _text("I will."), call, kind="model")
    answer["source"] |= {"provider": "p", "model": "m"}
    place = {"turn": turn, "step": 1}
    block = {
        "type": "tool-result",
        "toolCallId": f"c{turn}",
        "content": [_text("ünïcødé \U0001f600 done\n" * 3)],
        "isError": False,
    }
    result = _message("user", f"r{turn}", block, kind="tool", callId=f"c{turn}")
    rows: Rows = [
        {"type": "turn/start", "data": {"turn": turn}},
        {"type": "step/start", "data": place},
        {
            "type": "user/message",
            "data": _message("user", f"u{turn}", _text("please"), kind="user"),
            "surfaceOp": "append",
        },
    ]
    chunks = [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "I "},
        {"type": "text-delta", "index": 0, "text": "will."},
        {"type": "block-end", "index": 0, "block": _text("I will.")},
        {"type": "block-start", "index": 1, "blockType": "tool-call"},
        {
            "type": "tool-call-delta",
            "index": 1,
            "id": f"c{turn}",
            "name": "bash",
            "argumentsDelta": '{"n":1}',
        },
        {"type": "block-end", "index": 1, "block": call},
        {"type": "finish", "reason": {"kind": "tool-calls"}},
    ]
    message: dict[str, Any] = {
        "type": "assistant/message",
        "data": {**place, "message": answer},
        "surfaceOp": "append",
    }
    if version < 2:
        rows += [{"type": "assistant/chunk", "data": {**place, "chunk": c}} for c in chunks]
        message["sourceEventSeqs"] = ("chunks", len(chunks))
    else:
        stream = [{"type": "chunk", "time": 5, "chunk": c} for c in (chunks[0], chunks[3])]
        stream.insert(
            1,
            {"type": "text-chunks", "time0": 5, "index": 0, "dt": [1], "texts": ["I ", "will."]},
        )
        message["data"]["stream"] = stream if version == 2 else []
    arguments = {"callId": f"c{turn}", "name": "bash", "arguments": '{"n":1}'}
    return [
        *rows,
        message,
        {"type": "tool/call", "data": {**place, **arguments}},
        {
            "type": "tool/result",
            "data": {**place, "message": result},
            "surfaceOp": "append",
            "sourceEventSeqs": ("call",),
        },
        {"type": "step/end", "data": place},
        {"type": "turn/end", "data": {"turn": turn, "reason": {"kind": "completed"}}},
    ]


def rows(version: int, turns: int = 3) -> Rows:
    """Return the header row and the event rows of a sound log."""
    header: dict[str, Any] = {"type": "session", "version": version, "id": "s", "createdAt": 1}
    if version >= 2:
        header["isSeeded"] = False
    header["delegationDepth"] = 0
    found: Rows = [header]
    for turn in range(1, turns + 1):
        for row in _turn(version, turn):
            seq = len(found) - 1
            sources = row.pop("sourceEventSeqs", None)
            made = {"type": row["type"], "seq": seq, "time": 10 + seq, "data": row["data"]}
            if sources is not None and sources[0] == "chunks":
                made["sourceEventSeqs"] = list(range(seq - sources[1], seq))
            elif sources is not None:
                made["sourceEventSeqs"] = [seq - 1]
            if "surfaceOp" in row:
                made["surfaceOp"] = row["surfaceOp"]
            found.append(made)
    return found


def line(row: Any) -> bytes:
    """Return a row as its line."""
    text = json.dumps(row, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "surrogatepass") + b"\n"
