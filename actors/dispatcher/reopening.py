"""What the dispatcher does for a session that is opened again, before it is repaired.

First what it still holds for the log is recorded (F2), then what can be done about calls of unknown
outcome is done (R4).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError

from ..errors import ToolError
from ..fibers import first
from ..messages import (
    CallsResolved,
    DoubtfulCall,
    ResolveCalls,
    ResolvedCall,
    SessionSettled,
    SettleSession,
    UnansweredCall,
)
from ..owner import refusal
from ..port import Peer, PeerLostError, Port, ReplyTimeoutError
from ..roles import Role
from ..tools.identity import CallIdentity
from ..tools.spec import ToolSpec
from .call import CallRun
from .log import LogClient
from .resolving import Resolution, Resolving, can_be_resolved
from .step import StepRun


class Reopening:
    """Runs in the dispatcher's thread. ``steps`` are the core's, by session."""

    def __init__(
        self, port: Port, log: LogClient, steps: dict[str, StepRun], resolving: Resolving
    ) -> None:
        self._port, self._log, self._steps, self._resolving = port, log, steps, resolving
        #: Sessions whose doubtful calls are being resolved (R4).
        self.resolutions: dict[str, Resolution] = {}

    async def settle(self, peer: Peer, message: SettleSession) -> None:
        """Record what the log of a reopened session lacks and this dispatcher knows."""
        try:
            if peer.role is not Role.HOST:  # X4: only who has it open settles it
                await self._log.append(message.session, [], behalf=peer.key)
        except InterlockError as error:
            self._port.send(peer.identity, refusal(message.rid, error))
            return
        except (PeerLostError, ReplyTimeoutError):
            return  # the writer is gone, and the session with it
        resolution = self.resolutions.get(message.session)
        if resolution is not None:
            resolution.cancel_unreleased("its session was reopened")
            await first(resolution.results)
        step = self._steps.get(message.session)
        if step is not None:
            step.cancel_unreleased("its session was reopened")
            await first(step.results)  # what was released runs on to its end (F2)
            self._steps.pop(message.session, None)
        held = self._log.held.pop(message.session, {})
        recorded = []
        for call in message.unanswered:
            event = held.get((call.message_seq, call.call_id))
            if event is None or call.call_seq is None:
                continue
            cited = msgspec.structs.replace(event, sources=(call.call_seq,))
            try:
                await self._log.append(message.session, [cited], after=call.call_seq)
            except (InterlockError, PeerLostError, ReplyTimeoutError):
                self._keep(message.session, call, held)
                continue
            recorded.append(call.call_id)
        self._port.send(peer.identity, SessionSettled(message.rid, message.session, recorded))

    async def resolve(
        self, peer: Peer, message: ResolveCalls, specs: Mapping[str, ToolSpec], *, over: bool
    ) -> None:
        """R4: retry or reconcile what the tools' effects allow; the rest stays as it is."""
        try:
            reply = CallsResolved(
                message.rid, message.session, await self._resolved(peer, message, specs, over=over)
            )
        except InterlockError as error:
            self._port.send(peer.identity, refusal(message.rid, error))
        except (PeerLostError, ReplyTimeoutError):
            return  # the writer is gone, and the session with it
        else:
            self._port.send(peer.identity, reply)

    async def _resolved(
        self, peer: Peer, message: ResolveCalls, specs: Mapping[str, ToolSpec], *, over: bool
    ) -> list[ResolvedCall]:
        session = message.session
        if over:
            raise ToolError(
                Code.ABORTED_BEFORE_DISPATCH,
                f"the runtime is closing; no call of session {session!r} was looked into",
            )
        if peer.role is not Role.HOST:  # X4: only who has it open decides about its calls
            await self._log.append(session, [], behalf=peer.key)
        chosen = [
            call
            for call in message.calls
            if can_be_resolved(call, specs.get(call.name), message.how)
        ]
        if not chosen or session in self.resolutions:
            return []
        resolution = Resolution(
            self._resolving,
            message.how,
            message.calls[0].message_seq,
            peer.key,
            [_doubtful(peer, message, call, specs[call.name]) for call in chosen],
        )
        self.resolutions[session] = resolution
        try:
            return await resolution.results
        finally:
            del self.resolutions[session]

    def _keep(self, session: str, call: UnansweredCall, held: dict) -> None:  # type: ignore[type-arg]
        key = (call.message_seq, call.call_id)
        self._log.held.setdefault(session, {})[key] = held[key]


def _doubtful(peer: Peer, message: ResolveCalls, call: DoubtfulCall, spec: ToolSpec) -> CallRun:
    return CallRun(
        identity=CallIdentity(message.session, call.message_seq, call.call_id),
        created_at=message.created_at,
        workspace=message.workspace,
        turn=call.turn,
        step=call.step,
        name=call.name,
        arguments=call.arguments,
        requester=peer.identity,
        requester_key=peer.key,
        spec=spec,
        call_seq=call.call_seq,
        covers=call.call_seq,
        attempt=call.attempts,
        granted=call.granted,
        past=call.recorded,
    )
