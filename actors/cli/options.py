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


Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Not before: 2026-12-01, 2026-12-01T10:30, or 2h ago as 2h."),
]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Not after; as for --since.")]


def time_of(given: str | None) -> int | None:
    """Return a time that was typed, in ms since the epoch; a bad one ends the command (2)."""
    from .output import CommandFailed
    from .when import parse_time

    try:
        return None if given is None else parse_time(given)
    except ValueError as error:
        raise CommandFailed(str(error), 2) from None


def root_of(given: Path | None) -> Path:
    """Return the root that a command works on."""
    from interlock.backends.paths import default_root

    return given.absolute() if given is not None else default_root()
