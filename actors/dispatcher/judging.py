"""The shipped gates, guards and hooks over the life of a call, and their memory in the log."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from interlock.backends.errors import InterlockError
from interlock.backends.event import Event, decode_line
from interlock.backends.reading import read_events

from ..fibers import Promise, spawn
from ..hooks.earlier import Earlier, earlier_calls
from ..hooks.judge import Judge
from ..hooks.matching import Facts
from ..messages import Judged, PendingEvents, ReadPending, RegisterTools
from ..port import PeerLostError, Port, ReplyTimeoutError
from ..roles import Role
from ..tools.gates import Decision
from .call import CallRun

#: Seconds that the writer may take to say what is not in the file yet.
READ_TIMEOUT = 30.0


class Judging:
    """Asks the pieces of one runtime. Runs in the dispatcher's thread, without any user code."""

    def __init__(self, port: Port) -> None:
        self._port = port
        self._judge = Judge()
        #: Sessions whose logs are being read.
        self._reading: dict[str, Promise[None]] = {}

    def use(self, message: RegisterTools) -> None:
        """Take the pieces that the host registers."""
        self._judge = Judge(message.gate_pieces, message.guard_pieces, message.hook_pieces)

    async def gates(self, call: CallRun) -> Judged:
        """What the gates say (P2). The first call of a session has its log read for them."""
        if not self._judge.judges:
            return Judged(0, "allow", "")
        if self._judge.needs_earlier(call.session):
            try:
                await call.unless_cancelled(self._earlier(call))
            except (InterlockError, PeerLostError, ReplyTimeoutError, OSError, ValueError) as error:
                return Judged(0, "deny", f"what counts could not be read from the log ({error})")
        call.facts = _facts(call)
        return _judged(self._judge.gates(call.facts, self._port.now()))

    def guards(self, call: CallRun) -> Judged:
        """What the guards say."""
        if call.facts is None:
            return Judged(0, "allow", "")
        return _judged(self._judge.guards(call.facts, self._port.now()))

    def ended(self, call: CallRun) -> None:
        """The call has ended, or will not begin."""
        if call.facts is not None:
            self._judge.ended(call.facts, released=call.released)
            call.facts = None

    def result_limit(self, tool: str) -> int | None:
        """Bytes beyond which a result of ``tool`` goes to a file."""
        return self._judge.result_limit(tool)

    # The log.

    def _earlier(self, call: CallRun) -> Promise[None]:
        """A promise that the session's earlier calls are counted, shared by all who wait for it."""
        promise = self._reading.get(call.session)
        if promise is None:
            promise = self._reading[call.session] = spawn(self._read(call)).result
            promise.then(lambda: self._forget(call.session))
        return promise

    def _forget(self, session: str) -> None:
        self._reading.pop(session, None)

    async def _read(self, call: CallRun) -> None:
        asked: Promise[PendingEvents] = self._port.ask(
            Role.WRITER, lambda rid: ReadPending(rid, call.session, 0), READ_TIMEOUT
        )
        pending = await asked
        before, message_seq, now = call.call_seq, call.identity.message_seq, self._port.wall_ms()

        def read() -> list[Earlier]:
            return earlier_calls(_events(pending), before, message_seq, now)

        calls: list[Earlier] = await self._port.work(read)
        self._judge.note(call.session, calls, self._port.now())


def _events(pending: PendingEvents) -> Iterator[Event]:
    """All events of a session: those in the file, and those that are only appended so far."""
    tail = [decode_line(line) for line in pending.lines]
    end = tail[0].seq if tail else pending.durable_seq + 1
    path = Path(pending.path)
    head = read_events(path, 0, end) if path.exists() else iter(())
    return chain(head, tail)


def _facts(call: CallRun) -> Facts:
    return Facts(
        call.session,
        call.turn,
        (call.identity.message_seq, call.shown_id),
        call.name,
        call.valid_arguments,
        call.command.argv if call.command is not None else None,
    )


def _judged(decision: Decision) -> Judged:
    return Judged(0, decision.verdict.name.lower(), decision.reason)
