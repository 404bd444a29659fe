"""The demo's ledger: what its tools really did, written outside Interlock's root.

One JSON object a line, appended with ``O_APPEND`` and synced, so that it can be held against the
logs afterwards. At the beginning of a body its line also says whether the body's own ``tool/call``
was in the log *file* at that moment, found by a reader that shares no code with the log's writer.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import zstandard

from ..tools.context import ToolContext

#: Where a worker finds the ledger and the logs; named to the runtime as ``worker_env`` (X5).
LEDGER = "INTERLOCK_DEMO_LEDGER"
ROOT = "INTERLOCK_DEMO_ROOT"

Phase = Literal["begin", "end"]


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the ledger.

    ``recorded`` says, at a beginning, whether the call's ``tool/call`` was in the log file.
    ``time`` is wall clock, ms.
    """

    session: str
    call_id: str
    tool: str
    key: str
    phase: Phase
    pid: int
    time: int
    recorded: bool = True


def append(ctx: ToolContext, phase: Phase) -> None:
    """Write a line about the running call and return when it is on disk."""
    recorded = phase == "end" or in_log_file(Path(os.environ[ROOT]), ctx.session_id, ctx.call_id)
    entry = Entry(
        session=ctx.session_id,
        call_id=ctx.call_id,
        tool=ctx.tool,
        key=ctx.idempotency_key,
        phase=phase,
        pid=os.getpid(),
        time=time.time_ns() // 1_000_000,
        recorded=recorded,
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    descriptor = os.open(os.environ[LEDGER], flags, 0o600)
    try:
        # One write of one line: with O_APPEND lines of several processes never mix.
        os.write(descriptor, msgspec.json.encode(entry) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: Path) -> list[Entry]:
    """Return the ledger's lines; none if nothing acted."""
    if not path.exists():
        return []
    return [msgspec.json.decode(line, type=Entry) for line in path.read_bytes().splitlines()]


# The independent reader.


def in_log_file(root: Path, session: str, call_id: str) -> bool:
    """Whether the session's log file holds a ``tool/call`` of this id now, read from the disk."""
    return any(
        row.get("type") == "tool/call" and row["data"].get("callId") == call_id
        for path in root.glob(f"*/{session}/session.v3.jsonl*")
        for row in _rows(path)
    )


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    for line in _text(path.read_bytes()).split(b"\n"):
        try:
            yield json.loads(line)
        except ValueError:
            continue  # the last line may be half written


def _text(data: bytes) -> bytes:
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        return data
    pieces: list[bytes] = []
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        try:
            piece = frame.decompress(data)
        except zstandard.ZstdError:
            break
        if not frame.eof:
            break  # the last frame is still being written: it is not there yet
        pieces.append(piece)
        data = frame.unused_data
    return b"".join(pieces)
