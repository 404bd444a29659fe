"""The command line as an answerer: the brokers of every running runtime of this user (X1, X4)."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import zmq

from ..answering.connection import REPLY_LIMIT, Broker
from ..messages import ApprovalAsked
from ..runtime_dir import RuntimeInfo, running


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
        """Connect to runtimes that have started, drop those that have ended; the new ones.

        A runtime whose broker was replaced (F4) is connected to anew.
        """
        found = {path: info for path, info in running() if _listens(info.broker)}
        self.unreachable = [info for path, info in running() if path not in found]
        for path in [p for p, b in self.all.items() if not _is_at(b, found.get(p))]:
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


def _is_at(broker: Broker, info: RuntimeInfo | None) -> bool:
    return info is not None and info.broker == broker.info.broker


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
