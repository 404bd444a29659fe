"""``interlock demo``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from interlock.backends.errors import InterlockError


def demo(
    tree: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TREE]",
            help="The source tree to work on; it is copied, never written to. Default: the current "
            "directory if it has sources, else the installed package.",
        ),
    ] = None,
    agents: Annotated[
        int, typer.Option("--agents", min=2, max=200, help="How many agents share one runtime.")
    ] = 8,
    root: Annotated[
        Path | None,
        typer.Option("--root", metavar="DIR", help="Write the session logs here, and leave them."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the session logs, and say where they are.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of text.")
    ] = False,
) -> None:
    """Watch several agents work on a real tree, two of them losing a process in the middle of a
    call, and see what the log knew.

    Everything is offline and happens on scratch copies. Ends with 0 if every agent finished and
    logs and world agree, with 1 otherwise.
    """
    import asyncio

    from ..demo.play import play
    from ..demo.tree import NoTreeError

    try:
        account = play(tree, agents, root, keep=keep, quiet=as_json)
    except (NoTreeError, InterlockError, OSError) as error:
        sys.stderr.write(f"interlock: {' '.join(str(error).split())}\n")
        raise typer.Exit(1) from None
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.stderr.write("interlock: stopped; nothing is left running\n")
        raise typer.Exit(130) from None
    if as_json:
        json.dump(account.document(), sys.stdout, indent=2)
        sys.stdout.write("\n")
    if not account.good:
        raise typer.Exit(1)
