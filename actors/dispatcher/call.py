"""One call while it lives in the dispatcher."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TypeVar

from interlock.backends.codes import Code
from interlock.backends.event import Draft

from ..fibers import Promise, first
from ..hooks.matching import Facts
from ..release import Checkpoint
from ..tools.command import Command
from ..tools.identity import CallIdentity, idempotency_key
from ..tools.outcome import Outcome
from ..tools.spec import ToolSpec

T = TypeVar("T")


class Ended(Exception):  # noqa: N818 - it ends the pipeline, it is no failure of the program
    """The call ends here, with this outcome; nothing further of the pipeline runs."""

    def __init__(self, code: Code, message: str, **meta: object) -> None:
        super().__init__(message)
        self.outcome = Outcome.failure(code, message, meta=meta or None)


@dataclass(eq=False)
class CallRun:
    """A call's identity, what is known of it so far, and how to cancel it."""

    identity: CallIdentity
    created_at: int
    workspace: str
    turn: int
    step: int
    name: str
    #: The raw argument string as the model wrote it, in UTF-8.
    arguments: bytes
    #: The connection that asked for the step; progress goes there.
    requester: bytes
    spec: ToolSpec | None
    #: The path of nested call numbers below the outermost call; empty for that itself (K5).
    sub_path: str = ""
    parent: CallRun | None = None
    depth: int = 0
    #: Whose key that connection proved: the session must be open for it (X4).
    requester_key: bytes = b""
    call_seq: int = -1
    #: The writer refused its ``tool/call``: it stands in no log.
    refused: bool = False
    #: The highest seq among this call's events: what a checkpoint must cover (K2).
    covers: int = -1
    #: The life of the writer that took in its record: another one's log may lack it (F2).
    writer: str = ""
    checkpoint: Checkpoint | None = None
    released: bool = False
    command: Command | None = None
    #: The sandbox mode in force for this call, and whether it was widened for it alone (S4).
    mode: str = ""
    widened_from: str | None = None
    approved_by: str | None = None
    approval_policy: str | None = None
    #: What the shipped gates were asked about, until they are told of its end.
    facts: Facts | None = None
    #: Bytes of its result that stand in the event, where a hook says so.
    inline_limit: int | None = None
    cancelled: Promise[str] = field(default_factory=Promise)
    asks: int = 0
    #: F3: what an earlier life of the dispatcher left of its approvals (R6).
    undecided: list[str] = field(default_factory=list)
    never_released: bool = False
    #: 1, and one more for each retry (R4).
    attempt: int = 1
    #: An earlier life of the call was granted what it asked for: the grant stands for a retry.
    granted: bool = False
    #: Its result stands in the log and says "unknown": nothing can be asked about it any more (A4).
    past: bool = False
    #: Whether the tool and the arguments were looked at, and what is wrong with them.
    checked: bool = False
    problem: Ended | None = None
    #: The arguments as the body gets them: JSON, also where the model sent an empty string.
    valid_arguments: bytes = b"{}"
    #: Events about what the body did, to be appended with its result.
    notices: list[Draft] = field(default_factory=list)

    @property
    def session(self) -> str:
        return self.identity.session_id

    @property
    def call_id(self) -> str:
        return self.identity.call_id

    @property
    def label(self) -> str:
        """How people are told which call is meant."""
        return f"call {self.shown_id!r} of {self.name} in session {self.session!r}"

    @property
    def shown_id(self) -> str:
        return self.call_id + self.sub_path

    @property
    def key(self) -> str:
        """I2: what to hand to outside systems; nested calls have keys of their own."""
        return idempotency_key(
            self.session, self.created_at, self.identity.message_seq, self.shown_id
        )

    def digest(self) -> str:
        """A9: what a grant is bound to: identity, tool and raw arguments."""
        digest = hashlib.sha256()
        parts = (
            self.session.encode("utf-8", "surrogatepass"),
            b"%d" % self.identity.message_seq,
            self.shown_id.encode("utf-8", "surrogatepass"),
            self.name.encode("utf-8", "surrogatepass"),
            self.arguments,
        )
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()

    def cancel(self, reason: str) -> None:
        self.cancelled.resolve(reason)

    def stop_if_cancelled(self) -> None:
        """K4: cancelled before its release, a call ends without a body."""
        if self.cancelled.done:
            raise Ended(
                Code.ABORTED_BEFORE_DISPATCH,
                f"The call was cancelled before it was started ({self.cancelled.result()}). "
                "Nothing of it ran.",
            )

    async def unless_cancelled(self, promise: Promise[T]) -> T:
        """Wait for ``promise``; a cancellation ends the call first, also when both are there."""
        await first(self.cancelled, promise)
        self.stop_if_cancelled()
        return promise.result()
