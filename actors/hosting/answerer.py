"""Asking the person at the terminal about an approval, while a table is on the screen."""

from __future__ import annotations

import os
import select
import sys
import threading
import time

from ..answering.request import ApprovalRequest
from .board import Board, plain
from .screen import Screen

#: How often (s) a waiting question looks whether it is still worth an answer.
LOOK = 0.2
#: Characters of the arguments that are shown.
SHOWN = 600


class Terminal:
    """Asks one question at a time. Called on threads of the runtime, which may wait for long."""

    def __init__(self, board: Board, screen: Screen) -> None:
        self._board, self._screen = board, screen
        self._turn = threading.Lock()
        self._closed = threading.Event()

    def close(self) -> None:
        """Answer nothing more; a question that is being asked is left unanswered (A3)."""
        self._closed.set()

    def __call__(self, request: ApprovalRequest) -> bool:
        """Return whether the call is allowed.

        :raises TimeoutError: nobody answered in time; then it is not allowed (A3).
        """
        deadline = time.monotonic() + request.remaining
        with self._turn, self._screen.paused():
            self._ask(request)
            while True:
                answer = self._line(deadline).strip().lower()
                if answer in ("y", "yes"):
                    return True
                if answer in ("n", "no"):
                    return False
                self._screen.say("Please answer y or n.")

    def _ask(self, request: ApprovalRequest) -> None:
        row = self._board.rows.get(request.session_id)
        raw = row.arguments.get(request.call_id, "") if row is not None else ""
        say = self._screen.say
        say(f"{request.session_id} asks: may {request.tool} run? ({request.call_id})", "bold")
        say(f"  why: {plain(request.reason, SHOWN)}")
        say(f"  arguments: {plain(raw, SHOWN)}")
        say("Allow this one call? [y/n]")

    def _line(self, deadline: float) -> str:
        # Not input(): a thread that waits in it could not be left behind when the program ends.
        descriptor = sys.stdin.fileno()
        while not self._closed.is_set() and time.monotonic() < deadline:
            ready, _, _ = select.select([descriptor], [], [], LOOK)
            if ready:
                data = os.read(descriptor, 4096)
                if not data:
                    break
                return data.decode("utf-8", "replace")
        raise TimeoutError("nobody answered on the terminal")
