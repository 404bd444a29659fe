"""The decisions of the approval broker: one request, one answer (A2).

A request is settled once, by whatever comes first: an answer, its deadline, its withdrawal, or the
lack of anybody who could decide. What comes later changes nothing (A8).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from interlock.backends.codes import Code

from ..errors import ApprovalError
from ..fibers import Promise
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

#: What an answerer may say, and what it settles a request as.
ANSWERS = {"allow": "allowed-once", "reject": "rejected"}


@dataclass(eq=False)
class Request:
    """An open request."""

    message: AskApproval
    asker: bytes
    deadline: float
    timer: Timer
    #: Answerers that broke while they had it (A3); they do not decide.
    failed: set[bytes] = field(default_factory=set)


class BrokerCore:
    """Owns every open request of one runtime. All methods run in the broker's thread.

    :param waits: keep a request open until its deadline although nobody answers yet, for somebody
        who attaches later; otherwise it is unavailable at once (A3).
    """

    def __init__(self, port: Port, end: Callable[[], None], *, waits: bool) -> None:
        self._port, self._end, self._waits = port, end, waits
        self._open: dict[str, Request] = {}
        self._answerers: dict[bytes, str] = {}
        self._settled: dict[str, int] = {}
        self._late = 0

    # Core protocol.

    def receive(self, peer: Peer, message: Message) -> None:
        match message:
            case AskApproval():
                self._ask(peer, message)
            case AnswerApproval():
                self._answer(peer, message)
            case WithdrawApproval(request):
                if request in self._open:
                    self._settle(request, "cancelled", "caller", "the call was cancelled")
            case BecomeAnswerer(rid, name):
                self._join(peer, rid, name)
            case LeaveAnswering():
                self._leave(peer.identity)
            case ListApprovals(rid):
                shown = [self._shown(request) for request in self._open.values()]
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
        """The broker depends on nobody."""

    def host_lost(self) -> None:
        """F1: nothing is released any more, so there is nothing to ask for."""
        self._end()

    def client_gone(self, key: bytes) -> Promise[None]:
        """A client has nothing here."""
        settled: Promise[None] = Promise()
        settled.resolve(None)
        return settled

    def shutdown(self, grace: float) -> Promise[Stopped]:
        for request in list(self._open):
            self._settle(request, "unavailable", "runtime", "the runtime is closing")
        settled: Promise[Stopped] = Promise()
        settled.resolve(Stopped(0))
        return settled

    def counters(self) -> dict[str, int]:
        outcomes = {f"settled_{name}": count for name, count in self._settled.items()}
        return outcomes | {
            "open_approvals": len(self._open),
            "answerers": len(self._answerers),
            "late_answers": self._late,
        }

    # Answerers.

    def _join(self, peer: Peer, rid: int, name: str) -> None:
        """From now on, and for what is open already."""
        self._answerers[peer.identity] = name
        self._port.send(peer.identity, AnswererJoined(rid))
        for request in self._open.values():
            self._port.send(peer.identity, self._shown(request))

    def _leave(self, identity: bytes) -> None:
        """A10: going away is no answer; requests stay open for others until their deadline."""
        self._answerers.pop(identity, None)

    # Requests.

    def _ask(self, peer: Peer, message: AskApproval) -> None:
        if message.request in self._open:
            return  # the same message again: its request is open already
        deadline = self._port.now() + message.timeout
        timer = self._port.at(deadline, lambda: self._expire(message.request))
        request = Request(message, peer.identity, deadline, timer)
        self._open[message.request] = request
        for identity in list(self._answerers):
            if not self._port.send(identity, self._shown(request)):
                self._leave(identity)
        self._settle_if_nobody(message.request)

    def _settle_if_nobody(self, name: str) -> None:
        request = self._open[name]
        if self._waits or self._answerers.keys() - request.failed:
            return
        why = "the answerer failed" if request.failed else "no answerer is connected"
        self._settle(name, "unavailable", "runtime", why)

    def _expire(self, name: str) -> None:
        request = self._open.get(name)
        if request is not None:
            waited = f"nobody answered within {request.message.timeout:g} s"
            self._settle(name, "unavailable", "runtime", waited)

    def _answer(self, peer: Peer, message: AnswerApproval) -> None:
        request = self._open.get(message.request)
        if request is None:
            self._late += 1
            problem = f"no request {message.request!r} is open; it may have been settled already"
            self._port.send(
                peer.identity, AnswerTaken(message.rid, message.request, False, problem)
            )
            return
        if message.answer == "failed":
            request.failed.add(peer.identity)
            self._port.send(peer.identity, AnswerTaken(message.rid, message.request, True, "noted"))
            self._settle_if_nobody(message.request)
            return
        outcome = ANSWERS.get(message.answer)
        if outcome is None:
            problem = f"{message.answer!r} is no answer; use one of {', '.join(ANSWERS)}"
            self._port.send(
                peer.identity, AnswerTaken(message.rid, message.request, False, problem)
            )
            return
        self._port.send(peer.identity, AnswerTaken(message.rid, message.request, True, outcome))
        self._settle(message.request, outcome, f"{peer.role}:{message.by}", message.note)

    def _settle(self, name: str, outcome: str, by: str, note: str) -> None:
        request = self._open.pop(name)
        request.timer.cancel()
        self._settled[outcome] = self._settled.get(outcome, 0) + 1
        message = request.message
        self._port.send(
            request.asker, ApprovalSettled(message.rid, name, message.digest, outcome, by, note)
        )
        for identity in list(self._answerers):
            self._port.send(identity, ApprovalGone(name, outcome))

    def _shown(self, request: Request) -> ApprovalAsked:
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
        )
