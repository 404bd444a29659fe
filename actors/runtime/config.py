"""What a runtime is made of: tools, judges, an answerer, defaults."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from interlock.backends.paths import default_root

from ..answering.route import Answerer, Route, make_routes
from ..hooks.pieces import GATES, GUARDS, HOOKS, AnyPiece, Piece, asks
from ..messages import WireTool
from ..tools.declare import Tool
from ..tools.gates import Gate, Guard, PostHook

Durability = Literal["journal", "file", "none"]
Transport = Literal["ipc", "tcp", "inproc"]
Compression = Literal["zstd", "none"]
Policy = Literal["ask", "never"]
SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]


_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class RuntimeConfig:
    """Everything :class:`~interlock.actors.Runtime` was given, checked."""

    root: Path
    tools: Mapping[str, Tool[..., Any]]
    gates: Sequence[Gate] = ()
    guards: Sequence[Guard] = ()
    hooks: Sequence[PostHook] = ()
    #: The shipped gates, guards and post hooks: data, judged in the dispatcher.
    pieces: tuple[list[AnyPiece], list[AnyPiece], list[AnyPiece]] = ([], [], [])
    approval: Policy = "ask"
    approval_timeout: float = 600.0
    #: Who is asked, by the name that the log gives them.
    answerers: Mapping[str, Route] = field(default_factory=dict)
    waits_for_answerer: bool = False
    sandbox: SandboxMode = "workspace-write"
    durability: Durability = "journal"
    allow_file_durability: bool = False
    allow_network_root: bool = False
    backend: str = ""
    compression: Compression = "zstd"
    transport: Transport = "ipc"
    workers: int = 2
    worker_env: Sequence[str] = ()
    wire_tools: Sequence[WireTool] = field(default=(), repr=False)

    def owner_options(self) -> dict[str, str | int | float | bool]:
        return {
            "approval": self.approval,
            "approval_timeout": self.approval_timeout,
            "sandbox": self.sandbox,
            "durability": self.durability,
            "allow_file_durability": self.allow_file_durability,
            "allow_network_root": self.allow_network_root,
            "backend": self.backend,
            "compression": self.compression,
            "workers": self.workers,
            "waits": self.waits_for_answerer,
            "cwd": os.getcwd(),
        }


def make_config(
    root: str | os.PathLike[str] | None,
    *,
    tools: Sequence[Any] = (),
    gates: Sequence[Gate | AnyPiece] = (),
    guards: Sequence[Guard | AnyPiece] = (),
    hooks: Sequence[PostHook | AnyPiece] = (),
    approval: str = "ask",
    answerer: Answerer | Route | str | Sequence[Answerer | Route | str] | None = None,
    approval_timeout: float = 600.0,
    sandbox: str = "workspace-write",
    durability: str = "journal",
    allow_file_durability: bool = False,
    allow_network_root: bool = False,
    backend: str | None = None,
    compression: str = "zstd",
    transport: str = "ipc",
    workers: int | None = None,
    worker_env: Sequence[str] = (),
) -> RuntimeConfig:
    """Check what a runtime was given.

    Raises ``TypeError`` or ``ValueError`` naming the argument; a tool that cannot travel to a
    worker is refused here with :class:`~interlock.actors.tools.ToolNotPortableError` (a
    ``TypeError``).
    """
    answerers, external = make_routes(answerer)
    _one_of("approval", approval, get_args(Policy))
    _one_of("sandbox", sandbox, get_args(SandboxMode))
    _one_of("durability", durability, get_args(Durability))
    _one_of("compression", compression, get_args(Compression))
    _one_of("transport", transport, get_args(Transport))
    if backend is not None and not _FACTORY.fullmatch(backend):
        raise ValueError(f"backend is {backend!r}; it is 'package.module:factory'")
    if approval_timeout <= 0:
        raise ValueError(f"approval_timeout is {approval_timeout!r}; it is a number of seconds")
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ValueError(f"workers is {workers!r}; it is the number of shared worker processes")
    named = _by_name(tools)
    given = {"gates": gates, "guards": guards, "hooks": hooks}
    shipped = {place: _pieces(place, parts) for place, parts in given.items()}
    own: dict[str, tuple[Any, ...]] = {
        place: tuple(part for part in parts if not isinstance(part, Piece))
        for place, parts in given.items()
    }
    return RuntimeConfig(
        root=Path(root).absolute() if root is not None else default_root(),
        tools=named,
        gates=own["gates"],
        guards=own["guards"],
        hooks=own["hooks"],
        pieces=(shipped["gates"], shipped["guards"], shipped["hooks"]),
        approval=approval,  # type: ignore[arg-type]
        approval_timeout=approval_timeout,
        answerers=answerers,
        waits_for_answerer=external,
        sandbox=sandbox,  # type: ignore[arg-type]
        durability=durability,  # type: ignore[arg-type]
        allow_file_durability=bool(allow_file_durability),
        allow_network_root=bool(allow_network_root),
        backend=backend or "",
        compression=compression,  # type: ignore[arg-type]
        transport=transport,  # type: ignore[arg-type]
        workers=workers or min(4, os.cpu_count() or 2),
        worker_env=tuple(worker_env),
        wire_tools=tuple(_wire(tool) for tool in named.values()),
    )


#: Which pieces may stand in which place.
_PLACES = {"gates": GATES, "guards": GUARDS, "hooks": HOOKS}


def _pieces(place: str, parts: Sequence[Any]) -> list[AnyPiece]:
    """The shipped ones among ``parts``; what is none of them is a function."""
    found: list[AnyPiece] = []
    for part in parts:
        if isinstance(part, _PLACES[place]):
            if place == "guards" and asks(part):
                raise ValueError(f"{part} asks for an approval, which only gates may do")
            found.append(part)
        elif isinstance(part, Piece):
            name = type(part).__name__
            raise ValueError(f"{name} does not belong into {place}")  # noqa: TRY004 - it is a piece
        elif not callable(part):
            raise TypeError(f"{part!r} in {place} is neither a function nor a shipped piece")
    return found


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(repr, allowed))}")


def _by_name(tools: Sequence[Any]) -> dict[str, Tool[..., Any]]:
    named: dict[str, Tool[..., Any]] = {}
    for one in tools:
        if not isinstance(one, Tool):
            raise TypeError(
                f"{getattr(one, '__name__', one)!r} is not a tool; declare it with @tool"
            )
        if one.name in named:
            raise ValueError(f"two tools are named {one.name!r}")
        named[one.name] = one
    return named


def _wire(one: Tool[..., Any]) -> WireTool:
    if one.place == "host":
        return WireTool(one.spec, b"")
    from ..tools.pack import pack

    return WireTool(one.spec, pack(one))
