"""The decisions of the approval broker: one request, one answer (A2).

A request is settled once, by whatever comes first: an answer, its deadline, its withdrawal, the
end of who asked, or the lack of anybody who could decide. What comes later changes nothing (A8),
and the same request again gets the same answer again, without being shown to anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.backends.codes import Code

from ..errors import ApprovalError
from ..fibers import Promise, resolved
from ..messages import (
    AnswerApproval,
    AnswererJoined,
    AnswerTaken,
    ApprovalAsked,
    ApprovalGone,
    ApprovalList,
    ApprovalSettled,
    AskApproval,
    BecomeAnswerer,
    LeaveAnswering,
    ListApprovals,
    Message,
    Stopped,
    WithdrawApproval,
)
from ..port import Peer, Port, Timer
from ..roles import Role
from ..tools import jsontext
from ..tools.outcome import shorten
from .answerers import MOST, Answerer, Answerers

#: What an answerer may say, and what it settles a request as.
ANSWERS = {"allow": "allowed-once", "reject": "rejected"}
#: Settled requests whose answer is remembered for a repeated question. A question is repeated by a
#: reconnecting or faulty link, so soon; this bounds the memory (some 400 bytes each).
REMEMBERED = 20_000
#: What the log and the model are given of an answerer's own words; characters.
NOTE_LIMIT = 2000
NAME_LIMIT = 200


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a request."""

    digest: str
    outcome: str
    by: str
    note: str


@dataclass(eq=False)
class Request:
    """An open request."""

    message: AskApproval
    asker: bytes
    asked_at: float
    deadline: float
    timer: Timer
    #: Answerers that broke while they had it (A3); they do not decide.
    failed: set[tuple[bytes, str]] = field(default_factory=set)


class BrokerCore:
    """Owns every open request of one runtime. All methods run in the broker's thread.

    :param waits: keep a request open until its deadline although nobody answers yet, for somebody
        who attaches later; otherwise it is unavailable at once (A3).
    """

    def __init__(self, port: Port, end: Callable[[], None], *, waits: bool) -> None:
        self._port, self._end, self._waits = port, end, waits
        self._open: dict[str, Request] = {}
        self._answerers = Answerers()
        self._done: dict[str, Settled] = {}
        self._outcomes: dict[str, int] = {}
        self._asked = self._repeated = self._late = self._refused = 0
        #: The connection of the dispatcher that lives, and whether it was heard before the end of
        #: its predecessor was (F3): connections have no order among each other.
        self._asker = b""
        self._succeeded = False

    # Core protocol.

    def receive(self, peer: Peer, message: Message) -> None:
        match message:
            case AskApproval():
                self._ask(peer, message)
            case AnswerApproval():
                self._answer(peer, message)
            case WithdrawApproval(request):
                self._withdraw(request)
            case BecomeAnswerer():
                self._join(peer, message)
            case LeaveAnswering(name):
                # A10: going away is no answer; requests stay open for others until their deadline.
                self._answerers.leave(peer.identity, name)
            case ListApprovals(rid):
                shown = [self._shown(request, "") for request in self._open.values()]
                self._port.send(peer.identity, ApprovalList(rid, shown))
            case _:
                raise ApprovalError(
                    Code.APPROVAL_UNAVAILABLE,
                    f"the broker has no use for {type(message).__name__}",
                )

    def told(self, role: Role, message: Message) -> None:
        """The broker asks nobody, so nothing can come this way."""

    def batch_done(self) -> None:
        """Nothing is put off."""

    def peer_lost(self, role: Role) -> None:
        """F3: what an ended dispatcher asked, nobody waits for: a later answer would be a lie."""
        if role is not Role.DISPATCHER:
            return
        if not self._succeeded:
            self._cancel_all()
            self._asker = b""
        self._succeeded = False

    def _cancel_all(self) -> None:
        for name in list(self._open):
            self._settle(name, "cancelled", "runtime", "the dispatcher that asked has ended")

    def host_lost(self) -> None:
        """F1: nothing is released any more, so there is nothing to ask for."""
        self._end()

    def client_gone(self, key: bytes) -> Promise[None]:
        """A client has nothing here."""
        return resolved(None)

    def shutdown(self, grace: float) -> Promise[Stopped]:
        for request in list(self._open):
            self._settle(request, "unavailable", "runtime", "the runtime is closing")
        return resolved(Stopped(0))

    def counters(self) -> dict[str, int]:
        """``oldest_open_s`` is how long (whole seconds) the oldest open request has waited."""
        now = self._port.now()
        oldest = next(iter(self._open.values()), None)
        return {f"settled_{name}": count for name, count in self._outcomes.items()} | {
            "asked_approvals": self._asked,
            "open_approvals": len(self._open),
            "oldest_open_s": int(now - oldest.asked_at) if oldest is not None else 0,
            "answerers": len(self._answerers),
            "late_answers": self._late,
            "refused_answers": self._refused,
            "repeated_requests": self._repeated,
        }

    # Answerers.

    def _join(self, peer: Peer, message: BecomeAnswerer) -> None:
        """From now on, and for what is open already."""
        one = self._answerers.join(peer.identity, message)
        if one is None:
            raise ApprovalError(
                Code.APPROVAL_UNAVAILABLE, f"a connection has at most {MOST} answerers"
            )
        self._port.send(peer.identity, AnswererJoined(message.rid))
        for request in self._open.values():
            if one.takes(request.message):
                self._show(one, request)

    def _show(self, one: Answerer, request: Request) -> bool:
        shown = self._port.send(one.identity, self._shown(request, one.name))
        if not shown:
            self._answerers.leave(one.identity)
        return shown

    # Requests.

    def _ask(self, peer: Peer, message: AskApproval) -> None:
        name = message.request
        done = self._done.get(name)
        if name in self._open or done is not None:
            # The same question again: it is open already, or it gets the answer that it had.
            self._repeated += 1
            if done is not None:
                self._tell_asker(peer.identity, message.rid, name, done)
            return
        if peer.identity != self._asker:
            if self._asker:
                self._cancel_all()
                self._succeeded = True
            self._asker = peer.identity
        self._asked += 1
        now = self._port.now()
        deadline = now + message.timeout
        timer = self._port.at(deadline, lambda: self._expire(name))
        request = Request(message, peer.identity, now, deadline, timer)
        self._open[name] = request
        for one in self._answerers.taking(message):
            self._show(one, request)
        self._settle_if_nobody(name)

    def _withdraw(self, name: str) -> None:
        if name in self._open:
            self._settle(name, "cancelled", "caller", "the call was cancelled")
        elif name not in self._done:
            # The question that it takes back is still on its way, and must not be shown then.
            self._remember(name, Settled("", "cancelled", "caller", "the call was cancelled"))

    def _settle_if_nobody(self, name: str) -> None:
        request = self._open[name]
        if self._waits:
            return
        able = self._answerers.taking(request.message)
        if any((one.identity, one.name) not in request.failed for one in able):
            return
        why = "the answerer failed" if request.failed else "no answerer is connected"
        if not request.failed and len(self._answerers):
            why = "no connected answerer takes requests of this session and tool"
        self._settle(name, "unavailable", "runtime", why)

    def _expire(self, name: str) -> None:
        request = self._open.get(name)
        if request is not None:
            waited = f"nobody answered within {request.message.timeout:g} s"
            self._settle(name, "unavailable", "runtime", waited)

    # Answers.

    def _answer(self, peer: Peer, message: AnswerApproval) -> None:
        name = message.request
        request = self._open.get(name)
        if request is not None and self._port.now() >= request.deadline:
            self._expire(name)  # its time is up, also where the timer has not run yet
            request = None
        if request is None:
            self._late += 1
            self._reply(peer, message, f"no request {name!r} is open; it may have been settled "
                        "already")  # fmt: skip
            return
        problem = self._problem(peer, message, request)
        if problem:
            self._refused += 1
            self._reply(peer, message, problem)
        elif message.answer == "failed":
            request.failed |= self._answerers.named(peer.identity, message.by)
            self._reply(peer, message, "")
            self._settle_if_nobody(name)
        else:
            self._reply(peer, message, "")
            by = f"{peer.role}:{_one_line(message.by)}"
            note = shorten(jsontext.readable(message.note), NOTE_LIMIT)
            self._settle(name, ANSWERS[message.answer], by, note)

    def _problem(self, peer: Peer, message: AnswerApproval, request: Request) -> str:
        """Why an answer to an open request changes nothing; empty where it counts."""
        if message.digest and message.digest != request.message.digest:  # A9
            return "the answer is for something else than what the request shows"
        if not self._answerers.may_answer(peer.identity, request.message):
            return "this answerer takes no requests of that session and tool"
        if message.answer == "failed":
            if not self._answerers.named(peer.identity, message.by):
                return "an answerer that has not joined was not asked, and cannot fail"
            return ""
        if message.answer not in ANSWERS:
            return f"{message.answer!r} is no answer; use one of {', '.join(ANSWERS)}"
        return ""

    def _reply(self, peer: Peer, message: AnswerApproval, problem: str) -> None:
        said = problem or ANSWERS.get(message.answer, "noted")
        word = AnswerTaken(message.rid, message.request, not problem, said)
        self._port.send(peer.identity, word)

    # Settling.

    def _settle(self, name: str, outcome: str, by: str, note: str) -> None:
        request = self._open.pop(name)
        request.timer.cancel()
        self._outcomes[outcome] = self._outcomes.get(outcome, 0) + 1
        message = request.message
        settled = Settled(message.digest, outcome, by, note)
        self._remember(name, settled)
        self._tell_asker(request.asker, message.rid, name, settled)
        for identity in self._answerers.connections():
            if self._answerers.may_answer(identity, message):
                self._port.send(identity, ApprovalGone(name, outcome))

    def _remember(self, name: str, settled: Settled) -> None:
        self._done[name] = settled
        if len(self._done) > REMEMBERED:
            del self._done[next(iter(self._done))]

    def _tell_asker(self, asker: bytes, rid: int, name: str, settled: Settled) -> None:
        word = ApprovalSettled(rid, name, settled.digest, settled.outcome, settled.by, settled.note)
        self._port.send(asker, word)

    def _shown(self, request: Request, answerer: str) -> ApprovalAsked:
        message = request.message
        return ApprovalAsked(
            message.request,
            message.session,
            message.message_seq,
            message.call_id,
            message.tool,
            message.reason,
            message.digest,
            max(0.0, request.deadline - self._port.now()),
            message.nested,
            message.widening,
            answerer,
        )


def _one_line(name: str) -> str:
    """Who answered, as the log says it: an answerer's own word for itself."""
    words = " ".join(jsontext.readable(name[:NAME_LIMIT]).split())
    return words or "unnamed"
