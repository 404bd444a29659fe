"""The calls of one assistant message: their order, their groups (P3), their results."""

from __future__ import annotations

from itertools import groupby

from interlock.backends.errors import InterlockError

from ..fibers import Fiber, Promise, gather, spawn
from ..messages import WireResult
from .call import CallRun
from .log import LogClient, call_event
from .pipeline import Pipeline, Slots

#: P3: calls that overlap share this much room.
POOL = 10


class StepRun:
    """One step's calls under way. ``results`` is a promise of their results in model order."""

    def __init__(
        self, log: LogClient, pipeline: Pipeline, message_seq: int, calls: list[CallRun]
    ) -> None:
        self._log, self._pipeline = log, pipeline
        self.message_seq = message_seq
        #: Whose calls they are: the key of the connection that asked for them.
        self.requester_key = calls[0].requester_key if calls else b""
        self.calls = calls
        self.results: Promise[list[WireResult]] = spawn(self._run()).result

    def cancel(self, call_ids: list[str] | None, reason: str) -> None:
        """P4: cancel the named calls, or all. Those not yet started still get their record."""
        for call in self.calls:
            if call_ids is None or call.call_id in call_ids:
                call.cancel(reason)

    def cancel_unreleased(self, reason: str) -> None:
        """Let what was released run on, and start nothing more."""
        for call in self.calls:
            if not call.released:
                call.cancel(reason)

    async def _run(self) -> list[WireResult]:
        fibers: list[Fiber[WireResult]] = []
        for parallel, group in groupby(self.calls, key=_overlaps):
            calls = list(group)
            if parallel:
                fibers += await self._overlapping(calls)
            else:
                for call in calls:  # a barrier: alone, after everything before it
                    [fiber] = self._start([call], Slots(1))
                    fibers.append(fiber)
                    await _ended(fiber)
        return await gather(fibers)

    async def _overlapping(self, calls: list[CallRun]) -> list[Fiber[WireResult]]:
        """Start the calls in order as room becomes free; those that start together share one
        append.
        """
        slots = Slots(POOL)
        fibers: list[Fiber[WireResult]] = []
        rest = list(calls)
        while rest:
            await slots.enter(rest[0])
            batch = [rest.pop(0)]
            while rest and slots.free:
                slots.enter(rest[0])
                batch.append(rest.pop(0))
            fibers += self._start(batch, slots)
        for fiber in fibers:
            await _ended(fiber)
        return fibers

    def _start(self, calls: list[CallRun], slots: Slots) -> list[Fiber[WireResult]]:
        """Append the ``tool/call`` of each; with nothing in between, their checkpoint as well."""
        if calls[0].call_seq >= 0:
            return [spawn(self._pipeline.lost(call, slots)) for call in calls]
        plain = all(self._pipeline.is_plain(call) for call in calls)
        appended = self._log.append(
            calls[0].session,
            [call_event(call) for call in calls],
            after=self.message_seq,
            flush=plain,
            behalf=calls[0].requester_key,
        )
        return [
            spawn(self._pipeline.live(call, appended, index, plain=plain, slots=slots))
            for index, call in enumerate(calls)
        ]


def _overlaps(call: CallRun) -> bool:
    return call.spec is not None and call.spec.parallel and call.call_seq < 0


async def _ended(fiber: Fiber[WireResult]) -> None:
    """Wait for a call's end; its error, if any, is the step's, reported by ``gather``."""
    try:
        await fiber.result
    except InterlockError:
        return
