"""What a file names by import path: tools and models, brought in from beside it."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from ..agent.chunks import Chunk
from ..agent.model import AsyncModel, Model, ModelRequest
from ..agent.scripted import ScriptedModel
from ..tools.declare import Tool
from .file import FileError, HostFile, PythonTable, ScriptedTable
from .tools import BUILT_IN


def load_tools(file: HostFile) -> list[Tool[..., Any]]:
    """Return the tools that a file names.

    :raises FileError: one that cannot be imported or is no tool, naming it.
    """
    return [BUILT_IN.get(use) or _tool(file, use) for use in file.tools]


def _tool(file: HostFile, use: str) -> Tool[..., Any]:
    if ":" not in use:
        raise FileError(
            f"{file.path}: there is no built-in tool {use!r}; use one of {', '.join(BUILT_IN)}, or "
            "an import path like 'my_tools:deploy'"
        )
    found = _imported(file.path, use)
    if not isinstance(found, Tool):
        raise FileError(f"{file.path}: {use} is {type(found).__name__}; declare it with @tool")
    return found


def load_model(file: HostFile, table: ScriptedTable | PythonTable) -> AsyncModel:
    """Make the model of one agent.

    :raises FileError: its factory cannot be imported, fails, or gives no model.
    """
    if isinstance(table, ScriptedTable):
        return ScriptedModel.from_table(table.script, closing=table.closing)
    factory = _imported(file.path, table.factory)
    try:
        model = factory(**table.options)
    except Exception as error:
        raise FileError(
            f"{file.path}: {table.factory} failed: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(model, "config"):
        raise FileError(
            f"{file.path}: {table.factory} gave {type(model).__name__}, which has no config"
        )
    if hasattr(model, "astream"):
        made: AsyncModel = model
        return made
    if hasattr(model, "stream"):
        return Threaded(model)
    raise FileError(
        f"{file.path}: {table.factory} gave {type(model).__name__}; a model has astream or stream"
    )


class Threaded:
    """A model that is asked from a thread, for an event loop: each chunk is waited for on one."""

    def __init__(self, model: Model) -> None:
        self.config = model.config
        self._model = model

    async def astream(self, request: ModelRequest) -> AsyncIterator[Chunk]:
        """Give the model's answer in chunks."""
        chunks = iter(self._model.stream(request))
        while (chunk := await asyncio.to_thread(_next, chunks)) is not None:
            yield chunk


def _next(chunks: Iterator[Chunk]) -> Chunk | None:
    return next(chunks, None)


def _imported(path: Path, name: str) -> Any:
    """Import ``module:name``, looking beside the file first."""
    module, _, attribute = name.partition(":")
    home = str(path.absolute().parent)
    if home not in sys.path:
        sys.path.insert(0, home)
    if not module or not attribute:
        raise FileError(f"{path}: {name!r} is no import path; write it as 'module:name'")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise FileError(
            f"{path}: {name} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    return found
