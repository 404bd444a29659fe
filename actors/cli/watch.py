"""``approvals watch``: requests as they come, one key a decision."""

from __future__ import annotations

import os
import sys
import termios
import time
import tty
from collections.abc import Sequence
from pathlib import Path

import zmq

from ..answering.background import background
from ..answering.connection import Broker
from ..messages import ApprovalAsked, ApprovalGone
from .answerer import Brokers
from .output import clean, console, duration, one_line

#: Seconds between two looks for runtimes that started or ended.
RESCAN = 1.0
#: Seconds to wait for a call's arguments to be in the log (the write-behind window is 0.2).
ARGUMENTS = 1.0
KEYS = "[a]llow  [r]eject  [s]kip  [q]uit"


class Watch:
    """One watching terminal. Everything runs in the calling thread.

    :param sessions: patterns of the sessions to be asked about, ``tools`` of the tools; none: all.
    """

    def __init__(self, sessions: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        self._sessions, self._tools = sessions, tools
        self._out = console()
        self._waiting: list[tuple[Broker, ApprovalAsked]] = []
        self._shown: str | None = None
        self._seen: set[tuple[Path, str]] = set()

    def run(self) -> int:
        """Watch until ``q`` or Ctrl-C; the terminal is left as it was found."""
        keys = sys.stdin.fileno()
        before = termios.tcgetattr(keys)
        with Brokers() as brokers:
            try:
                tty.setcbreak(keys)
                for broker in brokers.all.values():
                    self._join(broker)
                running = len(brokers.all)
                self._out.print(f"Watching {running} runtimes. {KEYS}", style="dim")
                self._loop(brokers, keys)
            except KeyboardInterrupt:
                pass
            finally:
                termios.tcsetattr(keys, termios.TCSADRAIN, before)
                for broker in brokers.all.values():
                    broker.leave()
        return 0

    def _loop(self, brokers: Brokers, keys: int) -> None:
        rescan_at = time.monotonic() + RESCAN
        while True:
            poller = zmq.Poller()
            poller.register(keys, zmq.POLLIN)
            for broker in brokers.all.values():
                poller.register(broker.socket, zmq.POLLIN)
            ready = dict(poller.poll(max(0, int((rescan_at - time.monotonic()) * 1000))))
            for broker in brokers.all.values():
                if broker.socket in ready:
                    self._take(broker)
            if keys in ready:
                key = os.read(keys, 1).decode(errors="replace").lower()
                if key in ("q", "", "\x04"):
                    return
                self._key(key)
            if time.monotonic() >= rescan_at:
                rescan_at = time.monotonic() + RESCAN
                for broker in brokers.refresh():
                    self._join(broker)
                self._forget_ended(brokers)
            self._show_next()

    def _join(self, broker: Broker) -> None:
        broker.join(sessions=self._sessions, tools=self._tools)

    def _take(self, broker: Broker) -> None:
        for message in broker.received():
            if isinstance(message, ApprovalAsked):
                if (broker.path, message.request) not in self._seen:
                    self._seen.add((broker.path, message.request))
                    self._waiting.append((broker, message))
            elif isinstance(message, ApprovalGone):
                self._gone(message)

    def _gone(self, message: ApprovalGone) -> None:
        """Somebody or something settled it: there is nothing more to decide (A8)."""
        self._waiting = [pair for pair in self._waiting if pair[1].request != message.request]
        if self._shown == message.request:
            self._shown = None
            self._out.print(f"  settled elsewhere: {one_line(message.outcome)}", style="yellow")

    def _forget_ended(self, brokers: Brokers) -> None:
        alive = set(brokers.all.values())
        gone = [pair for pair in self._waiting if pair[0] not in alive]
        self._waiting = [pair for pair in self._waiting if pair[0] in alive]
        if any(asked.request == self._shown for _, asked in gone):
            self._shown = None
            self._out.print("  its runtime has ended, or its broker was replaced", style="yellow")

    def _show_next(self) -> None:
        if self._shown is not None or not self._waiting:
            return
        broker, asked = self._waiting[0]
        self._shown = asked.request
        self._out.print()
        self._out.print(one_line(asked.tool), style="bold", end=" ")
        self._out.print(
            f"{asked.request[:8]}, {duration(asked.remaining * 1000)} left", style="dim"
        )
        call = one_line(asked.call_id + asked.nested)
        self._out.print(f"  session {one_line(asked.session)}, call {call}")
        self._out.print(f"  {one_line(asked.reason)}")
        arguments = _arguments(broker, asked)
        self._out.print(f"  {clean(arguments)}", style="cyan")
        # A key that was pressed before this request could be read decides nothing.
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._out.print(f"  {KEYS}", style="dim")

    def _key(self, key: str) -> None:
        if self._shown is None or key not in ("a", "r", "s"):
            return
        broker, asked = self._waiting.pop(0)
        self._shown = None
        if key == "s":
            self._out.print("  skipped; it stays open", style="dim")
            return
        answer = "allow" if key == "a" else "reject"
        taken = broker.answer(asked, answer, "")
        self._take(broker)
        if taken is None:
            self._out.print("  the runtime did not confirm it", style="bold red")
        elif taken.taken:
            word, style = ("allowed once", "green") if key == "a" else ("rejected", "red")
            self._out.print(f"  {word}", style=style)
        else:
            self._out.print(f"  not settled by this: {one_line(taken.message)}", style="yellow")


def _arguments(broker: Broker, asked: ApprovalAsked) -> str:
    """The raw arguments from the log, waiting a moment for them to be durable."""
    deadline = time.monotonic() + ARGUMENTS
    while True:
        known = background(broker.info.root, asked)
        if known.arguments is not None:
            return known.arguments
        if time.monotonic() >= deadline or known.asked_at is not None:
            return "(the arguments are not in the log yet)"
        time.sleep(0.05)
