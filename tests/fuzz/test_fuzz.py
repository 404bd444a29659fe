"""Damaged logs: a fixed share of what ``python -m tests.fuzz`` tries, and the worst of all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interlock.backends.errors import SessionError
from interlock.backends.paths import log_name
from interlock.backends.reading import read_log

from .check import OneFile, fault_of
from .mutate import encode
from .seeds import line, rows

RUNS = 6_000

NAMES = [log_name(version, compressed=c) for version in range(4) for c in (True, False)]
HEADERS = {
    log_name(version, compressed=c): encode([line(rows(version)[0])], compressed=c)
    for version in range(4)
    for c in (True, False)
}


@pytest.mark.parametrize("share", range(4))
def test_L9_L10_a_damaged_log_reads_as_a_correct_prefix_or_is_refused(share: int) -> None:
    first = share * RUNS // 4
    faults = {seed: fault for seed in range(first, first + RUNS // 4) if (fault := fault_of(seed))}
    told = (f"python -m tests.fuzz --show --seed {seed}: {faults[seed]}" for seed in faults)
    assert not faults, "\n".join(told)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.binary(max_size=300), name=st.sampled_from(NAMES), framed=st.booleans())
def test_L10_any_bytes_at_all_are_refused_or_hold_no_event(data: bytes, name: str, framed) -> None:
    start = HEADERS[name]
    assert _refused(start + data if framed else data, name) in (
        None if framed else "SESSION_CORRUPT",
        "SESSION_CORRUPT",
        "SESSION_FORMAT_UNSUPPORTED",
    )


@pytest.mark.parametrize("kind", [["x"], {"a": 1}, 7, None])
def test_L10_a_type_that_is_no_text_behind_damage_is_damage(kind) -> None:
    start = rows(3, turns=1)
    bad = {**start[3], "type": kind}
    fault = _refused(encode([line(r) for r in [*start[:3], bad, *start[4:]]], compressed=False))
    assert fault == "SESSION_CORRUPT"


def _refused(data: bytes, name: str = "session.v3.jsonl") -> str | None:
    disk = OneFile(data)
    try:
        read_log(Path("/logs/--x--/s") / name, disk=disk)
    except SessionError as error:
        return str(error.code)
    finally:
        disk.done()
    return None


#: The blocks of a frame that give this byte 128 KiB at a time: four bytes each (RFC 8878, RLE).
def blocks(byte: bytes, count: int, *, last: bool) -> bytes:
    size = 128 * 1024
    one = ((size << 3) | (1 << 1)).to_bytes(3, "little") + byte
    end = ((size << 3) | (1 << 1) | 1).to_bytes(3, "little") + byte
    return one * (count - 1) + (end if last else one)


def frame(blocks: bytes, *, claims: int, window: int = 0x50, checksum: bytes = b"") -> bytes:
    """A frame with a checksum flag; ``window`` 0x50 is 1 MiB."""
    head = b"\x28\xb5\x2f\xfd" + bytes([0xC4, window]) + claims.to_bytes(8, "little")
    return head + blocks + checksum


HEADER = encode([line(rows(3)[0])], compressed=True)
HUGE = 100_000_000_000
MANY = HUGE // (128 * 1024)
BOMBS = {
    "a kilobyte that claims 100 GB": HEADER
    + frame(blocks(b"x", 200, last=True), claims=HUGE, checksum=b"1234"),
    "one segment of 100 GB": HEADER
    + b"\x28\xb5\x2f\xfd\xe4"
    + HUGE.to_bytes(8, "little")
    + blocks(b"x", 200, last=True)
    + b"1234",
    "a window of 2 GB": HEADER
    + frame(blocks(b"x", 200, last=True), claims=HUGE, window=0xA8, checksum=b"1234"),
    "a header of 100 GB": frame(blocks(b"x", MANY, last=True), claims=HUGE, checksum=b"1234"),
    "one line of 100 GB": HEADER
    + frame(blocks(b"x", MANY, last=True), claims=HUGE, checksum=b"1234"),
    "100 GB of line ends": HEADER
    + frame(blocks(b"\n", MANY, last=True), claims=HUGE, checksum=b"1234"),
    "a torn line of 100 GB": HEADER + frame(blocks(b"x", MANY, last=False), claims=HUGE),
    "torn line ends of 100 GB": HEADER + frame(blocks(b"\n", MANY, last=False), claims=HUGE),
    "torn NULs of 100 GB": HEADER + frame(blocks(b"\0", MANY, last=False), claims=HUGE),
}

PROGRAM = """
import resource, sys
from pathlib import Path
from interlock.backends.errors import SessionError
from interlock.backends.paths import log_name
from interlock.backends.reading import read_log
from interlock.backends.verify import verify
# Address space: what the interpreter has mapped already, and 1 GiB for the log.
mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**30, mapped + 2**30))
path = Path(sys.argv[1])
print(verify(path).sessions[0]["status"])
try:
    print(read_log(path).last_seq)
except SessionError as error:
    print(error.code)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.parametrize("bomb", BOMBS)
def test_L10_a_file_that_unpacks_to_100_gb_is_refused_and_not_unpacked(tmp_path, bomb) -> None:
    path = tmp_path / "s" / "session.v3.jsonl.zstd"
    path.parent.mkdir()
    path.write_bytes(BOMBS[bomb])
    command = [sys.executable, "-c", PROGRAM, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
    status, code, peak = done.stdout.split()
    assert (status, code) == ("corrupt", "SESSION_CORRUPT")
    # KiB on Linux.
    assert int(peak) < 700 * 1024


@pytest.mark.parametrize(
    "value", [b"[" * 200_000 + b"]" * 200_000, b"1" * 1_000_000, b'{"a":' * 50_000 + b"1"]
)
@pytest.mark.parametrize("name", ["session.jsonl", "session.v3.jsonl"])
def test_L10_values_that_no_parser_likes_are_damage(value: bytes, name: str) -> None:
    start = rows(3 if "v3" in name else 0, turns=1)
    text = line(start[1])
    at = text.find(b'"data":') + 7
    spoiled = text[:at] + value + text[at:]
    lines = [line(start[0]), spoiled, *(line(row) for row in start[2:])]
    assert _refused(encode(lines, compressed=False), name) == "SESSION_CORRUPT"
