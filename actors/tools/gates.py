"""P2: what stands between a valid call and its body, decided by the host's own functions.

Gates are asked first and fold to the strictest answer; guards are asked last, after an approval,
and can only close. All run in the host, on a bounded pool, with :data:`GATE_TIMEOUT`. Whatever is
not clearly an answer is a denial.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

from . import jsontext
from .outcome import describe, shorten
from .result import ToolResult
from .spec import ToolSpec
from .threads import Threads

#: Seconds that a gate, guard or post hook has, waiting for a free thread included.
GATE_TIMEOUT = 10.0
#: Gates that run at once. One that hangs keeps its thread, so that later ones wait, and are denied.
GATE_THREADS = 16
#: A reason is shown to the model and stored; characters.
REASON_LIMIT = 2000


class Verdict(IntEnum):
    """The four answers, each stricter than the one before.

    Deny is stricter than cancel: both keep the body from running, but a denial says why and is not
    replaced by a cancellation (P4).
    """

    ALLOW = 0
    ASK = 1
    CANCEL = 2
    DENY = 3


@dataclass(frozen=True, slots=True)
class Decision:
    """A gate's answer, and the reason that the model, the answerer and the log are given."""

    verdict: Verdict
    reason: str = ""

    @classmethod
    def allow(cls) -> Decision:
        """Let the call go on; another gate may still stop it."""
        return cls(Verdict.ALLOW)

    @classmethod
    def ask(cls, reason: str = "") -> Decision:
        """Let somebody decide (A1: under the policy ``never`` that is a rejection)."""
        return cls(Verdict.ASK, _bounded(reason))

    @classmethod
    def cancel(cls, reason: str = "") -> Decision:
        """End the call without a judgement on it, as a cancellation would."""
        return cls(Verdict.CANCEL, _bounded(reason))

    @classmethod
    def deny(cls, reason: str = "") -> Decision:
        """Refuse the call."""
        return cls(Verdict.DENY, _bounded(reason))


def fold(decisions: Iterable[Decision | None]) -> Decision:
    """Return the strictest of several answers with the reasons given for it; allow if there is
    none.

    The order of the gates does not matter, except that their reasons are joined in it.
    """
    answers = [d for d in decisions if d is not None]
    strictest = max((d.verdict for d in answers), default=Verdict.ALLOW)
    reasons = [d.reason for d in answers if d.verdict is strictest and d.reason]
    return Decision(strictest, _bounded("; ".join(dict.fromkeys(reasons))))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateCall:
    """The call that a gate, guard or post hook is asked about. Nothing in it changes the call (P2).

    ``raw_arguments`` is the model's own text.
    """

    session_id: str
    message_seq: int
    call_id: str
    tool: ToolSpec
    raw_arguments: str
    turn: int = 0
    step: int = 0

    @property
    def arguments(self) -> dict[str, Any]:
        """The parsed arguments, a new copy each time: changing it changes nothing."""
        arguments: dict[str, Any] = jsontext.decode(self.raw_arguments or "{}")
        return arguments


class Gate(Protocol):
    """Asked before the approval. ``None`` means that it has no opinion."""

    def __call__(self, call: GateCall, /) -> Decision | None: ...


class Guard(Protocol):
    """Asked last, right before the checkpoint. It can close what is open, and open nothing."""

    def __call__(self, call: GateCall, /) -> Decision | None: ...


class PostHook(Protocol):
    """Told of a result before it is appended; text that it returns is added for the model."""

    def __call__(self, call: GateCall, result: ToolResult, /) -> str | None: ...


class GateRunner:
    """Runs the host's gates, guards and hooks; one per host, used from any thread.

    :param timeout: seconds that each has.
    :param limit: how many run at once.
    """

    def __init__(self, timeout: float = GATE_TIMEOUT, limit: int = GATE_THREADS) -> None:
        self._timeout = timeout
        self._threads = Threads("interlock-gate", limit)

    def gate(self, gate: Gate, call: GateCall) -> Decision | None:
        """Ask one gate and wait for its answer; raising or being late denies."""
        return self._ask("gate", gate, call)

    def gates(self, gates: Iterable[Gate], call: GateCall) -> Decision:
        """Ask every gate at once and fold their answers."""
        pending = [(g, self._start(lambda g=g: g(call))) for g in gates]  # type: ignore[misc]
        return fold(self._decide("gate", g, call, answer) for g, answer in pending)

    def guards(self, guards: Iterable[Guard], call: GateCall) -> Decision:
        """Ask the guards in order until one closes the call."""
        for guard in guards:
            decision = self._ask("guard", guard, call)
            if decision is not None and decision.verdict is Verdict.ASK:
                # The time for asking has passed; a guard that wants it cannot let the call through.
                reason = decision.reason or f"{_name(guard)} asked for an approval"
                decision = Decision.deny(f"{reason} (a guard comes after the approval)")
            if decision is not None and decision.verdict is not Verdict.ALLOW:
                return decision
        return Decision.allow()

    def post(self, hook: PostHook, call: GateCall, result: ToolResult) -> str | None:
        """Run one post hook. A failing one is told of in its note: the result stands as it is."""
        answer = self._start(lambda: hook(call, result))
        if not answer.wait(self._timeout):
            return f"[post hook {_name(hook)} gave no answer within {self._timeout:g} s]"
        if answer.error is not None:
            return f"[post hook {_name(hook)} failed: {_bounded(describe(answer.error))}]"
        return answer.value if isinstance(answer.value, str) and answer.value else None

    def close(self) -> None:
        """Let the threads end."""
        self._threads.close()

    def _ask(self, role: str, fn: Gate | Guard, call: GateCall) -> Decision | None:
        return self._decide(role, fn, call, self._start(lambda: fn(call)))

    def _start(self, work: Callable[[], Any]) -> _Answer:
        answer = _Answer()
        try:
            self._threads.submit(lambda: answer.give(work))
        except RuntimeError as error:
            answer.fail(error)
        return answer

    def _decide(
        self, role: str, fn: Gate | Guard, call: GateCall, answer: _Answer
    ) -> Decision | None:
        where = f"{role} {_name(fn)}"
        if not answer.wait(self._timeout):
            return Decision.deny(f"{where} gave no answer within {self._timeout:g} s")
        if answer.error is not None:
            return Decision.deny(f"{where} failed: {describe(answer.error)}")
        if answer.value is None or isinstance(answer.value, Decision):
            return answer.value
        if inspect.iscoroutine(answer.value):
            answer.value.close()
            return Decision.deny(f"{where} is async; it runs on a thread, write it as a plain def")
        # Not `return True`: what is not clearly an answer must not open anything.
        return Decision.deny(f"{where} answered with {type(answer.value).__name__}, not a Decision")


class _Answer:
    """What a function on another thread said, once."""

    def __init__(self) -> None:
        self.value: Any = None
        self.error: BaseException | None = None
        self._given = threading.Event()
        self._late = False

    def give(self, work: Callable[[], Any]) -> None:
        if self._late:
            return  # already answered for by a denial
        try:
            self.value = work()
        except BaseException as error:  # P2: whatever a gate raises denies
            self.error = error
        self._given.set()

    def fail(self, error: BaseException) -> None:
        self.error = error
        self._given.set()

    def wait(self, timeout: float) -> bool:
        given = self._given.wait(timeout)
        self._late = not given
        return given


def _name(fn: Any) -> str:
    return getattr(fn, "__qualname__", None) or type(fn).__qualname__


def _bounded(text: Any) -> str:
    return shorten(jsontext.readable(str(text)), REASON_LIMIT)
