"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        envvar="INTERLOCK_ROOT",
        metavar="DIR",
        help="Directory that holds the sessions (default: the user's state directory).",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
SessionName = Annotated[
    str,
    typer.Argument(
        metavar="SESSION",
        help="A session's id, a unique beginning of one, its directory, or a log file.",
    ),
]


def root_of(given: Path | None) -> Path:
    """Return the root that a command works on."""
    from interlock.backends.paths import default_root

    return given.absolute() if given is not None else default_root()
