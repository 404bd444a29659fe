"""The link of an answerer to the broker of one running runtime (X1, X4)."""

from __future__ import annotations

import getpass
import time
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import zmq

from ..keys import KeyPair, guard_client
from ..messages import (
    AnswerApproval,
    AnswerTaken,
    ApprovalAsked,
    ApprovalList,
    BecomeAnswerer,
    LeaveAnswering,
    ListApprovals,
    Message,
)
from ..roles import Role
from ..runtime_dir import RuntimeInfo, answerer_key
from ..wire import BadMessageError, decode_all, encode

#: Seconds to wait for a broker's reply: it only looks into its memory.
REPLY_LIMIT = 5.0


class Broker:
    """A connection to the approval broker of one runtime, with the answerer's key.

    Used from one thread. A broker that was replaced listens elsewhere: what ``runtime_dir`` says
    then differs from :attr:`info`, and a new connection is needed.
    """

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], path: Path, info: RuntimeInfo
    ) -> None:
        key = answerer_key(path)
        self.path, self.info = path, info
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.linger = 200
        self.socket.rcvhwm = 0
        pair = KeyPair(key.public.encode(), key.secret.encode())
        guard_client(self.socket, pair, info.broker_public.encode())
        self.socket.connect(info.broker)
        self._numbers = count(1)
        self._kept: list[Message] = []

    def ask_open(self) -> int:
        """Ask what waits for a decision; the number that :meth:`open_requests` takes."""
        rid = next(self._numbers)
        self.tell(ListApprovals(rid))
        return rid

    def open_requests(self, rid: int, deadline: float) -> list[ApprovalAsked] | None:
        """Return what waits, oldest first; None where the broker has not answered by then."""
        reply = self._reply(rid, deadline)
        return list(reply.requests) if isinstance(reply, ApprovalList) else None

    def answer(
        self, asked: ApprovalAsked, answer: str, note: str, by: str = ""
    ) -> AnswerTaken | None:
        """Answer what was shown; None where the broker does not reply."""
        rid = next(self._numbers)
        self.tell(AnswerApproval(rid, asked.request, answer, by or user(), note, asked.digest))
        reply = self._reply(rid, time.monotonic() + REPLY_LIMIT)
        return reply if isinstance(reply, AnswerTaken) else None

    def tell(self, message: Message) -> None:
        """Send without waiting for anything."""
        self.socket.send(encode(message), zmq.NOBLOCK)

    def join(
        self, name: str = "", *, sessions: Sequence[str] = (), tools: Sequence[str] = ()
    ) -> None:
        """Be sent every request of these sessions and tools from now on, and what is open."""
        rid = next(self._numbers)
        self.tell(BecomeAnswerer(rid, name or user(), list(sessions), list(tools)))

    def leave(self) -> None:
        """Be sent no more; what is open stays open for others (A10)."""
        self.tell(LeaveAnswering())

    def received(self) -> Iterator[Message]:
        """Yield what has arrived, without waiting; also what came while a reply was awaited."""
        kept, self._kept = self._kept, []
        yield from kept
        yield from self._arrived()

    def _arrived(self) -> Iterator[Message]:
        while True:
            try:
                payload = self.socket.recv(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                yield from decode_all(payload, Role.BROKER)
            except BadMessageError:
                continue

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _reply(self, rid: int, deadline: float) -> Message | None:
        while (left := deadline - time.monotonic()) > 0:
            if self.socket.poll(int(left * 1000) + 1):
                found = None
                for message in self._arrived():
                    if getattr(message, "rid", None) == rid:
                        found = message
                    else:
                        self._kept.append(message)
                if found is not None:
                    return found
        return None


def user() -> str:
    """Return who answers, as the log will say it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown user"
