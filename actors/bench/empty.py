"""The empty body. A module of its own, since workers import it: they need nothing of the rest."""

from __future__ import annotations

from ..tools.declare import tool


@tool(effect="read")
def nothing(command: str) -> str:
    """Do nothing: what remains is what a call costs."""
    return "ok"
