"""Times that a person types: a date, a date and time, or how long ago."""

from __future__ import annotations

import re
import time
from datetime import datetime

_AGO = re.compile(r"([0-9]+)\s*(s|m|min|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_time(text: str) -> int:
    """Return a time in ms since the epoch; without a zone it is local time.

    ``2026-12-01``, ``2026-12-01T10:30``, ``2026-12-01 10:30:05Z``, or ``30m``, ``2h``, ``3d``: so
    long ago. ``ValueError`` for anything else.
    """
    ago = _AGO.fullmatch(text.strip())
    if ago is not None:
        return int((time.time() - int(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        return int(datetime.fromisoformat(text.strip()).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is no time; write 2026-12-01, 2026-12-01T10:30 or 2h (so long ago)"
        ) from None
