"""Paths inside a workspace that make the host run code later: git's hooks and settings, and others.

Only what exists is protected; nothing is created on the host, because a mount point that the
sandbox makes stays behind. What appears during a run is for `audit` to report.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .policy import inside, kind

#: Below ``.git``: what git runs, or takes programs to run from.
_GIT = ("hooks", "config", "config.worktree", "info/attributes")


@dataclass(frozen=True)
class Protection:
    """pinned: writable, but immovable. readonly: neither. loose: links, which cannot be pinned."""

    pinned: tuple[Path, ...] = ()
    readonly: tuple[Path, ...] = ()
    loose: tuple[Path, ...] = ()


def protection(root: Path, names: Iterable[str], named: Sequence[Path] = ()) -> Protection:
    """What to protect below one writable directory.

    names: of what else than git's own. named: paths that the caller wants writable all the same.
    """
    if kind(root) != "dir":
        return Protection()
    pinned: list[Path] = []
    wanted = [root / name for name in names]
    for path in wanted:
        # What lies deeper could be moved away with its directory; a mount point cannot.
        pinned += [p for p in reversed(path.parents) if inside(p, (root,)) and p != root]
    git = root / ".git"
    if git.is_symlink():
        wanted.append(git)
        store = git.resolve()
    else:
        store = git
    if kind(store) == "dir" and inside(store, (root,)):
        # First .git itself: renaming it away and building a new one is stopped by a mount point
        # only.
        pinned.append(store)
        wanted += [store / name for name in _GIT]
        wanted += [m / n for m in _modules(store / "modules") for n in ("hooks", "config")]
        pinned += [m.parent for m in (store / "info" / "attributes",) if m.exists()]
        pinned += [p for p in (store / "modules",) if kind(p) == "dir"]
    elif kind(git) == "file":
        wanted.append(git)
    wanted = [path for path in wanted if path not in named]
    links = tuple(p for p in wanted if p.is_symlink())
    targets = [p.resolve() for p in links if p.exists() and inside(p.resolve(), (root,))]
    plain = [p for p in wanted if not p.is_symlink() and p.exists()]
    readonly = tuple(dict.fromkeys([*plain, *(t for t in targets if t != store)]))
    needed = [p for p in dict.fromkeys(pinned) if p.is_dir() and not p.is_symlink()]
    kept = [p for p in needed if p == store or any(p in r.parents for r in readonly)]
    return Protection(tuple(kept), readonly, links)


def _modules(modules: Path) -> list[Path]:
    """Git directories of submodules, which may lie several levels deep."""
    if kind(modules) != "dir":
        return []
    return [c.parent for c in sorted(modules.glob("**/config")) if (c.parent / "HEAD").exists()]
