"""One session of a runtime: the logic under :class:`Session` and :class:`AsyncSession`.

The host keeps no copy of a log (design): what it needs to append is a handful of numbers,
everything else is read from the log, or asked of the writer for the moment between append and
write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, LogError, SessionError
from interlock.backends.event import Draft, Event, Replace, decode_line, draft
from interlock.backends.reading import read_events

from ..errors import RuntimeFailureError
from ..messages import (
    Append,
    Appended,
    CloseSession,
    Flush,
    Message,
    PendingEvents,
    ReadPending,
    SessionClosed,
    SessionOpened,
    WriteFailed,
)
from ..port import PeerLostError, ReplyTimeoutError
from ..roles import Role
from .connection import Connection
from .flow import Flow, in_thread

#: What :meth:`Session.append` takes; turns, steps and calls have objects of their own.
APPENDABLE = frozenset({"user/message", "system/message", "approval/policy", "sandbox/mode"})
#: Seconds an append may take: it is in memory, so this bounds only a stuck writer.
APPEND_TIMEOUT = 30.0


class SessionCore:
    """One open session; used from any one thread at a time."""

    def __init__(self, host: Connection, opened: SessionOpened, default_policy: str) -> None:
        self.host = host
        self.id = opened.session
        self.created_at = opened.created_at
        self.cwd = opened.cwd
        self.directory = Path(opened.directory)
        self.path = Path(opened.path)
        self.incarnation = opened.incarnation
        self.last_turn = opened.last_turn
        self.last_seq = opened.next_seq - 1
        self.durable_seq = opened.durable_seq
        self.approval_policy = opened.approval_policy
        self.sandbox_mode = opened.sandbox_mode
        self.turn_open = False
        #: What the model was last told about the approval policy (A7). A log that has changed it
        #: before may have been left before it was told: then it is told at the next step, again.
        self.told_policy: str = default_policy if opened.approval_policy is None else ""
        self._default_policy = default_policy
        self._ended: InterlockError | None = None
        self.on_end: Callable[[], object] = lambda: None
        #: Calls whose results were still held when the session was reopened (F2).
        self.settled: list[str] = []
        #: What became of doubtful calls when it was opened, by call id (R4).
        self.resolved: dict[str, str] = {}
        #: How many closing events the repair appended at open (R2).
        self.repaired_events = 0

    @property
    def policy_in_force(self) -> str:
        return self.approval_policy or self._default_policy

    # Being open.

    def check(self) -> None:
        """Raise why the session can no longer be used, if so."""
        if self._ended is not None:
            raise self._ended

    def end(self, error: InterlockError | None) -> None:
        """The session is closed: by its user (``None``) or by what went wrong."""
        if self._ended is None:
            self._ended = error or SessionError(
                Code.SESSION_CLOSED,
                f"session {self.id!r} is closed; open it again with runtime.open({self.id!r})",
                session=self.id,
            )
            self.on_end()

    def note_repair(self, reply: Appended) -> None:
        """R2: the open turn was completed."""
        if reply.first_seq >= 0:
            self.repaired_events = reply.last_seq - reply.first_seq + 1
        self._note(reply)

    def lost_writer(self) -> None:
        """F2: the writer has ended; what was acknowledged is in the log, the rest may be not."""
        self.end(
            SessionError(
                Code.SESSION_CLOSED,
                f"the log writer of session {self.id!r} has ended; everything up to event "
                f"{self.durable_seq} is durable. Open it again with runtime.open({self.id!r})",
                session=self.id,
                durable_seq=self.durable_seq,
            )
        )

    def write_failed(self, message: WriteFailed) -> None:
        if message.closed:
            self.end(SessionError(Code.SESSION_CLOSED, message.message, session=self.id))

    # Asking the writer.

    def ask(self, role: Role, build: Any, timeout: float = APPEND_TIMEOUT) -> Flow[Any]:
        """Ask an owner; its loss is told as what it means for this session."""
        self.check()
        try:
            reply = yield self.host.request(role, build, timeout)
        except PeerLostError as error:
            self.check()
            raise RuntimeFailureError(
                Code.ACTOR_LOST,
                f"the {error.role} ended while session {self.id!r} waited for it",
                session=self.id,
                role=str(error.role),
            ) from None
        except ReplyTimeoutError as error:
            raise RuntimeFailureError(
                Code.ACTOR_LOST,
                f"the {error.role} did not answer session {self.id!r} within {timeout:g} s; "
                "what was asked may still be done",
                session=self.id,
                role=str(error.role),
            ) from None
        return reply

    def append_drafts(self, drafts: Sequence[Draft], *, flush: bool = False) -> Flow[Appended]:
        """Append events, all or nothing; with ``flush`` return once they are durable."""
        appended = list(drafts)

        def build(rid: int) -> Message:
            return Append(rid, self.id, appended, -1, flush)

        reply: Appended = yield from self.ask(Role.WRITER, build)
        self._note(reply)
        return reply

    def flush(self) -> Flow[int]:
        """Make everything appended so far durable; the seq up to which the log is (L4)."""
        reply: Appended = yield from self.ask(Role.WRITER, lambda rid: Flush(rid, self.id))
        self._note(reply)
        return reply.durable_seq

    def _note(self, reply: Appended) -> None:
        self.last_seq = max(self.last_seq, reply.last_seq)
        self.durable_seq = max(self.durable_seq, reply.durable_seq)
        self.incarnation = reply.incarnation
        self.approval_policy = reply.approval_policy
        self.sandbox_mode = reply.sandbox_mode

    # The public verbs.

    def append(
        self,
        type: str,  # noqa: A002 - the log's own word
        data: dict[str, Any],
        *,
        ignorable: bool = False,
        surface_op: Literal["append"] | tuple[int, int] | None = None,
        sources: Iterable[int] | None = None,
        flush: bool = False,
    ) -> Flow[int]:
        """Append one event of the kinds that are the caller's to append; its ``seq``."""
        if type not in APPENDABLE and not type.startswith("request/") and not ignorable:
            raise LogError(
                Code.EVENT_INVALID,
                f"session {self.id!r}: {type!r} events are not appended by hand; turns, steps, "
                "calls and approvals have objects of their own, and other types need "
                "ignorable=True",
                session=self.id,
                type=type,
            )
        if surface_op is None and type in ("user/message", "system/message"):
            surface_op = "append"
        operation = Replace(*surface_op) if isinstance(surface_op, tuple) else surface_op
        try:
            made = draft(type, data, ignorable=ignorable, surface_op=operation, sources=sources)
        except ValueError as error:
            raise LogError(
                Code.EVENT_INVALID,
                f"session {self.id!r}: the payload of {type!r} is not JSON: {error}",
                session=self.id,
                type=type,
            ) from None
        reply: Appended = yield from self.append_drafts([made], flush=flush)
        return reply.first_seq

    def set_approval_policy(self, policy: str) -> Flow[int]:
        """A1: record the policy; it is in force for the very next request."""
        if policy not in ("ask", "never"):
            raise ValueError(f"the approval policy is 'ask' or 'never', not {policy!r}")
        seq: int = yield from self.append("approval/policy", {"policy": policy})
        return seq

    def set_sandbox_mode(self, mode: str) -> Flow[int]:
        """Record the sandbox mode for the commands that follow."""
        modes = ("read-only", "workspace-write", "danger-full-access")
        if mode not in modes:
            raise ValueError(f"the sandbox mode is one of {', '.join(modes)}, not {mode!r}")
        seq: int = yield from self.append("sandbox/mode", {"mode": mode})
        return seq

    def pending(self, from_seq: int) -> Flow[PendingEvents]:
        """Events that are appended and not yet in the file."""
        reply: PendingEvents = yield from self.ask(
            Role.WRITER, lambda rid: ReadPending(rid, self.id, from_seq)
        )
        return reply

    def events(self, from_seq: int = 0) -> Flow[list[Event]]:
        """All events from ``from_seq`` on, durable or not."""
        if self._ended is not None:
            stored: list[Event] = yield in_thread(lambda: list(self._stored(from_seq, None)))
            return stored
        pending: PendingEvents = yield from self.pending(from_seq)
        tail = [decode_line(line) for line in pending.lines]
        end = tail[0].seq if tail else pending.durable_seq + 1
        if from_seq >= end:
            return [event for event in tail if event.seq >= from_seq]
        head: list[Event] = yield in_thread(lambda: list(self._stored(from_seq, end)))
        return head + tail

    def _stored(self, from_seq: int, end_seq: int | None) -> Iterator[Event]:
        if not self.path.exists():
            return iter(())
        return read_events(self.path, from_seq, end_seq)

    def close(self, timeout: float = APPEND_TIMEOUT) -> Flow[int]:
        """Flush and let go of the session; the seq up to which it is durable (L16)."""
        if self._ended is not None:
            return self.durable_seq
        reply: SessionClosed = yield from self.ask(
            Role.WRITER, lambda rid: CloseSession(rid, self.id), timeout
        )
        self.durable_seq = reply.durable_seq
        self.end(None)
        return reply.durable_seq
