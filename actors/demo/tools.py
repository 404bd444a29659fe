"""The tools of the demo that act: each writes what it does into the ledger.

All are worker bodies. The reading tools and ``run_command`` are those of ``interlock run``.
"""

from __future__ import annotations

import os
from typing import Any

from ..hosting.tools import list_files, read_file, replace, run_command, search
from ..hosting.workspace import inside
from ..tools.context import ToolContext
from ..tools.declare import Tool, tool
from . import ledger

#: How often (times per second) a slow body tells how far it is.
TICKS = 10


@tool(effect="write", timeout=60.0)
def write_note(ctx: ToolContext, title: str, text: str) -> dict[str, Any]:
    """Write a note into the scratch workspace.

    :param title: the note's name, without an ending.
    :param text: what it is to say.
    """
    ledger.append(ctx, "begin")
    target = inside(ctx, f"notes/{title}.md")
    target.parent.mkdir(exist_ok=True)
    replace(target, text.encode())
    ledger.append(ctx, "end")
    return {"note": f"notes/{title}.md", "characters": len(text)}


@tool(effect="write", approval="ask", timeout=60.0)
def publish(ctx: ToolContext, note: str) -> dict[str, str]:
    """Publish a note to the world outside. Somebody must allow it.

    :param note: the note's name.
    """
    ledger.append(ctx, "begin")
    ledger.append(ctx, "end")
    return {"published": note, "receipt": ctx.idempotency_key[:12]}


@tool(effect="write", approval="ask", timeout=60.0)
def purge(ctx: ToolContext, note: str) -> dict[str, str]:
    """Remove a published note from the world outside. Somebody must allow it.

    :param note: the note's name.
    """
    ledger.append(ctx, "begin")
    ledger.append(ctx, "end")
    return {"purged": note}


@tool(effect="write", timeout=60.0)
def upload(ctx: ToolContext, name: str, seconds: float) -> dict[str, Any]:
    """Upload a file to the world outside, slowly.

    :param name: what to upload.
    :param seconds: how long it takes.
    """
    return _slowly(ctx, name, seconds)


@tool(effect="write", isolate=True, timeout=60.0)
def convert(ctx: ToolContext, name: str, seconds: float) -> dict[str, Any]:
    """Convert a file outside, slowly, in a process of its own.

    :param name: what to convert.
    :param seconds: how long it takes.
    """
    return _slowly(ctx, name, seconds)


def _slowly(ctx: ToolContext, name: str, seconds: float) -> dict[str, Any]:
    ledger.append(ctx, "begin")
    ticks = max(1, round(seconds * TICKS))
    for tick in range(ticks):
        share = tick / ticks
        ctx.progress({"text": f"{share:.0%} of {name}", "share": share, "pid": os.getpid()})
        if ctx.wait_cancelled(seconds / ticks):
            ctx.raise_if_cancelled()
    ledger.append(ctx, "end")
    return {"name": name, "seconds": seconds}


#: Those that write to the ledger, by name.
ACTING = frozenset({"write_note", "publish", "purge", "upload", "convert"})

TOOLS: tuple[Tool[..., Any], ...] = (
    *(list_files, read_file, search, run_command),
    *(write_note, publish, purge, upload, convert),
)
