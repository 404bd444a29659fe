"""Which calls a piece means: patterns of tools, arguments and command lines."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ..tools import jsontext
from .pieces import Ask, Deny, Only

_MISSING = object()


class Facts:
    """What is judged: one call with valid arguments.

    :param key: what tells it from every other call: seq of its message, and its id.
    :param raw: its arguments as JSON.
    :param argv: the command line, of a confined command.
    """

    def __init__(
        self,
        session: str,
        turn: int,
        key: tuple[int, str],
        tool: str,
        raw: bytes,
        argv: Sequence[str] | None = None,
    ) -> None:
        self.session, self.turn, self.key, self.tool = session, turn, key, tool
        self.raw, self.argv = raw, argv

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments; empty for what is no object."""
        try:
            found = jsontext.decode(self.raw) if self.raw else {}
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


def matches(patterns: Iterable[str], text: str) -> bool:
    """Whether one of ``patterns`` matches the whole text."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def means(piece: Deny | Ask, facts: Facts) -> bool:
    """Whether the call is one of those that the piece closes. In doubt it is."""
    return (
        matches(piece.tool, facts.tool)
        and all(_some(facts, name, given) for name, given in piece.where.items())
        and all(_exceeds(facts, name, number) for name, number in piece.above.items())
        and _is_program(piece, facts)
    )


def listed(piece: Only, facts: Facts) -> bool:
    """Whether the call is one of those that the piece lets go on. In doubt it is not."""
    if not matches(piece.tools, facts.tool):
        return False
    if facts.argv is not None and not matches(piece.programs, facts.argv[0]):
        return False
    return all(_every(facts, name, given) for name, given in piece.where.items())


def argument(arguments: Mapping[str, Any], path: str) -> Any:
    """The argument at ``path`` (``a.b``), or None."""
    found = _at(arguments, path)
    return None if found is _MISSING else found


def is_number(value: Any) -> bool:
    """Whether it is a JSON number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _at(arguments: Any, path: str) -> Any:
    if isinstance(arguments, Mapping) and path in arguments:
        return arguments[path]
    name, dot, rest = path.partition(".")
    if not isinstance(arguments, Mapping) or not dot or name not in arguments:
        return _MISSING
    return _at(arguments[name], rest)


def _some(facts: Facts, path: str, patterns: Sequence[str]) -> bool:
    found = _at(facts.arguments, path)
    if found is _MISSING:
        return False
    parts = found if isinstance(found, list) else []
    return any(matches(patterns, _text(part)) for part in (found, *parts))


def _every(facts: Facts, path: str, patterns: Sequence[str]) -> bool:
    found = _at(facts.arguments, path)
    if found is _MISSING:
        return True
    parts = found if isinstance(found, list) else [found]
    return all(matches(patterns, _text(part)) for part in parts)


def _exceeds(facts: Facts, path: str, number: float) -> bool:
    found = _at(facts.arguments, path)
    if found is _MISSING:
        return False
    parts = found if isinstance(found, list) else [found]
    return any(not is_number(part) or part > number for part in parts)


def _is_program(piece: Deny | Ask, facts: Facts) -> bool:
    if not piece.program and not piece.words:
        return True
    if facts.argv is None:
        return False
    first, *rest = facts.argv
    if piece.program and not any(
        matches(piece.program, name) for name in (first, os.path.basename(first.rstrip("/")))
    ):
        return False
    return all(any(fnmatchcase(word, pattern) for word in rest) for pattern in piece.words)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else jsontext.encode(value).decode()
