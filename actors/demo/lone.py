"""One agent in a process of its own, with a runtime of its own on the demo's root.

Started as ``python -m interlock.actors.demo.lone``; tells on stdout, one JSON object a line, which
owners it started, every event of its session and what running calls say. It is killed before it
ends; were it not, it would finish like any other agent.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

from ..agent import AsyncAgent, ScriptedModel
from ..runtime.aio import AsyncRuntime, AsyncSession
from ..runtime.subscription import Progress, StreamedEvent
from . import ledger
from .script import LONE_PROMPT, SYSTEM, lone_script
from .tools import TOOLS


class Task(msgspec.Struct, frozen=True):
    """What the process is to do; its one argument, as JSON."""

    root: str
    session: str
    workspace: str
    file: str


def main() -> int:
    """Run the agent to its end."""
    task = msgspec.json.decode(sys.argv[1], type=Task)
    try:
        asyncio.run(_run(task))
    except KeyboardInterrupt:
        return 130
    return 0


async def _run(task: Task) -> None:
    options: dict[str, Any] = {
        "tools": TOOLS,
        "workers": 1,
        "worker_env": (ledger.LEDGER, ledger.ROOT),
    }
    async with AsyncRuntime(Path(task.root), **options) as runtime:
        _tell({"owners": runtime.processes})
        session = await runtime.create(task.session, cwd=task.workspace)
        follower = asyncio.create_task(_follow(session))
        agent = AsyncAgent(session, ScriptedModel(lone_script(task.file)), SYSTEM)
        await agent.run(LONE_PROMPT)
        await session.close()
        await follower


async def _follow(session: AsyncSession) -> None:
    async for item in await session.subscribe(progress=True):
        if isinstance(item, StreamedEvent):
            event = item.event
            _tell(
                {"type": event.type, "seq": event.seq, "time": event.time},
                data=msgspec.Raw(event.raw),
            )
        elif isinstance(item, Progress) and item.kind == "progress":
            _tell({"call_id": item.call_id, "value": item.value})


def _tell(word: dict[str, Any], **more: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(word | more) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())
