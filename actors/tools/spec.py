"""What the dispatcher knows of a tool: data that travels, without the function."""

from __future__ import annotations

import re
from typing import Literal, get_args

import msgspec

Effect = Literal["write", "read", "idempotent"]
Place = Literal["worker", "host", "sandbox"]
Approval = Literal["ask"]

EFFECTS: tuple[str, ...] = get_args(Effect)
PLACES: tuple[str, ...] = get_args(Place)
APPROVALS: tuple[str, ...] = get_args(Approval)

#: Every call has a deadline (P5); seconds from its release (P8).
DEFAULT_TIMEOUT = 600.0

#: What the models' interfaces accept as a function's name.
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


class ToolSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as the dispatcher and the model see it.

    ``schema`` is the JSON Schema of the arguments object as JSON bytes, ``timeout`` is in seconds
    from the release, ``reconciles`` says that the tool can settle an unknown outcome (R4).
    """

    name: str
    description: str
    schema: bytes
    effect: Effect = "write"
    place: Place = "worker"
    parallel: bool = False
    timeout: float = DEFAULT_TIMEOUT
    approval: Approval | None = None
    isolate: bool = False
    reconciles: bool = False
    is_async: bool = False
