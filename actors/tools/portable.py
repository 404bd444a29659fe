"""Whether a worker can import what the host has, so that it travels as a name."""

from __future__ import annotations

import sys
from typing import Any


def importable(thing: Any) -> bool:
    """Whether ``thing`` (a function, class or tool) is found under its own name by an import.

    Not so for what is defined in ``__main__`` (a script, REPL or notebook), inside a function, or
    in a module that an import would not find: those travel by value.
    """
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", None)
    if not module or not name or module == "__main__" or "<locals>" in name:
        return False
    found: Any = sys.modules.get(module)
    if found is None or not module_importable(module, getattr(found, "__file__", None)):
        return False
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is thing


def module_importable(module: str, file: str | None) -> bool:
    """Whether importing ``module`` in a process with this ``sys.path`` gives this ``file``."""
    path: Any = None
    spec = None
    parts = module.split(".")
    for index in range(len(parts)):
        if index and path is None:
            return False  # the parent is not a package
        # The finders are asked, not sys.modules: that it is imported here proves nothing.
        spec = _find(".".join(parts[: index + 1]), path)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return file is None or (spec is not None and spec.origin == file)


def _find(name: str, path: Any) -> Any:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None
