"""The file that ``interlock run`` reads: what it may hold, and reading it (D-12: no silent keys).

::

    [runtime]                       # all optional
    root = "logs"                   # where the session logs live; default: the user's own root
    sandbox = "workspace-write"     # or "read-only", "danger-full-access"
    approval = "ask"                # or "never": what would ask is rejected
    approval_timeout = 600          # seconds that a request stays open
    on_unknown = "report"           # or "retry", "reconcile": calls that a crash left unknown
    workers = 2                     # shared worker processes
    worker_env = ["API_TOKEN"]      # environment variables that workers get

    [[tools]]                       # each is a built-in one, or an import path
    use = "read_file"               # read_file list_files search write_file run_command
    [[tools]]
    use = "my_tools:deploy"         # found beside this file, or installed

    [[agents]]
    id = "reader"                   # the session's id; with count: reader-1, reader-2, …
    count = 3                       # how many of them; default 1
    prompt = "Read the README."     # or prompts = ["…", "…"], one turn each
    system = "You are careful."
    cwd = "."                       # its workspace; default: the directory of this file
    sandbox = "read-only"           # for this agent only
    approval = "never"              # for this agent only
    [agents.model]
    kind = "scripted"               # offline and deterministic
    [[agents.model.script]]
    text = "Reading."
    calls = [{ tool = "read_file", arguments = { path = "README.md" } }]

    [[agents]]
    id = "writer"
    prompt = "Write a summary."
    model = { kind = "python", factory = "my_models:make", options = { name = "large" } }

Relative paths are relative to the file. ``factory`` is called with ``options`` as keywords and
returns a model: something with ``config`` and ``astream`` (or ``stream``).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from interlock.backends.errors import SessionError
from interlock.backends.paths import default_root, session_dir_name

from ..agent.scripted import ScriptedModel, ScriptError

Mode = Literal["read-only", "workspace-write", "danger-full-access"]
Policy = Literal["ask", "never"]
OnUnknown = Literal["report", "retry", "reconcile"]

#: Agents that one file may describe.
MAX_AGENTS = 10_000


class FileError(ValueError):
    """The file cannot be read or does not say what it must; the message names file and key."""


class RuntimeTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[runtime]``."""

    root: str | None = None
    sandbox: Mode = "workspace-write"
    approval: Policy = "ask"
    approval_timeout: float = 600.0
    on_unknown: OnUnknown = "report"
    workers: int | None = None
    worker_env: list[str] = []


class ToolTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[tools]]``: the name of a built-in tool, or ``module:name``."""

    use: str


class ScriptedTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="scripted"
):
    """``model = {kind = "scripted", …}``: see :meth:`ScriptedModel.from_table`."""

    script: list[dict[str, Any]]
    closing: str = "Done."


class PythonTable(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="python"
):
    """``model = {kind = "python", …}``: a function that makes the model."""

    factory: str
    options: dict[str, Any] = {}


class AgentTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[agents]]``."""

    id: str
    model: ScriptedTable | PythonTable
    prompt: str | None = None
    prompts: list[str] = []
    system: str = ""
    cwd: str = "."
    sandbox: Mode | None = None
    approval: Policy | None = None
    count: int = 1


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agents: list[AgentTable]
    runtime: RuntimeTable = RuntimeTable()
    tools: list[ToolTable] = []


class AgentPlan(msgspec.Struct, frozen=True):
    """One agent to host; ``id`` is its session's."""

    id: str
    prompts: list[str]
    system: str
    cwd: Path
    sandbox: Mode | None
    approval: Policy | None
    model: ScriptedTable | PythonTable


class HostFile(msgspec.Struct, frozen=True):
    """What a file says, checked, with paths made absolute and counts spelled out."""

    path: Path
    root: Path
    runtime: RuntimeTable
    tools: list[str]
    agents: list[AgentPlan]


def read_file(path: Path) -> HostFile:
    """Read and check a file.

    :raises FileError: it cannot be read, is no TOML, has an unknown key or a wrong value.
    """
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: not TOML: {error}") from None
    try:
        said = msgspec.convert(table, _File)
    except msgspec.ValidationError as error:
        raise FileError(f"{path}: {_words(str(error))}") from None
    home = path.absolute().parent
    root = home / said.runtime.root if said.runtime.root is not None else default_root()
    if said.runtime.approval_timeout <= 0:
        raise FileError(f"{path}: runtime.approval_timeout is a number of seconds above 0")
    if said.runtime.workers is not None and said.runtime.workers < 1:
        raise FileError(f"{path}: runtime.workers is at least 1")
    agents = [plan for table in said.agents for plan in _plans(path, home, table)]
    if not 1 <= len(agents) <= MAX_AGENTS:
        raise FileError(f"{path}: describes {len(agents)} agents; between 1 and {MAX_AGENTS} go")
    _check_ids(path, agents)
    return HostFile(path, root, said.runtime, [tool.use for tool in said.tools], agents)


def _plans(path: Path, home: Path, table: AgentTable) -> list[AgentPlan]:
    where = f"{path}: agent {table.id!r}"
    if (table.prompt is None) == (not table.prompts):
        raise FileError(f"{where} needs either prompt or prompts")
    if table.count < 1:
        raise FileError(f"{where}: count is at least 1")
    cwd = home / table.cwd
    if not cwd.is_dir():
        raise FileError(f"{where}: cwd {str(cwd)!r} is no directory")
    if isinstance(table.model, ScriptedTable):
        try:
            ScriptedModel.from_table(table.model.script)
        except ScriptError as error:
            raise FileError(f"{where}: {error}") from None
    prompts = table.prompts or [table.prompt or ""]
    numbers: Sequence[str] = [""]
    if table.count > 1:
        numbers = [f"-{number}" for number in range(1, table.count + 1)]
    return [
        AgentPlan(
            f"{table.id}{number}",
            prompts,
            table.system,
            cwd.resolve(),
            table.sandbox,
            table.approval,
            table.model,
        )
        for number in numbers
    ]


def _check_ids(path: Path, agents: Sequence[AgentPlan]) -> None:
    seen: set[str] = set()
    for agent in agents:
        if agent.id in seen:
            raise FileError(f"{path}: two agents have the id {agent.id!r}")
        seen.add(agent.id)
        try:
            session_dir_name(agent.id)
        except SessionError as error:
            raise FileError(f"{path}: {error.message}") from None


_UNKNOWN = re.compile(r"Object contains unknown field `(.+?)`(?: - at `\$\.?(.*)`)?$")
_AT = re.compile(r" - at `\$\.?(.*)`$")


def _words(problem: str) -> str:
    """Say what msgspec found in the file's own words."""
    unknown = _UNKNOWN.match(problem)
    if unknown is not None:
        where = unknown[2] or "the top level"
        return f"unknown key {unknown[1]!r} in {where}"
    at = _AT.search(problem)
    return f"{at[1] or 'the top level'}: {problem[: at.start()]}" if at is not None else problem
