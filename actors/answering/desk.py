"""An answerer as a program of its own, over the socket, with the answerer's key (X4)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import msgspec
import zmq
from interlock.backends.codes import Code

from ..errors import ApprovalError
from ..messages import ApprovalAsked, ApprovalGone, Message
from ..runtime_dir import RuntimeInfo, running
from .background import background
from .connection import REPLY_LIMIT, Broker
from .request import ApprovalRequest

#: Seconds between two looks whether the broker was replaced.
LOOK = 0.5


class Taken(NamedTuple):
    """Whether an answer settled its request, and what the broker said to it (A8)."""

    settled: bool
    message: str


class Answering:
    """Decides requests of one running runtime of this user, from any process of this user.

    Life: :meth:`connect` joins the runtime's broker; requests that are open already come first.
    :meth:`next` waits for one, :meth:`allow` and :meth:`reject` answer it. Where the broker is
    replaced (F4) it joins the next one by itself: what the old one had open is settled then.
    :meth:`close`, or the end of the process, leaves open requests to others (A10). Used from one
    thread.

    >>> with Answering.connect(name="ops", tools=["deploy*"]) as desk:
    ...     for request in desk.requests():
    ...         print(request.tool, desk.arguments(request))
    ...         desk.allow(request, note="ticket 12")
    """

    def __init__(
        self, path: Path, name: str, sessions: Sequence[str], tools: Sequence[str]
    ) -> None:
        self._path, self._name = path, name
        self._sessions, self._tools = tuple(sessions), tuple(tools)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._broker: Broker | None = None
        #: Requests that are open, as far as this answerer was told, by id, oldest first.
        self._open: dict[str, ApprovalAsked] = {}
        self._requests: dict[str, ApprovalRequest] = {}
        self._fresh: list[str] = []

    @classmethod
    def connect(
        cls,
        directory: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        sessions: Sequence[str] = (),
        tools: Sequence[str] = (),
    ) -> Self:
        """Join the runtime whose ``directory`` that is (``runtime.directory``).

        :param directory: ``None``: the only runtime of this user that runs.
        :param name: who decides, for the log; the user's name unless given.
        :param sessions: patterns of the session ids to be asked about (``*``, ``?``); none: all.
        :param tools: the same for tools.
        :raises ApprovalError: ``APPROVAL_UNAVAILABLE``: there is no such runtime, or several.
        """
        path = _only_one() if directory is None else Path(directory).absolute()
        desk = cls(path, name, sessions, tools)
        desk._look()
        if desk._broker is None:
            desk.close()
            raise _unavailable(f"no runtime runs at {path}")
        return desk

    def next(self, timeout: float | None = None) -> ApprovalRequest | None:
        """Wait up to ``timeout`` s (``None``: for ever) for a request that is to be decided.

        Each request is returned once; ``None`` where none came in time.

        :raises ApprovalError: ``APPROVAL_UNAVAILABLE``: the runtime has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._take()
            while self._fresh:
                found = self._requests.get(self._fresh.pop(0))
                if found is not None:
                    return found
            left = LOOK if deadline is None else min(LOOK, deadline - time.monotonic())
            if left <= 0:
                return None
            if self._broker is None or not self._broker.socket.poll(int(left * 1000) + 1):
                self._look()
                if self._broker is None:
                    raise _unavailable(f"the runtime at {self._path} has ended")

    def requests(self, timeout: float | None = None) -> Iterator[ApprovalRequest]:
        """Yield requests as they come; ends when none came for ``timeout`` s."""
        while (request := self.next(timeout)) is not None:
            yield request

    def pending(self) -> list[ApprovalRequest]:
        """What is open now, as far as this answerer was told, oldest first; does not wait."""
        self._take()
        return list(self._requests.values())

    def arguments(self, request: ApprovalRequest) -> str | None:
        """The call's raw arguments from its log; ``None`` until they are durable (0.2 s)."""
        asked = self._open.get(request.request)
        if asked is None or self._broker is None:
            return None
        return background(self._broker.info.root, asked).arguments

    def allow(self, request: ApprovalRequest, note: str = "") -> Taken:
        """Allow the one call, once. See :meth:`reject`."""
        return self._answer(request, "allow", note)

    def reject(self, request: ApprovalRequest, note: str = "") -> Taken:
        """Reject the call; the note is what the model is told.

        :returns: whether that settled it; not so where somebody or the deadline was first.
        :raises ApprovalError: ``APPROVAL_UNAVAILABLE``: the broker did not confirm it; the log says
            what became of the call.
        """
        return self._answer(request, "reject", note)

    def failed(self, request: ApprovalRequest) -> Taken:
        """Say that this answerer cannot decide it; where nobody else can, it is unavailable
        (A3).
        """
        return self._answer(request, "failed", "")

    def close(self) -> None:
        """Leave; what is open stays open for others (A10)."""
        self._drop()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Inside.

    def _answer(self, request: ApprovalRequest, answer: str, note: str) -> Taken:
        asked = self._open.get(request.request)
        if asked is None or self._broker is None:
            return Taken(False, "it is not open any more")
        taken = self._broker.answer(asked, answer, note, self._name)
        self._take()
        if taken is None:
            self._look()
            raise _unavailable(
                f"the broker did not confirm the answer to {request.request} within "
                f"{REPLY_LIMIT:g} s"
            )
        if answer != "failed":
            self._forget(request.request)
        return Taken(taken.taken, taken.message)

    def _take(self) -> None:
        for message in self._broker.received() if self._broker is not None else ():
            self._heard(message)

    def _heard(self, message: Message) -> None:
        if isinstance(message, ApprovalAsked) and message.request not in self._open:
            self._open[message.request] = message
            self._requests[message.request] = ApprovalRequest.of(message)
            self._fresh.append(message.request)
        elif isinstance(message, ApprovalGone):
            self._forget(message.request)

    def _forget(self, request: str) -> None:
        self._open.pop(request, None)
        self._requests.pop(request, None)

    def _look(self) -> None:
        """Join the broker that lives now, where that is another one than before."""
        info = self._info()
        known = self._broker.info.broker if self._broker is not None else None
        if info is not None and known == info.broker:
            return
        self._drop()
        if info is None:
            return
        try:
            self._broker = Broker(self._context, self._path, info)
        except (OSError, msgspec.MsgspecError):
            return  # it ended just now
        self._broker.join(self._name, sessions=self._sessions, tools=self._tools)

    def _info(self) -> RuntimeInfo | None:
        return next((info for path, info in running() if path == self._path), None)

    def _drop(self) -> None:
        if self._broker is not None:
            self._broker.leave()
            self._broker.close()
            self._broker = None
        self._open.clear()
        self._requests.clear()


def _only_one() -> Path:
    found = [path for path, _ in running()]
    if len(found) != 1:
        which = ", ".join(map(str, found)) or "none"
        raise _unavailable(f"there is not one running runtime to answer for, but: {which}")
    return found[0]


def _unavailable(text: str) -> ApprovalError:
    return ApprovalError(Code.APPROVAL_UNAVAILABLE, text)
