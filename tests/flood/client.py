"""A host that floods its writer: ``client.py ROOT SESSIONS DURABILITY LIFE``.

What it says on its output, a line each, the moment it knows it:

- ``processes JSON``: the processes of the runtime, before anything that they did;
- ``durable SESSION SEQ``: what opening or closing a session said to be durable;
- ``event SESSION SEQ LIFE.COUNT DIGEST``: an event that was acknowledged as durable;
- ``refused SESSION WORDS``: an error that the death of a writer does not explain.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

from interlock.actors import AsyncRuntime, AsyncSession, InterlockError
from interlock.backends.codes import Code

#: What a session says whose writer has ended.
_WRITER_ENDED = (Code.ACTOR_LOST, Code.SESSION_CLOSED)


def say(*words: object) -> None:
    """Write a line at once: it is there, whatever happens to this process next."""
    line = " ".join(map(str, words)).replace("\n", " ") + "\n"
    os.write(1, line.encode())


def digest(text: str) -> str:
    """What an event's text is compared by."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


class Flood:
    """Sessions that append and flush without a pause."""

    def __init__(self, runtime: AsyncRuntime, life: int) -> None:
        self._runtime = runtime
        self._life = life
        self._processes: dict[str, int] = {}

    async def session(self, number: int) -> None:
        """Append to one session, and open it again whenever its writer has ended."""
        name, opened = f"s{number}", 0
        # An event whose fate is not known is never sent again under the same number.
        numbers = itertools.count()
        draw = random.Random(f"{self._life}-{number}")
        while True:
            try:
                session = await self._open(name)
                opened += 1
                if number % 3 == 0 and (opened > 1 or self._life):
                    # Nothing comes after what was found: what was said to be durable must be.
                    await asyncio.Event().wait()
                # Some sessions come and go; the lock is freed and taken again.
                bursts = draw.randint(2, 6) if number % 5 == 1 else -1
                while bursts:
                    await self._burst(session, numbers, draw)
                    bursts -= 1
                say("durable", name, await session.close())
            except InterlockError as error:
                if error.code not in _WRITER_ENDED:
                    say("refused", name, error.code, error.message)
                    return

    async def _open(self, name: str) -> AsyncSession:
        try:
            session = await self._runtime.open(name)
        except InterlockError as error:
            if error.code is not Code.SESSION_NOT_FOUND:
                raise
            session = await self._runtime.create(name, cwd="/flood")
        if self._processes != self._runtime.processes:
            self._processes = dict(self._runtime.processes)
            say("processes", json.dumps(self._processes))
        say("durable", name, session.durable_seq)
        return session

    async def _burst(
        self, session: AsyncSession, numbers: Iterator[int], draw: random.Random
    ) -> None:
        """Append up to three events, flush with the last one, and say what was acknowledged."""
        made: list[tuple[int, str, str]] = []
        left = draw.randint(1, 3)
        while left:
            left -= 1
            # Now and then one that is longer than what goes through the journal.
            size = 100_000 if draw.random() < 0.002 else draw.randint(0, 150)
            key = f"{self._life}.{next(numbers)}"
            text = f"{key} {draw.randbytes(size).hex()}"
            data = {
                "id": f"user-{key}",
                "role": "user",
                "content": [{"type": "text", "text": text}],
                "source": {"kind": "user"},
            }
            seq = await session.append("user/message", data, flush=not left)
            made.append((seq, key, digest(text)))
        for seq, key, told in made:
            say("event", session.id, seq, key, told)


async def flood(root: Path, sessions: int, durability: str, life: int) -> None:
    """Flood until killed."""
    backend = "tests.flood.backend:make"
    async with AsyncRuntime(root, durability=durability, backend=backend, workers=1) as runtime:
        one = Flood(runtime, life)
        await asyncio.gather(*(one.session(number) for number in range(sessions)))


if __name__ == "__main__":
    asyncio.run(flood(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])))
