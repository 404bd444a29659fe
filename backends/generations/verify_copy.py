"""The other process that a migration asks before it publishes (L12): is this copy good?

``python -m interlock.backends.generations.verify_copy FILE`` gets what to expect on its standard
input and answers on its standard output, one JSON object each. It reads the file from its first
byte to its last, as strictly as any reader, and shares nothing with the process that wrote it: what
that one believes to have written does not count here, only what the disk gives back.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from ..disk import Disk, OsDisk
from ..errors import InterlockError
from ..event import Event, encode_line
from ..fold import LogFold
from ..header import encode_header
from ..reading import LogReader
from ..source import LogFile
from .refusal import Refusal
from .relationships import Relationships
from .replay import check_replay

#: How long a verification may take, in seconds. Reading is far faster than any disk that works.
TIMEOUT_S = 1800.0


_MODULE = "interlock.backends.generations.verify_copy"


class Expected(msgspec.Struct, frozen=True):
    """What the copy should hold; ``digest`` is the SHA-256 of all its lines, header included."""

    id: str
    events: int
    digest: str


class Verdict(msgspec.Struct, frozen=True):
    """``fault`` is what is wrong with the copy, None if nothing is.

    ``refused`` says that the copy is as it should be and the log itself cannot be carried over.
    """

    fault: str | None = None
    refused: bool = False
    seq: int | None = None


#: Reads a copy back and judges it.
Verifier = Callable[[Path, Expected], Verdict]


def verify_elsewhere(path: Path, expected: Expected) -> Verdict:
    """Have another process verify the file. Raises ``OSError`` if that process does not answer."""
    command = [sys.executable, "-P", "-m", _MODULE, os.fspath(path)]
    try:
        done = subprocess.run(
            command,
            input=msgspec.json.encode(expected),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return msgspec.json.decode(done.stdout, type=Verdict)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"the verification took longer than {TIMEOUT_S:.0f} s") from error
    except msgspec.MsgspecError as error:
        said = done.stderr.decode(errors="replace").strip()[-500:]
        raise OSError(f"the verification ended with {done.returncode}: {said}") from error


class _Target:
    """The checks of a migrated log that no reader makes, up to the first one that fails."""

    def __init__(self, fold: LogFold) -> None:
        self.refusal: Refusal | None = None
        self._relationships = Relationships(fold)

    def check(self, event: Event) -> None:
        if self.refusal is not None:
            return
        try:
            self._relationships.check(event)
            if event.type in ("assistant/message", "assistant/attempt"):
                check_replay(event)
        except Refusal as refusal:
            self.refusal = refusal

    def finish(self) -> None:
        if self.refusal is None:
            try:
                self._relationships.finish()
            except Refusal as refusal:
                self.refusal = refusal


def verify_copy(path: Path, expected: Expected, disk: Disk | None = None) -> Verdict:
    """Verify a migrated file in this process."""
    digest, count = hashlib.sha256(), 0
    try:
        with LogFile(path, disk or OsDisk()) as file:
            reader = LogReader(file, expect_id=expected.id)
            target = _Target(reader.fold)
            digest.update(encode_header(reader.header))
            for event in reader.events():
                digest.update(encode_line(event))
                count += 1
                target.check(event)
            target.finish()
    except (InterlockError, OSError) as error:
        return Verdict(str(error))
    if reader.recovered is not None:
        return Verdict("the copy has a torn end")
    if count != expected.events:
        return Verdict(f"the copy holds {count} events instead of {expected.events}")
    if digest.hexdigest() != expected.digest:
        return Verdict("the copy holds other events than were written")
    # Only now: what a damaged copy says is no reason to refuse the log.
    if target.refusal is not None:
        return Verdict(target.refusal.reason, refused=True, seq=target.refusal.seq)
    return Verdict()


def main() -> None:
    """Verify the file named on the command line."""
    expected = msgspec.json.decode(sys.stdin.buffer.read(), type=Expected)
    verdict = verify_copy(Path(sys.argv[1]), expected)
    sys.stdout.buffer.write(msgspec.json.encode(verdict))


if __name__ == "__main__":
    main()
