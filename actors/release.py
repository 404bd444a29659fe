"""The rule: a release can only be built from a durable acknowledgement (K2).

:class:`Checkpoint` is the writer's word that a prefix of a log survives power loss. It is made
from an
:class:`~interlock.actors.messages.Appended` message and from nothing else. :func:`release` and
:func:`launch` take one as their first argument, and they are the only places in the code base that
build what a body starts from; a test reads the source to keep it so.
"""

from __future__ import annotations

from typing import NamedTuple

from interlock.backends.codes import Code

from .errors import ToolError
from .messages import Appended, Launch, Release
from .tools.command import Command
from .tools.identity import CallIdentity


class Checkpoint:
    """An acknowledged durable prefix of one session's log, by one life of the writer."""

    __slots__ = ("durable_seq", "incarnation", "session")

    def __init__(self, acknowledgement: Appended) -> None:
        if not isinstance(acknowledgement, Appended):
            raise TypeError("a checkpoint is made from the writer's acknowledgement only")
        self.session = acknowledgement.session
        self.durable_seq = acknowledgement.durable_seq
        self.incarnation = acknowledgement.incarnation

    def check(self, call: CallIdentity, covers: int, incarnation: str) -> None:
        """Raise ``CHECKPOINT_FAILED`` unless this covers all that ``call`` has in the log (K2, K6).

        :param covers: the highest ``seq`` among the call's events so far.
        :param incarnation: the life of the writer that owns the session now.
        """
        if self.session != call.session_id:
            problem = f"it is for session {self.session!r}"
        elif self.incarnation != incarnation:
            problem = "the log writer was replaced since"
        elif self.durable_seq < covers:
            problem = f"it reaches event {self.durable_seq}, the call's last is {covers}"
        else:
            return
        raise ToolError(
            Code.CHECKPOINT_FAILED,
            f"call {call.call_id!r} of session {call.session_id!r} was not released: the "
            f"checkpoint does not hold for it ({problem})",
        )


class ReleaseTerms(NamedTuple):
    """What a release says besides what to run."""

    identity: CallIdentity
    number: int
    idempotency_key: str
    timeout: float
    covers: int
    incarnation: str
    workspace: str
    dispatcher: str = ""
    attempt: int = 1


def release(
    checkpoint: Checkpoint, terms: ReleaseTerms, tool: str, arguments: bytes, token: str
) -> Release:
    """Build the message that lets a worker or the host run a body, once."""
    checkpoint.check(terms.identity, terms.covers, terms.incarnation)
    return Release(
        number=terms.number,
        session=terms.identity.session_id,
        message_seq=terms.identity.message_seq,
        call_id=terms.identity.call_id,
        tool=tool,
        arguments=arguments,
        idempotency_key=terms.idempotency_key,
        timeout=terms.timeout,
        incarnation=checkpoint.incarnation,
        checkpoint_seq=checkpoint.durable_seq,
        token=token,
        workspace=terms.workspace,
        attempt=terms.attempt,
    )


def launch(checkpoint: Checkpoint, terms: ReleaseTerms, command: Command, mode: str) -> Launch:
    """Build the message that lets the launcher run a confined command, once."""
    checkpoint.check(terms.identity, terms.covers, terms.incarnation)
    return Launch(
        number=terms.number,
        session=terms.identity.session_id,
        message_seq=terms.identity.message_seq,
        call_id=terms.identity.call_id,
        command=command,
        mode=mode,
        workspace=terms.workspace,
        idempotency_key=terms.idempotency_key,
        timeout=terms.timeout,
        incarnation=checkpoint.incarnation,
        checkpoint_seq=checkpoint.durable_seq,
        dispatcher=terms.dispatcher,
    )
