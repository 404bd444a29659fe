"""Which requests an answerer takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..messages import BecomeAnswerer
from .request import ApprovalRequest

#: Returns whether the call is allowed, or "allow" / "reject". Raising means no answer (A3). It may
#: be async.
Answerer = Callable[[ApprovalRequest], Any]

#: Instead of an answerer: keep requests open for somebody who attaches (``interlock approvals``).
EXTERNAL = "external"


@dataclass(frozen=True)
class Route:
    """An answerer and what it is asked: by patterns of session ids and tool names (``*``, ``?``).

    :param answerer: the function that decides.
    :param sessions: patterns of which one must match the session's id; none: every session.
    :param tools: the same for the tool's name.
    :param name: how the log calls it; the function's own name unless given.

    >>> Runtime(tools=[...], answerer=[Route(ask_ops, tools=["deploy*"]), Route(ask_me)])
    """

    answerer: Answerer
    sessions: Sequence[str] = ()
    tools: Sequence[str] = ()
    name: str = ""

    def joins(self, rid: int, name: str) -> BecomeAnswerer:
        """The message with which it joins at the broker, as ``name``."""
        return BecomeAnswerer(rid, name, list(self.sessions), list(self.tools))


def make_routes(given: Any) -> tuple[dict[str, Route], bool]:
    """Check what a runtime was given as ``answerer``: the routes by name, and whether requests wait
    for somebody from outside.

    Raises ``TypeError`` or ``ValueError`` naming what is wrong.
    """
    if given is None:
        return {}, False
    parts = list(given) if isinstance(given, list | tuple) else [given]
    routes: dict[str, Route] = {}
    for part in parts:
        if part == EXTERNAL:
            continue
        route = _route(part)
        name = route.name or ("callback" if len(parts) == 1 else _name_of(route.answerer))
        if name in routes and route.name:
            raise ValueError(f"two answerers are named {name!r}")
        count = 2
        unique = name
        while unique in routes:
            unique, count = f"{name}-{count}", count + 1
        routes[unique] = route
    return routes, any(part == EXTERNAL for part in parts)


def _route(part: Any) -> Route:
    if isinstance(part, str):
        raise ValueError(  # noqa: TRY004 - a string may be right, this word is not
            f"answerer is {part!r}; it is a function, a Route, {EXTERNAL!r} or None"
        )
    route = part if isinstance(part, Route) else Route(part)
    if not callable(route.answerer):
        raise TypeError(f"answerer is {type(route.answerer).__name__}, not a function")
    for name, patterns in (("sessions", route.sessions), ("tools", route.tools)):
        if isinstance(patterns, str) or not all(isinstance(p, str) for p in patterns):
            raise TypeError(f"{name} of a Route is {patterns!r}; it is a list of patterns")
    return route


def _name_of(answerer: Answerer) -> str:
    name = getattr(answerer, "__name__", None) or type(answerer).__name__
    return "answerer" if name == "<lambda>" else str(name)
