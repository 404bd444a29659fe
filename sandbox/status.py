"""What the mechanism says about the command, on a channel that the command cannot write (S5)."""

import json
from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """What was recorded so far.

    child: process id of the sandbox's first process as the host counts, once there is one.
    exit_code: the command's exit status; 128 + N where signal N ended it.
    signal: that signal where the mechanism tells it apart, 0 where it knows there was none.
    exec_error: errno of a command that could not be started in a sandbox that was up.
    failed: why the sandbox could not be put up.
    left: left-over processes that could not be ended.
    """

    child: int | None = None
    exit_code: int | None = None
    signal: int | None = None
    exec_error: int | None = None
    failed: str | None = None
    left: int = 0

    @property
    def ran(self) -> bool:
        """Whether the command itself ran to an end."""
        return self.exit_code is not None


def read_status(raw: bytes) -> Status:
    """Read JSON records, one after the other; a torn last one is left out."""
    merged: dict[str, object] = {}
    text = raw.decode(errors="replace").lstrip()
    decoder = json.JSONDecoder()
    while text:
        try:
            record, end = decoder.raw_decode(text)
        except ValueError:
            break
        if isinstance(record, dict):
            merged |= record
        text = text[end:].lstrip()
    failed = merged.get("failed")
    return Status(
        child=_number(merged.get("child-pid")),
        exit_code=_number(merged.get("exit-code")),
        signal=_number(merged.get("signal")),
        exec_error=_number(merged.get("exec-error")),
        failed=failed if isinstance(failed, str) else None,
        left=_number(merged.get("left")) or 0,
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) else None
