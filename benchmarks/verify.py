"""``sessions verify`` and ``sessions list`` on a large root.

``python -m benchmarks.verify [--sessions N] [--bytes N] [--rounds N] [--root DIR] [--json]``.
The root has logs as agents leave them: turns of a prompt and three steps, each with an answer, a
call and its result, of which some are long; one frame for each few events. Speed is of the unpacked
log, the start of the interpreter included. Before each cold list the system's caches are dropped,
where that is allowed; where not, the files' own are.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from interlock.backends.event import Draft, draft
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.log import SessionLog

from .load import unpacked

_START = 1_700_000_000_000
_WORDS = Path(__file__).parent.joinpath("NOTES.md").read_text().split()
#: How long results are, in words: what a listing, a file and a test run give.
_RESULTS = (20, 200, 2000)


def write_root(root: Path, sessions: int, size: int, rng: random.Random) -> int:
    """Write that many sessions of about ``size`` bytes each; return the unpacked bytes."""
    backend = JsonlBackend(root, durability="none")
    total = 0
    for number in range(sessions):
        cwd = f"/home/someone/project-{number % 50}"
        created = _START + number * 1000
        log = backend.create(Header(id=f"session-{number:06}", created_at=created, cwd=cwd))
        written = 0
        for turn in _turns(rng):
            for drafts in turn:
                _commit(log, drafts, created)
                written += sum(len(one.data) for one in drafts)
            if written >= size:
                break
        log.close()
        total += unpacked(log.path)
    backend.close()
    return total


def _commit(log: SessionLog, drafts: list[Draft], time_ms: int) -> None:
    log.append(drafts, time_ms)
    batch = log.seal()
    if batch is not None:
        log.acknowledge(log.write(batch))


def _turns(rng: random.Random) -> Iterator[list[list[Draft]]]:
    turn, seq = 0, 0
    while True:
        turn += 1
        user = _message("user", f"u{turn}", [_text(rng, 30)], {"kind": "user"})
        batch = [
            draft("turn/start", {"turn": turn}),
            draft("user/message", user, surface_op="append"),
        ]
        batches, seq = [], seq + 2
        for step in (1, 2, 3):
            place = {"turn": turn, "step": step}
            before, result = _step(rng, place, seq + 2)
            batches += [[*batch, *before], [result]]
            batch, seq = [draft("step/end", place)], seq + 5
        batch.append(draft("turn/end", {"turn": turn, "reason": {"kind": "completed"}}))
        seq += 1
        yield [*batches, batch]


def _step(rng: random.Random, place: dict[str, Any], call_seq: int) -> tuple[list[Draft], Draft]:
    name = f"{place['turn']}-{place['step']}"
    call = {"id": f"c{name}", "name": "read_file", "arguments": '{"path":"src/main.py"}'}
    model = {"kind": "model", "provider": "external", "model": "none"}
    content = [_text(rng, 60), {"type": "tool-call", **call}]
    answer = {**place, "message": _message("assistant", f"a{name}", content, model), "stream": []}
    started = {**place, "callId": call["id"], "name": call["name"], "arguments": call["arguments"]}
    block = {
        "type": "tool-result",
        "toolCallId": call["id"],
        "content": [_text(rng, rng.choice(_RESULTS))],
        "isError": False,
    }
    source = {"kind": "tool", "callId": call["id"]}
    result = {**place, "message": _message("user", f"r{name}", [block], source)}
    return (
        [
            draft("step/start", place),
            draft("assistant/message", answer, surface_op="append"),
            draft("tool/call", started),
        ],
        draft("tool/result", result, surface_op="append", sources=(call_seq,)),
    )


def _message(role: str, name: str, content: list[Any], source: dict[str, Any]) -> dict[str, Any]:
    return {"id": name, "role": role, "content": content, "source": source}


def _text(rng: random.Random, words: int) -> dict[str, str]:
    return {"type": "text", "text": " ".join(rng.choices(_WORDS, k=words))}


def measure(root: Path, size: int, rounds: int) -> dict[str, Any]:
    """Return seconds of both commands, and the speed of verifying."""
    verify, cold, warm = [], [], []
    how = ""
    for _ in range(rounds):
        how = _drop_caches(root)
        cold.append(_seconds("list", "--root", str(root)))
        warm.append(_seconds("list", "--root", str(root)))
        verify.append(_seconds("verify", str(root)))
    return {
        "cpus": os.cpu_count(),
        "sessions": sum(1 for _ in root.glob("*/*/session.v3.jsonl.zstd")),
        "unpacked_mb": round(size / 1e6),
        "verify_s": round(statistics.median(verify), 2),
        "verify_mb_per_s": round(size / 1e6 / statistics.median(verify)),
        "list_cold_s": round(statistics.median(cold), 2),
        "list_warm_s": round(statistics.median(warm), 2),
        "cold_means": how,
    }


def _drop_caches(root: Path) -> str:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        for path in root.glob("*/*/session*"):
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
        return "the logs' pages dropped"
    return "all caches dropped"


def _seconds(*arguments: str) -> float:
    command = [sys.executable, "-m", "interlock.actors.cli", "sessions", *arguments]
    begun = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--sessions", type=int, default=5000)
    parser.add_argument("--bytes", type=int, default=200_000, help="of each, unpacked")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--root", type=Path, help="a directory on the disk to measure")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="interlock-verify-", dir=chosen.root) as directory:
        root = Path(directory)
        size = write_root(root, chosen.sessions, chosen.bytes, random.Random(1))
        told = measure(root, size, chosen.rounds)
    print(json.dumps(told, indent=2) if chosen.json else "\n".join(f"{k}: {told[k]}" for k in told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
