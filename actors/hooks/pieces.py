"""The shipped gates, guards and post hooks, as data (P2).

Each is small and means one thing; a runtime is given any number of them, among functions of its
own. None of them can allow what another one closes: answers fold to the strictest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    Patterns = str | Sequence[str]
    Where = Mapping[str, str | Sequence[str]]
else:
    Patterns = list[str]
    Where = dict[str, list[str]]

Verdict = Literal["deny", "ask", "cancel"]
Scope = Literal["session", "runtime"]

VERDICTS = ("deny", "ask", "cancel")
SCOPES = ("session", "runtime")


def _every() -> list[str]:
    return ["*"]


class Piece(msgspec.Struct, frozen=True, tag=True):
    """The root of all pieces. Patterns have ``*`` and ``?`` and match a whole text, case and all;
    where several are given one must match.
    """


class Deny(Piece, frozen=True):
    """A gate or guard that refuses the calls it matches; everything given must match.

    :param tool: patterns of the tool's name.
    :param where: patterns of arguments, by name; ``a.b`` is ``b`` inside of ``a``. A string is
        matched as it is, anything else as its JSON; of a list any element may match. An argument
        that is not there does not match.
    :param above: numbers that an argument must exceed; what is no number exceeds every one.
    :param program: patterns of a confined command's program, matched against ``argv[0]`` and
        against its last part, so that ``rm`` also means ``/bin/rm``.
    :param words: patterns of which each must match one of the command's further arguments.
    :param reason: what the model, the answerer and the log are told.
    """

    tool: Patterns = msgspec.field(default_factory=_every)
    where: Where = {}
    above: dict[str, float] = {}
    program: Patterns = []
    words: Patterns = []
    reason: str = ""

    def __post_init__(self) -> None:
        _check_match(self)


class Ask(Piece, frozen=True):
    """A gate that has the calls it matches approved by somebody; arguments as of :class:`Deny`."""

    tool: Patterns = msgspec.field(default_factory=_every)
    where: Where = {}
    above: dict[str, float] = {}
    program: Patterns = []
    words: Patterns = []
    reason: str = ""

    def __post_init__(self) -> None:
        _check_match(self)


class Only(Piece, frozen=True):
    """A gate or guard that lets nothing but what it lists go on; the rest is denied, or asked for.

    What it lists is matched strictly: of a list every element, and a program by the whole of
    ``argv[0]``. A shell, an interpreter, ``env`` or ``sudo`` runs anything: none belongs in a list.

    :param tools: patterns of the tools' names.
    :param where: patterns that arguments must match, where they are there.
    :param programs: patterns of the programs that confined commands may be.
    :param otherwise: ``"deny"`` or ``"ask"``.
    """

    tools: Patterns
    where: Where = {}
    programs: Patterns = msgspec.field(default_factory=_every)
    otherwise: Verdict = "deny"
    reason: str = ""

    def __post_init__(self) -> None:
        _fix(self, "tools", _patterns("tools", self.tools))
        _fix(self, "where", _where(self.where))
        _fix(self, "programs", _patterns("programs", self.programs))
        _one_of("otherwise", self.otherwise, VERDICTS)


class RateLimit(Piece, frozen=True):
    """A gate or guard that lets ``calls`` calls through in any ``seconds`` s.

    Only calls that were released count. A session's count is found in its log again after a
    restart; with ``scope="runtime"`` all sessions share one, from the start of the dispatcher on.

    :param tool: patterns of the tools that share the limit.
    :param otherwise: what happens to a call beyond it.
    """

    calls: int
    seconds: float
    tool: Patterns = msgspec.field(default_factory=_every)
    scope: Scope = "session"
    otherwise: Verdict = "deny"

    def __post_init__(self) -> None:
        _fix(self, "tool", _patterns("tool", self.tool))
        _positive("calls", self.calls, whole=True)
        _positive("seconds", self.seconds)
        _check_limit(self.scope, self.otherwise)


class Budget(Piece, frozen=True):
    """A gate or guard that lets calls through until ``limit`` is used up, for good.

    Only calls that were released are charged, also those whose outcome is unknown. As with
    :class:`RateLimit` a session's sum is found in its log again.

    :param amount: the argument that says what a call costs; empty: each costs one. A call whose
        amount is no number, or less than nothing, is denied.
    """

    limit: float
    tool: Patterns = msgspec.field(default_factory=_every)
    amount: str = ""
    scope: Scope = "session"
    otherwise: Verdict = "deny"

    def __post_init__(self) -> None:
        _fix(self, "tool", _patterns("tool", self.tool))
        _positive("limit", self.limit)
        _check_limit(self.scope, self.otherwise)


class LoopDetector(Piece, frozen=True):
    """A gate or guard that stops a model which makes the same call again and again.

    The same call is the same tool with the same arguments, whatever their order and spacing. After
    ``repeats`` of it within a turn the next one is stopped; refused ones count as well.
    """

    repeats: int = 3
    tool: Patterns = msgspec.field(default_factory=_every)
    otherwise: Verdict = "deny"

    def __post_init__(self) -> None:
        _fix(self, "tool", _patterns("tool", self.tool))
        _positive("repeats", self.repeats, whole=True)
        _one_of("otherwise", self.otherwise, VERDICTS)


class ResultLimit(Piece, frozen=True):
    """A post hook: a result over ``bytes`` goes to a file beside the log, durable before the result
    is; the model is shown its beginning, the size and the digest (P7).
    """

    bytes: int
    tool: Patterns = msgspec.field(default_factory=_every)

    def __post_init__(self) -> None:
        _fix(self, "tool", _patterns("tool", self.tool))
        _positive("bytes", self.bytes, whole=True)


AnyPiece = Deny | Ask | Only | RateLimit | Budget | LoopDetector | ResultLimit
#: What may stand in each place.
GATES = (Deny, Ask, Only, RateLimit, Budget, LoopDetector)
GUARDS = (Deny, Only, RateLimit, Budget, LoopDetector)
HOOKS = (ResultLimit,)


def asks(piece: Piece) -> bool:
    """Whether the piece may ask for an approval, which only gates may (P2)."""
    return isinstance(piece, Ask) or getattr(piece, "otherwise", "") == "ask"


def _check_match(piece: Deny | Ask) -> None:
    _fix(piece, "tool", _patterns("tool", piece.tool))
    _fix(piece, "where", _where(piece.where))
    _fix(piece, "program", _patterns("program", piece.program))
    _fix(piece, "words", _patterns("words", piece.words))
    if not isinstance(piece.above, Mapping):
        raise TypeError(f"above is {type(piece.above).__name__}, not a dict of numbers")
    for name, number in piece.above.items():
        _number(f"above[{name!r}]", number)
    _fix(piece, "above", dict(piece.above))


def _check_limit(scope: str, otherwise: str) -> None:
    _one_of("scope", scope, SCOPES)
    _one_of("otherwise", otherwise, VERDICTS)


def _fix(piece: Piece, field: str, value: Any) -> None:
    msgspec.structs.force_setattr(piece, field, value)


def _patterns(field: str, value: Any) -> list[str]:
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list | tuple) or not all(isinstance(v, str) for v in values):
        raise TypeError(f"{field} is {value!r}; it is a pattern or a list of patterns")
    return list(values)


def _where(value: Any) -> dict[str, list[str]]:
    if not isinstance(value, Mapping):
        raise TypeError(f"where is {type(value).__name__}, not a dict of patterns")
    return {str(name): _patterns(f"where[{name!r}]", given) for name, given in value.items()}


def _one_of(field: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{field} is {value!r}; it is one of {', '.join(map(repr, allowed))}")


def _number(field: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{field} is {value!r}; it is a number")


def _positive(field: str, value: Any, *, whole: bool = False) -> None:
    _number(field, value)
    if value <= 0 or (whole and not isinstance(value, int)):
        kind = "whole number" if whole else "number"
        raise ValueError(f"{field} is {value!r}; it is a positive {kind}")
