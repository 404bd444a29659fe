"""A host that floods its writer: ``client.py ROOT NOTED SESSIONS DURABILITY``.

Every session appends and flushes without a pause. An acknowledgement is noted in the file NOTED the
moment it arrives. The first line on its output says which processes the runtime has.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from interlock.actors import AsyncRuntime


def event(text: str) -> dict[str, object]:
    return {
        "id": f"user-{text}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }


async def flood(root: Path, noted: Path, sessions: int, durability: str) -> None:
    notes = os.open(noted, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    backend = "tests.flood.backend:make"
    async with AsyncRuntime(root, durability=durability, backend=backend, workers=1) as runtime:
        print(json.dumps(runtime.processes), flush=True)

        async def one(number: int) -> None:
            name = f"s{number}"
            session = await runtime.create(name, cwd="/flood")
            count = 0
            while True:
                text = f"{name}-{count}-{'x' * (count * 37 % 300)}"
                seq = await session.append("user/message", event(text), flush=True)
                os.write(notes, f"{name} {seq} {text}\n".encode())
                count += 1

        await asyncio.gather(*(one(number) for number in range(sessions)))


if __name__ == "__main__":
    asyncio.run(flood(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]))
