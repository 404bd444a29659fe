"""The command line as an answerer: connections to the brokers of running runtimes (X1, X4)."""

from __future__ import annotations

import getpass
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import zmq
from interlock.backends.disk import OsDisk
from interlock.backends.errors import InterlockError
from interlock.backends.event import Event
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_events
from interlock.backends.source import find_log

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
from ..runtime_dir import RuntimeInfo, answerer_key, running
from ..wire import BadMessageError, decode, encode

#: Seconds to wait for a broker's reply: it only looks into its memory.
REPLY_LIMIT = 5.0


class Broker:
    """A connection to the approval broker of one runtime, with the answerer's key."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], path: Path, info: RuntimeInfo
    ) -> None:
        key = answerer_key(path)
        self.path, self.info = path, info
        self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        self.socket.linger = 200
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

    def answer(self, request: str, answer: str, note: str) -> AnswerTaken | None:
        """Answer one request; None where the broker does not reply."""
        rid = next(self._numbers)
        self.tell(AnswerApproval(rid, request, answer, user(), note))
        reply = self._reply(rid, time.monotonic() + REPLY_LIMIT)
        return reply if isinstance(reply, AnswerTaken) else None

    def tell(self, message: Message) -> None:
        """Send without waiting for anything."""
        self.socket.send(encode(message), zmq.NOBLOCK)

    def join(self) -> None:
        """Be sent every request from now on."""
        self.tell(BecomeAnswerer(next(self._numbers), user()))

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
                yield decode(payload, Role.BROKER)
            except BadMessageError:
                continue

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _reply(self, rid: int, deadline: float) -> Message | None:
        while (left := deadline - time.monotonic()) > 0:
            if self.socket.poll(int(left * 1000) + 1):
                for message in self._arrived():
                    if getattr(message, "rid", None) == rid:
                        return message
                    self._kept.append(message)
        return None


class Brokers:
    """The brokers of every runtime of this user that runs now. Use it as a context manager."""

    def __init__(self) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.all: dict[Path, Broker] = {}
        #: Runtimes whose broker does not listen where they said: ended with its host (F1), or lost.
        self.unreachable: list[RuntimeInfo] = []

    def open_requests(self) -> tuple[list[tuple[Broker, ApprovalAsked]], list[Broker]]:
        """Return every open request with its broker, and the brokers that did not answer.

        All are asked at once: one that is stuck costs its time once.
        """
        asked = [(broker, broker.ask_open()) for broker in self.all.values()]
        deadline = time.monotonic() + REPLY_LIMIT
        waiting, silent = [], []
        for broker, rid in asked:
            requests = broker.open_requests(rid, deadline)
            if requests is None:
                silent.append(broker)
            else:
                waiting += [(broker, request) for request in requests]
        return waiting, silent

    def refresh(self) -> list[Broker]:
        """Connect to runtimes that have started, drop those that have ended; the new ones."""
        found = {path: info for path, info in running() if _listens(info.broker)}
        self.unreachable = [info for path, info in running() if path not in found]
        for path in [path for path in self.all if path not in found]:
            self.all.pop(path).close()
        fresh = []
        for path, info in found.items():
            if path not in self.all:
                try:
                    broker = Broker(self._context, path, info)
                except (OSError, msgspec.MsgspecError):
                    continue  # it ended just now
                self.all[path] = broker
                fresh.append(broker)
        return fresh

    def __enter__(self) -> Self:
        self.refresh()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for broker in self.all.values():
            broker.close()
        self._context.term()


def _listens(endpoint: str) -> bool:
    """Whether somebody listens at an ``ipc`` endpoint; it is not spoken to."""
    path = endpoint.removeprefix("ipc://")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(REPLY_LIMIT)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # a full queue: somebody does, and is slow
        except OSError:
            return False
    return True


@dataclass(frozen=True)
class Background:
    """What the log says about a request: the call's raw arguments, and when it was asked (ms)."""

    arguments: str | None
    asked_at: int | None


def background(info: RuntimeInfo, asked: ApprovalAsked) -> Background:
    """Look a request up in its session's log (A6); what is not durable yet is None."""
    try:
        directory = JsonlBackend(Path(info.root)).find(asked.session)
        path = find_log(directory, OsDisk()) if directory is not None else None
        if path is None:
            return Background(None, None)
        return _from_log(read_events(path, max(0, asked.message_seq)), asked)
    except (OSError, InterlockError):
        return Background(None, None)


def _from_log(events: Iterator[Event], asked: ApprovalAsked) -> Background:
    arguments: str | None = None
    for event in events:
        if event.seq == asked.message_seq and event.type == "assistant/message":
            for block in event.data["message"]["content"]:
                if block.get("type") == "tool-call" and block.get("id") == asked.call_id:
                    # A nested call asks under its parent's id: then these are not its arguments.
                    arguments = block["arguments"] if block["name"] == asked.tool else None
        elif event.type == "approval/asked" and event.data["id"] == asked.request:
            return Background(arguments, event.time)
    return Background(arguments, None)


def user() -> str:
    """Return who answers, as the log will say it."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown user"
