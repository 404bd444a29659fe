"""Where the demo happens: fresh directories, removed at the end; nothing else is written."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import ledger
from .script import Part
from .tree import Tree

#: Where an agent tries to write although it must not: every sandbox shows it, none lets write.
OUTSIDE = Path("/var/tmp")  # noqa: S108 - a name in it is tried, and must be refused


@dataclass(frozen=True)
class Scene:
    """The places of one run. ``run`` is in every session's id, so that roots can be shared."""

    run: str
    base: Path
    root: Path

    @property
    def ledger(self) -> Path:
        """The ledger: beside the logs, never under their root."""
        return self.base / "ledger.jsonl"

    @property
    def lone_log(self) -> Path:
        """What the agent in a process of its own says on stderr."""
        return self.base / "lone.log"

    def outside(self, number: int) -> Path:
        """What agent ``number`` tries to write outside its workspace."""
        return OUTSIDE / f"interlock-demo-{self.run}-{number}"

    def workspace(self, name: str) -> Path:
        """The scratch workspace of the agent ``name``, made if missing."""
        path = self.base / "work" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def session(self, name: str) -> str:
        """The session id of the agent ``name``."""
        return f"demo-{self.run}-{name}"

    def escaped(self, agents: int) -> list[Path]:
        """Return what was written outside all the same, and remove it."""
        found = [path for path in map(self.outside, range(agents)) if path.exists()]
        for path in found:
            path.unlink()
        return found


@contextlib.contextmanager
def scene(root: Path | None, *, keep: bool) -> Iterator[Scene]:
    """Make the directories of one run and remove them at the end.

    :param root: where the logs go and stay; ``None``: a fresh directory.
    :param keep: leave the logs (and the ledger beside them) where they are.
    """
    base = Path(tempfile.mkdtemp(prefix="interlock-demo-"))
    made = Scene(secrets.token_hex(3), base, root.absolute() if root is not None else base / "logs")
    try:
        with _environment(made):
            yield made
    finally:
        shutil.rmtree(base / "work", ignore_errors=True)
        if made.lone_log.exists() and not made.lone_log.stat().st_size:
            made.lone_log.unlink()
        if not keep:
            shutil.rmtree(base, ignore_errors=True)


@contextlib.contextmanager
def _environment(made: Scene) -> Iterator[None]:
    """Tell the workers of this process's runtimes where ledger and logs are (named, X5)."""
    names = {ledger.LEDGER: str(made.ledger), ledger.ROOT: str(made.root)}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def furnish(made: Scene, tree: Tree, cast: Sequence[Part], lone: str) -> None:
    """Give every agent a scratch copy of the tree, also the one in a process of its own."""
    tree.copy(made.workspace(lone))
    for part in cast:
        tree.copy(made.workspace(part.name), history=part.needs_history)
