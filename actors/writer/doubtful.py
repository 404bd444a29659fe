"""Which calls of a log may have run without that it is known how they ended (R4); pure."""

from __future__ import annotations

from interlock.backends.fold import CallState, LogFold
from interlock.backends.repair import never_released

from ..messages import DoubtfulCall


def doubtful_calls(fold: LogFold) -> list[DoubtfulCall]:
    """Return the calls that something can be done about, those of earlier steps first.

    Only calls that Interlock recorded: of others it is not known what their bodies were told, nor
    whether they were handed an idempotency key.
    """
    found = [
        _doubtful(known.call, call_seq, known.turn, known.step, known.outcome, recorded=True)
        for call_seq, known in fold.unknown.items()
        if fold.written_by_interlock(call_seq)
    ]
    for call in fold.calls:
        seq = call.call_seq
        if seq is None or call.result_seq is not None or not fold.written_by_interlock(seq):
            continue
        if fold.turn is not None and fold.step is not None and not never_released(call):
            found.append(_doubtful(call, seq, fold.turn, fold.step, None, recorded=False))
    return found


def _doubtful(
    call: CallState, seq: int, turn: int, step: int, outcome: str | None, *, recorded: bool
) -> DoubtfulCall:
    return DoubtfulCall(
        message_seq=call.message_seq,
        call_id=call.call_id,
        name=call.name,
        call_seq=seq,
        turn=turn,
        step=step,
        arguments=call.arguments.encode("utf-8", "surrogatepass"),
        attempts=call.attempts,
        granted=bool(call.granted),
        nested=call.nested,
        recorded=recorded,
        outcome=outcome,
    )
