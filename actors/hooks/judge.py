"""The pieces together: what they say of a call, and what they keep in mind (P2)."""

from __future__ import annotations

from collections.abc import Sequence

from ..tools.gates import Decision, Verdict, fold
from ..tools.outcome import describe
from .earlier import Earlier
from .matching import Facts, listed, matches, means
from .meters import METERS, BudgetMeter, Meter
from .pieces import AnyPiece, Ask, Deny, Only, Piece, ResultLimit

#: Sessions whose counts are kept in memory; those of others are found in their logs again.
KEPT = 4096


class Judge:
    """Holds the pieces of one runtime. Runs in the dispatcher's thread.

    Life of a call: :meth:`gates`, later :meth:`guards`, and at its end :meth:`ended`. A session's
    earlier calls are given once with :meth:`note`, before its first call is judged.
    """

    def __init__(
        self,
        gates: Sequence[AnyPiece] = (),
        guards: Sequence[AnyPiece] = (),
        hooks: Sequence[AnyPiece] = (),
    ) -> None:
        self._gates, self._guards = _with_meters(gates), _with_meters(guards)
        self._limits = [hook for hook in hooks if isinstance(hook, ResultLimit)]
        self._meters = [m for _, m in (*self._gates, *self._guards) if m is not None]
        #: Sessions whose earlier calls are counted, the latest last, and their calls under way.
        self._known: dict[str, int] = {}

    @property
    def judges(self) -> bool:
        """Whether there is anything to ask."""
        return bool(self._gates or self._guards)

    def needs_earlier(self, session: str) -> bool:
        """Whether something counts, and the session's earlier calls are not known yet."""
        return bool(self._meters) and session not in self._known

    def note(self, session: str, calls: Sequence[Earlier], now: float) -> None:
        """Take in the calls that its log holds."""
        for meter in self._meters:
            for call in calls:
                meter.note(session, call, now)
        self._known[session] = 0
        for old in [s for s, under_way in self._known.items() if not under_way][:-KEPT]:
            del self._known[old]
            for meter in self._meters:
                meter.forget(old)

    def gates(self, facts: Facts, now: float) -> Decision:
        """What the gates say, folded to the strictest."""
        if facts.session in self._known:
            self._known[facts.session] = self._known.pop(facts.session) + 1
        return fold([_decide("gate", piece, meter, facts, now) for piece, meter in self._gates])

    def guards(self, facts: Facts, now: float) -> Decision:
        """What the guards say; one that asks denies, since the time for asking is over."""
        said = fold([_decide("guard", piece, meter, facts, now) for piece, meter in self._guards])
        if said.verdict is Verdict.ASK:
            return Decision.deny(f"{said.reason} (a guard comes after the approval)")
        return said

    def ended(self, facts: Facts, *, released: bool) -> None:
        """The call is over; one that was not released is taken back from what is counted."""
        for meter in self._meters:
            if not released:
                meter.take_back(facts)
            elif isinstance(meter, BudgetMeter):
                meter.over(facts)
        if self._known.get(facts.session):
            self._known[facts.session] -= 1

    def result_limit(self, tool: str) -> int | None:
        """The most bytes of a result of ``tool`` that stand in its event; the smallest limit."""
        return min((p.bytes for p in self._limits if matches(p.tool, tool)), default=None)


def _with_meters(pieces: Sequence[AnyPiece]) -> list[tuple[AnyPiece, Meter | None]]:
    return [(p, METERS[type(p)](p) if type(p) in METERS else None) for p in pieces]


def _decide(
    role: str, piece: Piece, meter: Meter | None, facts: Facts, now: float
) -> Decision | None:
    try:
        return _said(piece, meter, facts, now)
    except Exception as error:  # P2: one that fails denies
        return Decision.deny(f"{role} {type(piece).__name__} failed: {describe(error)}")


def _said(piece: Piece, meter: Meter | None, facts: Facts, now: float) -> Decision | None:
    match piece:
        case Deny():
            return Decision.deny(piece.reason or _closed(facts)) if means(piece, facts) else None
        case Ask():
            asked = piece.reason or f"calls of {facts.tool} like this one are asked for"
            return Decision.ask(asked) if means(piece, facts) else None
        case Only():
            if listed(piece, facts):
                return None
            return _verdict(piece.otherwise, piece.reason or _closed(facts))
        case _ if meter is not None:
            problem = meter.judge(facts, now)
            return _verdict(getattr(piece, "otherwise", "deny"), problem) if problem else None
    raise TypeError(f"{type(piece).__name__} judges no calls")


def _verdict(word: str, reason: str) -> Decision:
    return {"ask": Decision.ask, "cancel": Decision.cancel}.get(word, Decision.deny)(reason)


def _closed(facts: Facts) -> str:
    what = f" ({facts.argv[0]})" if facts.argv else ""
    return f"calls of {facts.tool}{what} like this one are not allowed here"
