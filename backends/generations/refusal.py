"""Why a sound log of an older generation cannot be carried over to the current one."""

from __future__ import annotations


class Refusal(ValueError):  # noqa: N818 - the edge refuses; the log itself may be in order
    """An edge met something that it cannot carry over; ``seq`` is the source event's, if one's."""

    def __init__(self, reason: str, *, seq: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.seq = seq
