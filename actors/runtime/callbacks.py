"""The host's own answerers: functions that decide requests, on threads of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from ..answering.request import ApprovalRequest
from ..answering.route import Route
from ..messages import AnswerApproval, ApprovalAsked, Message
from ..roles import Role
from ..tools.threads import Threads

#: Requests that each function thinks about at the same time; more wait, and their time runs.
THREADS = 64


class Callbacks:
    """Asks the functions. What each says goes to the broker, which takes the first (A2)."""

    def __init__(self, routes: Mapping[str, Route], tell: Callable[[Role, Message], None]) -> None:
        self._tell = tell
        # Threads of its own for each: one that blocks keeps no other from deciding.
        self._routes = {
            name: (route, Threads(f"interlock-answerer-{name}", THREADS))
            for name, route in routes.items()
        }
        self._numbers = count(1)
        self._lock = threading.Lock()
        self._open: set[str] = set()

    def asked(self, message: ApprovalAsked) -> None:
        """A request came (the host's thread)."""
        found = self._routes.get(message.answerer)
        if found is None:
            return
        route, threads = found
        request = ApprovalRequest.of(message)
        with self._lock:
            self._open.add(request.request)
        threads.submit(lambda: self._answer(message.answerer, route, request))

    def gone(self, request: str) -> None:
        """It was settled (the host's thread): who has not begun to think about it need not."""
        with self._lock:
            self._open.discard(request)

    def broker_lost(self) -> None:
        """F4: its requests are unavailable; nobody takes their answers any more."""
        with self._lock:
            self._open.clear()

    def close(self) -> None:
        """Let the threads end."""
        for _, threads in self._routes.values():
            threads.close()

    def _answer(self, name: str, route: Route, request: ApprovalRequest) -> None:
        with self._lock:
            if request.request not in self._open:
                return
        answer, note = _decision(route, request)
        rid = next(self._numbers)
        word = AnswerApproval(rid, request.request, answer, name, note, request.digest)
        self._tell(Role.BROKER, word)


def _decision(route: Route, request: ApprovalRequest) -> tuple[str, str]:
    """What the function says; whatever is not clearly an answer is none (A3)."""
    try:
        said: Any = route.answerer(request)
        if asyncio.iscoroutine(said):
            said = asyncio.run(said)
    except BaseException as error:
        return "failed", f"{type(error).__name__}: {error}"
    if said is True or said == "allow":
        return "allow", ""
    if said is False or said == "reject":
        return "reject", ""
    return "failed", f"the answerer returned {type(said).__name__}, not a decision"
