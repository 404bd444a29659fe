"""The demo from beginning to end: find a tree, set the scene, perform, give the account."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

from ..hosting.board import Board
from ..hosting.screen import Screen
from .account import Account, sentences, settle
from .scene import furnish, scene
from .script import LONE, parts
from .stage import Played, Stage
from .tree import find_tree

#: The fewest agents that make "several".
MIN_AGENTS = 2


def play(
    tree_path: Path | None, agents: int, root: Path | None, *, keep: bool, quiet: bool
) -> Account:
    """Run the demo in this thread, which must be the main one, and return its account.

    :param tree_path: the tree to work on; ``None``: the current directory or the package.
    :param agents: agents of the one runtime, at least :data:`MIN_AGENTS`; one more has a process
        of its own.
    :param root: where the logs go and stay; ``None``: a fresh directory.
    :param keep: leave the logs in that fresh directory.
    :param quiet: show nothing while it runs.
    :raises NoTreeError: ``tree_path`` holds nothing to work on.
    :raises KeyboardInterrupt: Ctrl-C; everything has been ended and removed.
    """
    tree = find_tree(tree_path)
    began = time.monotonic()
    with scene(root, keep=keep) as place:
        cast = parts(tree, agents, [place.outside(number) for number in range(agents)])
        furnish(place, tree, cast, LONE)
        board = Board()
        with Screen(board, f"interlock demo on {tree.label}", quiet=quiet) as screen:
            played = asyncio.run(_until_stopped(Stage(place, tree, cast, board, screen)))
        kept = keep or root is not None
        account = settle(place, tree, played, agents, time.monotonic() - began, kept=kept)
    if not quiet:
        _tell(screen, account)
    return account


async def _until_stopped(stage: Stage) -> Played:
    """Perform; SIGTERM ends it as Ctrl-C does."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - this is a coroutine
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await stage.perform()


def _tell(screen: Screen, account: Account) -> None:
    for sentence in sentences(account):
        screen.say()
        screen.say(sentence, style="red" if sentence.startswith("Trouble") else "")
    screen.say()
    screen.say("To try next:", style="bold")
    for command in next_commands(account):
        screen.say(f"  {command}", wrap=False)


def next_commands(account: Account) -> list[str]:
    """Return two or three commands that show more."""
    if account.root is None or account.killed is None:
        return [
            "interlock demo --keep      # the same, and the logs stay to be read",
            "interlock doctor           # what this machine offers",
        ]
    return [
        f"interlock sessions show --root {account.root} {account.killed.session}",
        f"interlock sessions verify {account.root}",
        "interlock doctor",
    ]
