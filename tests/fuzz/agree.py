"""Damaged v0 logs, read by this reader and by the harness's own: where they part, and why.

``python -m tests.fuzz.agree [--runs N] [--seed N]`` prints how many logs there were of each kind.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import zstandard
from interlock.backends.errors import SessionError
from interlock.backends.generations.stored import read_stored

from benchmarks.npm import NotThereError, installed

from .check import case

HERE = Path(__file__).parent
#: Seconds for all logs of one run.
PATIENCE = 300
_FRACTION = re.compile(rb'"(?:seq|time)":-?\d+\.0+[,}]')


class Pair:
    """One log and what either reader says of it: the events, or the code of a refusal."""

    def __init__(self, data: bytes, ours: Any, why: str, theirs: Any) -> None:
        self.ours = ours
        self.why = why
        self.theirs = theirs
        self.text = unpacked(data)
        self.rows = [row for row in map(_decoded, self.text.split(b"\n")[1:]) if _is_row(row)]

    @property
    def agree(self) -> bool:
        return bool(self.ours == self.theirs)


def _is_row(row: Any) -> bool:
    return isinstance(row, dict) and "seq" in row


def _decoded(line: bytes) -> Any:
    try:
        # JavaScript knows no number too long to read.
        return json.loads(line.decode("utf-8", "replace"), parse_int=float)
    except (ValueError, RecursionError):
        return None


def unpacked(data: bytes) -> bytes:
    """Return a log's text, as far as it can be had."""
    if not data.startswith(b"\x28\xb5\x2f\xfd"):
        return data
    text = b""
    while data:
        decoder = zstandard.ZstdDecompressor().decompressobj()
        try:
            text += decoder.decompress(data)
        except zstandard.ZstdError:
            break
        data = decoder.unused_data
    return text


def _has_bad_text(pair: Pair) -> bool:
    try:
        pair.text.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


def _has_no_number(row: dict[str, Any]) -> bool:
    data, kind = row.get("data"), row.get("type")
    if kind not in ("turn/start", "step/start") or not isinstance(data, dict):
        return False
    numbers = [data.get(name) for name in ("turn", "step")[: 1 + (kind == "step/start")]]
    return not all(type(number) is float and number >= 1 for number in numbers)


def _as_javascript(value: Any) -> Any:
    """Return a value as a reader has it that knows no number but a double."""
    if isinstance(value, dict):
        return {key: _as_javascript(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_javascript(item) for item in value]
    return float(value) if type(value) is int and abs(value) > 2**53 else value


#: Why the two may part. Each is a rule of this project (L9, L10), and none of them makes up events.
REASONS: dict[str, Callable[[Pair], bool]] = {
    # L10 refuses them; the harness takes them for a torn line, or for text.
    "runs of NUL bytes": lambda pair: "NUL" in pair.why,
    # The harness reads U+FFFD where no character can be read, and goes on: text that nobody wrote.
    "a line whose UTF-8 is broken": _has_bad_text,
    # A row has a type and a payload, so this is no row, and damage where it stands; the harness
    # calls it a type that it does not know.
    "a row without a type": lambda pair: any(type(r.get("type")) is not str for r in pair.rows),
    # The harness calls whatever is below its own version an older one.
    "a version that never was": lambda pair: "the header says v" in pair.why,
    # The harness closes it with whatever stands there, and may then refuse its own row.
    "a turn or step that has no number": lambda pair: any(map(_has_no_number, pair.rows)),
    # L10: never told as corruption. The harness looks at some members before it looks at types.
    "an unknown type beside other damage": lambda pair: (
        (pair.ours, pair.theirs) == ("SESSION_FORMAT_UNSUPPORTED", "SESSION_CORRUPT")
    ),
    # L8: nothing tells whether such a frame is whole.
    "a frame without a checksum": lambda pair: "no content checksum" in pair.why,
    # Nobody could say that the call was made, or answer it.
    "a call without its id, name or arguments": lambda pair: "tool-call block lacks" in pair.why,
    # In JavaScript 1.0 and 1 are one number, and no writer writes the first.
    "a seq or time that is written as a fraction": lambda pair: bool(_FRACTION.search(pair.text)),
    # The harness looks into the payload of few types.
    "a payload that is no object": lambda pair: any(
        not isinstance(r.get("data"), dict) for r in pair.rows
    ),
    # Python keeps a number that JavaScript rounds.
    "a number that no double holds": lambda pair: (
        _as_javascript(pair.ours) == _as_javascript(pair.theirs)
    ),
}


def pairs(first: int, runs: int) -> Iterator[tuple[int, Pair]]:
    """Yield what became of ``runs`` logs of v0, with their seeds. Raises ``NotThereError``."""
    home = installed(HERE / "harness")
    with tempfile.TemporaryDirectory(prefix="interlock-agree-") as directory:
        made = [(seed, *_ours(seed, Path(directory))) for seed in _seeds(first, runs)]
        asked = [
            {"root": f"{directory}/{seed}", "compression": "zstd" if compressed else "none"}
            for seed, _, compressed, _, _ in made
        ]
        done = subprocess.run(
            [home / "node_modules" / ".bin" / "node", "read.mjs"],
            cwd=home,
            input="".join(json.dumps(one) + "\n" for one in asked),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=True,
        )
    for one, answer in zip(made, done.stdout.splitlines(), strict=True):
        seed, data, _, ours, why = one
        yield seed, Pair(data, ours, why, _theirs(json.loads(answer)))


def _seeds(first: int, runs: int) -> list[int]:
    found: list[int] = []
    for seed in count(first):
        if len(found) == runs:
            return found
        if case(seed)[2] == 0:
            found.append(seed)
    return found


def _ours(seed: int, directory: Path) -> tuple[bytes, bool, Any, str]:
    name, data, _, _ = case(seed)
    path = directory / str(seed) / "_no-cwd" / "s" / name.name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    compressed = name.suffix == ".zstd"
    try:
        return data, compressed, read_stored(path, expect_id="s").events, ""
    except SessionError as error:
        return data, compressed, str(error.code), str(error)


def _theirs(told: dict[str, Any]) -> Any:
    if "events" in told:
        return told["events"]
    unsupported = told["error"] == "SessionFormatUnsupportedError"
    return "SESSION_FORMAT_UNSUPPORTED" if unsupported else "SESSION_CORRUPT"


def reason(pair: Pair) -> str | None:
    """Return why two readers part, or None where nothing explains it."""
    return next((word for word, holds in REASONS.items() if holds(pair)), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.agree", description=__doc__)
    parser.add_argument("--runs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0, help="the first number")
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    unexplained: list[int] = []
    try:
        for seed, pair in pairs(chosen.seed, chosen.runs):
            word = "agree" if pair.agree else reason(pair)
            counts[word or "unexplained"] += 1
            if word is None:
                unexplained.append(seed)
    except NotThereError as error:
        print(f"skipped: {error}")
        return 0
    for word, number in counts.most_common():
        print(f"{number:6} {word}")
    if unexplained:
        print("unexplained: " + ", ".join(map(str, unexplained[:20])))
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
