"""Where the processes of a runtime import from.

A confined command may write into its workspace, and the directory of the program that hosts the
runtime often *is* the workspace: it stands first on that program's ``sys.path``. A module that a
command planted there must not be what an owner imports, with keys in its memory, when it is started
(again). So owners start with the directories of what they need and nothing else; what the host
finds besides (a log backend of its own) comes after everything else.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

#: What owners and workers import before they have their configuration.
NEEDED = ("pykka", "zmq", "msgspec", "zstandard", "cloudpickle", "pydantic", "jsonschema_rs")
#: What those import in turn, some of it only when it is first used.
BENEATH = ("pydantic_core", "annotated_types", "typing_extensions", "typing_inspection")
#: Directories that package managers fill.
SITES = frozenset({"site-packages", "dist-packages"})


def owners_path(entries: Sequence[str]) -> list[str]:
    """Return those of ``entries`` (the host's ``sys.path``) that an owner starts with.

    Only directories of installed packages, of the few that are needed, and of this project.
    """
    import interlock.actors

    package = Path(next(iter(interlock.actors.__path__))).resolve()
    homes = {_home_of(name, entries) for name in NEEDED}
    if package.parent.name == "interlock":
        homes.add(os.path.realpath(package.parent.parent))
    found = [e for e in entries if e and (_is_site(e) or os.path.realpath(e) in homes)]
    known = {os.path.realpath(entry) for entry in found}
    return found + sorted(home for home in homes if home is not None and home not in known)


def standard_library_first(entries: Iterable[str]) -> list[str]:
    """Return ``entries`` (the host's ``sys.path``) in their order, behind the standard library.

    Bodies find what the host finds; no module of the host's directory stands in for one of the
    standard library's in a worker.
    """
    own = [entry for entry in sys.path if _is_standard(entry)]
    return own + [entry for entry in entries if entry not in own]


class Pinned:
    """A finder that looks for what a process itself needs in the directories it started with.

    Put before the others (``sys.meta_path``), it lets a worker search the host's directories for
    the modules of tools without taking its own packages from there.
    """

    def __init__(self, entries: Sequence[str]) -> None:
        self._entries = list(entries)
        self._names = frozenset((*NEEDED, *BENEATH))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's own protocol; ``None`` leaves the module to the other finders."""
        if path is None and name in self._names:
            return PathFinder.find_spec(name, self._entries, target)
        return None


def _home_of(name: str, entries: Sequence[str]) -> str | None:
    """The directory that the package ``name`` is found in, the installed one where there is one."""
    installed_first = sorted(filter(None, entries), key=lambda entry: not _is_site(entry))
    spec = PathFinder.find_spec(name, installed_first)
    if spec is None or spec.origin is None:
        return None
    origin = Path(spec.origin)
    home = origin.parent.parent if origin.stem == "__init__" else origin.parent
    return os.path.realpath(home)


def _is_site(entry: str) -> bool:
    return os.path.basename(entry.rstrip(os.sep)) in SITES


def _is_standard(entry: str) -> bool:
    if not entry or _is_site(entry):
        return False
    here = os.path.realpath(entry)
    for name in ("stdlib", "platstdlib"):
        home = os.path.realpath(sysconfig.get_path(name))
        zipped = here.endswith(".zip") and os.path.dirname(here) == os.path.dirname(home)
        if zipped or here == home or here.startswith(home + os.sep):
            return True
    return False
