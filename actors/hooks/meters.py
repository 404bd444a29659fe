"""What limits count: calls in a time, sums, repetitions. Plain classes without a clock.

A meter judges a call and takes it into account at once; a call that is then not released after all
is taken back. ``note`` takes in a call of an earlier life, from the log.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..tools import jsontext
from .earlier import Earlier
from .matching import Facts, argument, is_number, matches
from .pieces import Budget, LoopDetector, RateLimit


class Meter(Protocol):
    """One counting piece. ``now`` is monotonic time in seconds."""

    def judge(self, facts: Facts, now: float) -> str:
        """Take the call into account; why it is too much, empty where it is not."""

    def take_back(self, facts: Facts) -> None:
        """The call was not released."""

    def note(self, session: str, call: Earlier, now: float) -> None:
        """Take in a call that an earlier life led."""

    def forget(self, session: str) -> None:
        """Drop what is known of a session; its log still has it."""


@dataclass
class RateMeter:
    """Counts the calls of the last ``seconds`` s."""

    piece: RateLimit
    _seen: dict[str, deque[tuple[float, tuple[int, str]]]] = field(default_factory=dict)

    def judge(self, facts: Facts, now: float) -> str:
        if not matches(self.piece.tool, facts.tool):
            return ""
        seen = self._recent(_scope(self.piece, facts.session), now)
        count = len(seen)
        seen.append((now, facts.key))
        if count < self.piece.calls:
            return ""
        wait = seen[count - self.piece.calls][0] + self.piece.seconds - now
        return (
            f"{count} such calls were made within {self.piece.seconds:g} s, and "
            f"{self.piece.calls} are allowed; the next one can be made in {max(wait, 0.1):.1f} s"
        )

    def take_back(self, facts: Facts) -> None:
        seen = self._seen.get(_scope(self.piece, facts.session), deque())
        found = next((one for one in reversed(seen) if one[1] == facts.key), None)
        if found is not None:
            seen.remove(found)

    def note(self, session: str, call: Earlier, now: float) -> None:
        if self.piece.scope == "session" and call.ran and matches(self.piece.tool, call.tool):
            self._recent(session, now).append((now - call.age, call.key))

    def forget(self, session: str) -> None:
        self._seen.pop(session, None)

    def _recent(self, scope: str, now: float) -> deque[tuple[float, tuple[int, str]]]:
        seen = self._seen.setdefault(scope, deque())
        while seen and seen[0][0] <= now - self.piece.seconds:
            seen.popleft()
        return seen


@dataclass
class BudgetMeter:
    """Adds up what calls cost."""

    piece: Budget
    _spent: dict[str, float] = field(default_factory=dict)
    #: What calls that are not over yet were charged.
    _charged: dict[tuple[str, tuple[int, str]], float] = field(default_factory=dict)

    def judge(self, facts: Facts, now: float) -> str:
        if not matches(self.piece.tool, facts.tool):
            return ""
        cost = argument(facts.arguments, self.piece.amount) if self.piece.amount else 1
        if not is_number(cost) or cost < 0:
            return f"what it costs ({self.piece.amount}) is not a number of at least nothing"
        scope = _scope(self.piece, facts.session)
        spent = self._spent.get(scope, 0)
        self._spent[scope] = spent + cost
        self._charged[facts.session, facts.key] = cost
        if spent + cost <= self.piece.limit:
            return ""
        what = self.piece.amount or "calls"
        return f"{spent:g} {what} of {self.piece.limit:g} are used up, and it needs {cost:g}"

    def take_back(self, facts: Facts) -> None:
        cost = self._charged.pop((facts.session, facts.key), 0)
        scope = _scope(self.piece, facts.session)
        if cost:
            self._spent[scope] -= cost

    def over(self, facts: Facts) -> None:
        """The call was released: its charge stands."""
        self._charged.pop((facts.session, facts.key), None)

    def note(self, session: str, call: Earlier, now: float) -> None:
        if self.piece.scope == "session" and call.ran and matches(self.piece.tool, call.tool):
            cost = argument(call.arguments, self.piece.amount) if self.piece.amount else 1
            if is_number(cost) and cost > 0:
                self._spent[session] = self._spent.get(session, 0) + cost

    def forget(self, session: str) -> None:
        self._spent.pop(session, None)


@dataclass
class LoopMeter:
    """Counts the same calls of a session's latest turn."""

    piece: LoopDetector
    _turns: dict[str, tuple[int, dict[bytes, int]]] = field(default_factory=dict)

    def judge(self, facts: Facts, now: float) -> str:
        if not matches(self.piece.tool, facts.tool):
            return ""
        count = self._count(facts.session, facts.turn, same(facts.tool, facts.arguments))
        if count <= self.piece.repeats:
            return ""
        return (
            f"the same call was made {count - 1} times in this turn already; it will not end "
            "otherwise this time. Do something else, or say what is missing"
        )

    def take_back(self, facts: Facts) -> None:
        """A model that repeats what is refused goes in circles as well."""

    def note(self, session: str, call: Earlier, now: float) -> None:
        if matches(self.piece.tool, call.tool):
            self._count(session, call.turn, same(call.tool, call.arguments))

    def forget(self, session: str) -> None:
        self._turns.pop(session, None)

    def _count(self, session: str, turn: int, call: bytes) -> int:
        known, counts = self._turns.get(session, (turn, {}))
        if known != turn:
            counts = {}
        counts[call] = counts.get(call, 0) + 1
        self._turns[session] = (turn, counts)
        return counts[call]


def same(tool: str, arguments: object) -> bytes:
    """What two calls share that are the same: the tool and the arguments, in any order."""
    text = jsontext.encode([tool, _sorted(arguments)])
    return hashlib.sha256(text).digest()


def _sorted(value: object) -> object:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_sorted(part) for part in value]
    return value


def _scope(piece: RateLimit | Budget, session: str) -> str:
    # A session id is not empty, so nothing is mixed up with what all share.
    return session if piece.scope == "session" else ""


#: The meter of each counting piece.
METERS: dict[type, Callable[..., Meter]] = {
    RateLimit: RateMeter,
    Budget: BudgetMeter,
    LoopDetector: LoopMeter,
}
