"""The source tree that the agents work on: found, and copied within bounds. Never written to."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import interlock.actors

from ..hosting.workspace import files

#: What one agent's copy may hold: files, and bytes in all and each.
MAX_FILES = 300
MAX_BYTES = 4_000_000
MAX_FILE_BYTES = 200_000
#: Entries looked at to find them.
SCAN = 5_000
#: Seconds for asking git whether there is a history.
GIT_TIMEOUT = 5.0

_TEXT = frozenset(
    {
        *(".py", ".md", ".rst", ".txt", ".toml", ".cfg", ".ini", ".json", ".yaml", ".yml"),
        *(".c", ".h", ".cc", ".cpp", ".hpp", ".rs", ".go", ".java", ".kt", ".rb", ".js", ".ts"),
        *(".tsx", ".jsx", ".sh", ".html", ".css", ".sql", ".lua", ".swift", ".php", ".el", ".ml"),
    }
)
_TEXT_NAMES = frozenset({"Makefile", "README", "LICENSE", "Dockerfile"})
#: The sandbox shows a private one of its own here.
_MASKED = tuple(Path(p) for p in ("/tmp", "/run", "/var/run"))  # noqa: S108 - compared, not used


class NoTreeError(ValueError):
    """The directory that was named holds nothing to work on."""


#: Bytes of a ``.git`` that is copied where the sandbox would not show the tree itself.
MAX_GIT_BYTES = 16_000_000

History = Literal["in-place", "copied", "none"]


@dataclass(frozen=True)
class Tree:
    """A tree to copy from.

    ``files`` are the text files of a copy, by name. ``history`` says where a confined ``git log``
    works: ``in-place``, in a copy (where the sandbox would not show the tree), or nowhere.
    """

    path: Path
    label: str
    files: tuple[str, ...]
    history: History

    def copy(self, target: Path, *, history: bool = False) -> None:
        """Make a scratch copy; links are left out, so that nothing leads back."""
        if history:
            shutil.copytree(self.path / ".git", target / ".git", symlinks=True)
        for name in self.files:
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.path / name, place)


def find_tree(given: Path | None) -> Tree:
    """Return the tree to work on: the one given, the current directory, or the installed package.

    Raises :class:`NoTreeError` for a given directory without text files.
    """
    if given is not None:
        tree = _tree(given.resolve(), str(given))
        if not tree.files:
            raise NoTreeError(
                f"{given} is no directory with text files to work on; name a source tree, or leave "
                "it out to use the installed package"
            )
        return tree
    here = Path.cwd().resolve()
    if not _too_wide(here) and _has_sources(here):
        tree = _tree(here, str(here))
        if tree.files:
            return tree
    package = Path(next(iter(interlock.actors.__path__))).resolve()
    return _tree(package, "the installed package")


def _too_wide(path: Path) -> bool:
    home = Path(os.path.expanduser("~")).resolve()
    return path == home or path in _MASKED or len(path.parts) <= 2


def _has_sources(path: Path) -> bool:
    return (path / ".git").exists() or any(path.glob("*.py"))


def _tree(path: Path, label: str) -> Tree:
    if not path.is_dir():
        return Tree(path, label, (), "none")
    chosen: list[str] = []
    total = 0
    for file in files(path, SCAN):
        if file.suffix not in _TEXT and file.name not in _TEXT_NAMES:
            continue
        try:
            size = file.stat().st_size
            readable = os.access(file, os.R_OK)
        except OSError:
            continue
        if not readable or not 0 < size <= MAX_FILE_BYTES or total + size > MAX_BYTES:
            continue
        chosen.append(file.relative_to(path).as_posix())
        total += size
        if len(chosen) == MAX_FILES:
            break
    return Tree(path, label, tuple(chosen), _history(path))


def _history(path: Path) -> History:
    """Where a confined ``git log`` of this tree works, if git is there at all."""
    if not (path / ".git").exists() or shutil.which("git") is None or not _has_commits(path):
        return "none"
    if not any(masked in path.parents for masked in _MASKED):
        return "in-place"
    git = path / ".git"
    return "copied" if git.is_dir() and _bytes_below(git, MAX_GIT_BYTES) else "none"


def _has_commits(path: Path) -> bool:
    try:
        asked = subprocess.run(
            ["git", "-C", str(path), "rev-parse", "--verify", "--quiet", "HEAD"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


def _bytes_below(directory: Path, limit: int) -> bool:
    """Whether everything below ``directory`` takes at most ``limit`` bytes."""
    total = 0
    for where, _, names in os.walk(directory):
        total += sum(os.lstat(Path(where, name)).st_size for name in names)
        if total > limit:
            return False
    return True
