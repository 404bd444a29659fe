"""The file tools that come with Interlock: read, list, search, write, and run a command confined.

The first four are worker bodies: trusted code that holds itself to the working directory. What a
model wrote to be run goes through ``run_command``, which is confined (S10).
"""

from __future__ import annotations

import fnmatch
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from ..tools.command import Command
from ..tools.context import ToolContext
from ..tools.declare import Tool, tool
from ..tools.failure import ToolFailure
from .workspace import files, inside, workspace

#: Characters of one file that a model is shown at once.
READ_LIMIT = 20_000
#: Files in one listing, and lines in one search.
LIST_LIMIT = 500
MATCH_LIMIT = 100
#: Bytes of one file that a search reads; longer files are searched up to there.
SEARCH_BYTES = 1_000_000
#: Characters of one line that a search shows.
LINE_LIMIT = 200


@tool(effect="read", parallel=True, timeout=60.0)
def read_file(ctx: ToolContext, path: str, offset: int = 0) -> str:
    """Read a text file of the working directory.

    :param path: the file, relative to the working directory.
    :param offset: the character to begin at.
    """
    try:
        text = inside(ctx, path).read_text("utf-8", errors="replace")
    except OSError as error:
        raise ToolFailure(f"{path}: {error.strerror}") from None
    shown = text[offset : offset + READ_LIMIT]
    left = len(text) - offset - len(shown)
    return (
        f"{shown}\n[{left} more characters; go on at offset {offset + READ_LIMIT}]"
        if (left > 0)
        else shown
    )


@tool(effect="read", parallel=True, timeout=60.0)
def list_files(ctx: ToolContext, pattern: str = "*") -> list[str]:
    """List the files of the working directory, at most 500.

    :param pattern: which ones, as ``*.py`` or ``docs/*``.
    """
    root = workspace(ctx)
    found = []
    for path in files(root):
        name = path.relative_to(root).as_posix()
        if fnmatch.fnmatch(name, pattern) or fnmatch.fnmatch(path.name, pattern):
            found.append(name)
            if len(found) == LIST_LIMIT:
                break
    return found


@tool(effect="read", parallel=True, timeout=60.0)
def search(ctx: ToolContext, pattern: str, files_like: str = "*") -> list[str]:
    """Search the files of the working directory for a regular expression, at most 100 lines.

    :param pattern: a Python regular expression.
    :param files_like: in which files, as ``*.py``.
    """
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise ToolFailure(f"{pattern!r} is no regular expression: {error}") from None
    root, found = workspace(ctx), []
    for path in files(root):
        name = path.relative_to(root).as_posix()
        if not (fnmatch.fnmatch(name, files_like) or fnmatch.fnmatch(path.name, files_like)):
            continue
        ctx.raise_if_cancelled()
        for number, line in enumerate(_lines(path), 1):
            if wanted.search(line):
                found.append(f"{name}:{number}: {line.strip()[:LINE_LIMIT]}")
                if len(found) == MATCH_LIMIT:
                    return found
    return found


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            data = file.read(SEARCH_BYTES)
    except OSError:
        return []
    return [] if b"\0" in data else data.decode("utf-8", "replace").splitlines()


@tool(effect="idempotent", timeout=60.0)
def write_file(ctx: ToolContext, path: str, text: str) -> dict[str, Any]:
    """Write a text file of the working directory, whole; directories are made.

    :param path: the file, relative to the working directory.
    :param text: everything that it is to hold.
    """
    target = inside(ctx, path)
    data = text.encode("utf-8", "replace")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace(target, data)
    except OSError as error:
        raise ToolFailure(f"{path}: {error.strerror}") from None
    return {"path": path, "bytes": len(data)}


def replace(target: Path, data: bytes) -> None:
    """Put ``data`` in the place of ``target``: all of it or nothing, and on disk."""
    descriptor, temporary = tempfile.mkstemp(prefix=".write-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o644)
        os.rename(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@tool(effect="write", place="sandbox", timeout=600.0)
def run_command(argv: list[str], timeout: float | None = None) -> Command:
    """Run a command in the working directory, confined by the sandbox; no shell is involved.

    :param argv: the program and its arguments.
    :param timeout: seconds, at most 600.
    """
    return Command(argv, timeout=timeout)


#: The tools that a file may name by their bare names.
BUILT_IN: dict[str, Tool[..., Any]] = {
    one.name: one for one in (read_file, list_files, search, write_file, run_command)
}
