"""A: a thousand requests at once, three answerers, random order; answerers and a broker killed.

Every request is settled once, every log holds its pair, and nothing is lost silently.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from interlock.actors import Answering, AsyncRuntime, ToolCall, tool
from interlock.backends.codes import Code
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log

REQUESTS = 1000

#: An answerer in a process of its own: waits until all are open, then decides in random order.
ANSWERER = """
import random, sys
from interlock.actors import Answering
directory, name, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
with Answering.connect(directory, name=name) as desk:
    known = [desk.next(timeout=100) for _ in range(count)]
    assert None not in known, f"{name} was shown {known.index(None)} of {count}"
    print("all", flush=True)
    sys.stdin.readline()
    chance.shuffle(known)
    settled = 0
    for request in known:
        number = int(request.session_id[1:])
        word = desk.allow if number % 3 else desk.reject
        settled += word(request, note=f"by {name}").settled
    print(settled, flush=True)
"""


@tool(effect="write", approval="ask")
def pay(cents: int) -> int:
    """Pay, if allowed."""
    return cents


async def one_call(runtime: AsyncRuntime, number: int) -> object:
    session = await runtime.create(f"s{number}")
    async with session.turn("work") as turn, turn.step() as step:
        await step.assistant("", [ToolCall("c1", "pay", {"cents": number})])
        [result] = await step.execute()
    return result


@contextmanager
def answerers(directory: Path, names: list[str], count: int) -> Iterator[list[subprocess.Popen]]:
    started = [
        subprocess.Popen(
            [sys.executable, "-c", ANSWERER, str(directory), name, str(seed), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, name in enumerate(names)
    ]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def line(process: subprocess.Popen) -> str:
    return process.stdout.readline().strip()


def decisions(root: Path) -> Counter:
    """How the requests ended, from the logs: each has exactly one pair, in order (A4)."""
    found: Counter = Counter()
    backend = JsonlBackend(root)
    for listing in backend.list():
        events = list(read_log(listing.path).events)
        asked = [e for e in events if e.type == "approval/asked"]
        decided = [e for e in events if e.type == "approval/decided"]
        audit = [e.data for e in events if e.type == "interlock/approval"]
        assert len(asked) == len(decided) == 1, listing.id
        assert asked[0].data["id"] == decided[0].data["id"] == audit[0]["id"] == audit[1]["id"]
        assert asked[0].seq < decided[0].seq
        assert [a["state"] for a in audit] == ["asked", "decided"]
        assert audit[0]["digest"] == audit[1]["digest"]
        assert len(audit[0]["digest"]) == 64
        assert audit[1]["outcome"] == decided[0].data["outcome"]
        results = [e for e in events if e.type == "tool/result"]
        assert len(results) == 1, listing.id
        found[(audit[1]["outcome"], audit[1]["by"])] += 1
    return found


async def in_thread(call, *arguments):
    return await asyncio.get_running_loop().run_in_executor(None, call, *arguments)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_A2_A4_a_thousand_requests_and_three_answerers_each_settled_once(tmp_path: Path) -> None:
    root = tmp_path / "root"

    async def main() -> tuple[list, list[int], dict]:
        async with AsyncRuntime(root, tools=[pay], answerer="external", workers=2) as runtime:
            with answerers(runtime.directory, ["ada", "bob", "eve"], REQUESTS) as people:
                tasks = [asyncio.create_task(one_call(runtime, n)) for n in range(REQUESTS)]
                for person in people:
                    assert await in_thread(line, person) == "all"
                stats = await runtime.stats()
                assert stats["broker"]["open_approvals"] == REQUESTS
                assert stats["broker"]["answerers"] == 3
                for person in people:
                    person.stdin.write("go\n")
                    person.stdin.flush()
                results = await asyncio.gather(*tasks)
                settled = [int(await in_thread(line, person)) for person in people]
            return results, settled, await runtime.stats()

    results, settled, stats = asyncio.run(main())
    for number, result in enumerate(results):
        if number % 3:
            assert result.value == number
        else:
            assert result.code == Code.APPROVAL_REJECTED
    assert sum(settled) == REQUESTS, "an answer was taken twice, or none"
    broker = stats["broker"]
    assert broker["settled_allowed-once"] + broker["settled_rejected"] == REQUESTS
    assert stats["dispatcher"]["releases"] == sum(1 for n in range(REQUESTS) if n % 3)
    found = decisions(root)
    assert sum(found.values()) == REQUESTS
    by = Counter()
    for (_, who), count in found.items():
        by[who] += count
    assert by == {
        f"answerer:{name}": n for name, n in zip(("ada", "bob", "eve"), settled, strict=True) if n
    }


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_A10_F4_killed_answerers_and_a_killed_broker_lose_no_request_silently(
    tmp_path: Path,
) -> None:
    """Two of three answerers die at once; the third decides half; then the broker is killed."""
    root, count = tmp_path / "root", 60
    chance = random.Random(7)

    async def main() -> tuple[list, set[str]]:
        async with AsyncRuntime(root, tools=[pay], answerer="external", workers=2) as runtime:
            with answerers(runtime.directory, ["ada", "bob"], count) as doomed:
                tasks = [asyncio.create_task(one_call(runtime, n)) for n in range(count)]
                for person in doomed:
                    assert await in_thread(line, person) == "all"
                    person.send_signal(signal.SIGKILL)
                    await in_thread(person.wait)
            assert not any(task.done() for task in tasks), "an end was taken for an answer"
            allowed = await in_thread(some, runtime.directory, count, chance)
            for number in allowed:
                assert (await tasks[number]).value == number
            os.kill(runtime.processes["broker"], signal.SIGKILL)
            results = await asyncio.gather(*tasks)
            while "error" in (await runtime.stats())["broker"]:
                pass  # its successor is being started
            again = asyncio.create_task(one_call(runtime, count))  # F4: later ones work again
            await in_thread(some, runtime.directory, 1, chance)
            assert (await again).value == count
            return results, allowed

    results, allowed = asyncio.run(main())
    for number, result in enumerate(results):
        if number not in allowed:
            assert result.code == Code.APPROVAL_UNAVAILABLE
            assert "broker is gone" in result.message
    assert decisions(root) == {
        ("allowed-once", "answerer:eve"): len(allowed) + 1,
        ("unavailable", "runtime"): count - len(allowed),
    }


def some(directory: Path, count: int, chance: random.Random) -> set[int]:
    """Allow half of ``count`` requests (all where it is one), in random order."""
    with Answering.connect(directory, name="eve") as desk:
        known = [desk.next(timeout=60) for _ in range(count)]
        chance.shuffle(known)
        chosen = known[: max(1, count // 2)]
        for request in chosen:
            assert desk.allow(request).settled
        return {int(request.session_id[1:]) for request in chosen}
