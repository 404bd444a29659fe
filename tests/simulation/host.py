"""The embedding process: agents that do what the runtime's own flows do, message by message."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from interlock.actors.errors import error_for
from interlock.actors.fibers import Promise, spawn
from interlock.actors.messages import (
    Append,
    Appended,
    CancelCalls,
    CloseSession,
    CreateSession,
    ExecuteStep,
    Flush,
    Message,
    OpenSession,
    PendingEvents,
    ReadPending,
    Refused,
    RepairSession,
    ResolveCalls,
    SessionOpened,
    SessionState,
    SettleSession,
    StepExecuted,
    WireCall,
)
from interlock.actors.port import PeerLostError, ReplyTimeoutError
from interlock.actors.roles import Role
from interlock.actors.runtime.turn import approvals_of
from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError
from interlock.backends.event import Draft, decode_line
from log_words import approval_policy, message, step_end, step_start, turn_end, turn_start, user
from virtual import VirtualPeer

from .outside import Bodies

if TYPE_CHECKING:
    from .world import World

TURNS = 2
TOOL_NAMES = ("act", "look", "look", "again", "ask", "ask-look", "pay", "here", "run", "outer")
LOST = (PeerLostError, ReplyTimeoutError)


class ReopenError(Exception):
    """The session is no longer open here, or it is not known how it stands."""


class Host:
    """One life of the embedding process."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.peer = VirtualPeer(world.network, name, Role.HOST)
        self.peer.react = self._hear
        self.bodies = Bodies(world, self.peer)
        self.alive = True
        self._asked: dict[int, tuple[Role, Promise[Any]]] = {}
        self._waiting: dict[Role, list[Promise[None]]] = {}
        self._rid = 0

    def begin(self, name: str) -> None:
        """An agent begins or goes on."""
        spawn(Agent(self, name).live()).result.then(lambda: None)

    def ask(self, role: Role, build: Callable[[int], Message], timeout: float) -> Promise[Any]:
        """Ask an owner, as a connection does."""
        self._rid += 1
        rid, promise = self._rid, Promise[Any]()
        if role not in self.world.network.owners:
            promise.fail(PeerLostError(role))
            return promise
        self._asked[rid] = role, promise

        def late() -> None:
            if self._asked.pop(rid, None) is not None and self.alive:
                promise.fail(ReplyTimeoutError(role, timeout))

        self.world.after(timeout, late)
        self.peer.say(role, build(rid))
        return promise

    def until(self, role: Role) -> Promise[None]:
        """Until an owner lives (again)."""
        promise: Promise[None] = Promise()
        if role in self.world.network.owners:
            promise.resolve(None)
        else:
            self._waiting.setdefault(role, []).append(promise)
        return promise

    def rest(self, seconds: float) -> Promise[None]:
        """Let time pass."""
        promise: Promise[None] = Promise()
        self.world.after(seconds, lambda: promise.resolve(None) if self.alive else None)
        return promise

    def lost(self, role: Role) -> None:
        """An owner has ended."""
        if role is Role.DISPATCHER:
            passed = self.bodies.passed
            self.bodies.die()
            self.bodies = Bodies(self.world, self.peer)
            self.bodies.passed = passed  # K6: numbers grow from one dispatcher to the next
        for rid, (whom, promise) in list(self._asked.items()):
            if whom is role:
                del self._asked[rid]
                self.world.network.later(None, lambda p=promise: p.fail(PeerLostError(role)))

    def is_back(self, role: Role) -> None:
        """An owner lives again."""
        for promise in self._waiting.pop(role, ()):
            self.world.network.later(None, lambda p=promise: p.resolve(None))

    def die(self) -> None:
        """The process ends: nothing in it goes on."""
        self.alive = False
        self.bodies.die()
        self._asked.clear()
        self._waiting.clear()
        self.peer.leave()

    def _hear(self, received: Message) -> None:
        if not self.alive or self.bodies.take(received):
            return
        found = self._asked.pop(getattr(received, "rid", -1), None)
        if found is None:
            return
        if isinstance(received, Refused):
            found[1].fail(error_for(received.code, received.message, **received.details))
        else:
            found[1].resolve(received)


class Agent:
    """One session, turn after turn."""

    def __init__(self, host: Host, name: str) -> None:
        self.host, self.world, self.name = host, host.world, name
        self.turns = 0

    async def live(self) -> None:
        """Until all turns are in the log and durable."""
        for _ in range(60):
            try:
                await self._work(await self._open())
            except ReopenError:
                await self.host.rest(0.5)
                continue
            except Exception as error:
                self.world.wrong(f"agent {self.name}: {type(error).__name__}: {error}")
            break
        else:
            self.world.wrong(f"agent {self.name} gets nowhere")
        self.world.network.note(f"agent {self.name} is done")
        self.world.finished.add(self.name)

    # Opening.

    async def _open(self) -> SessionOpened:
        draw = self.world.draw
        await self.host.until(Role.WRITER)
        how = draw.choice(("report", "retry", "reconcile"))
        try:
            opened: SessionOpened = await self.host.ask(
                Role.WRITER, lambda rid: OpenSession(rid, self.name), 60.0
            )
        except LOST:
            await self._close()  # it may be opened all the same
            raise ReopenError from None
        except InterlockError as error:
            if error.code != Code.SESSION_NOT_FOUND:
                raise ReopenError from None
            if self.world.durable.get(self.name, -1) >= 0:
                self.world.wrong(f"L2: {self.name} is gone, and events of it were acknowledged")
            self.world.said.pop(self.name, None)
            return await self._asked_writer(lambda rid: CreateSession(rid, self.name, "/w"))
        self._compare(opened)
        if not opened.balanced:
            await self._settle(opened, how)
            await self._asked_writer(lambda rid: RepairSession(rid, self.name))
        return opened

    async def _settle(self, opened: SessionOpened, how: str) -> None:
        await self.host.until(Role.DISPATCHER)
        try:
            settled = await self.host.ask(
                Role.DISPATCHER,
                lambda rid: SettleSession(rid, self.name, opened.unanswered),
                2000.0,
            )
            calls = [c for c in opened.doubtful if c.call_id not in settled.recorded]
            calls = [c for c in calls if not c.recorded]
            if how != "report" and calls:
                await self.host.ask(
                    Role.DISPATCHER,
                    lambda rid: ResolveCalls(rid, self.name, 7, "/w", how, calls),
                    4000.0,
                )
        except (*LOST, InterlockError):
            await self._close()
            raise ReopenError from None

    async def _asked_writer(self, build: Callable[[int], Message], timeout: float = 60.0) -> Any:
        """Ask; whatever goes wrong means that the session has to be opened again."""
        try:
            return await self.host.ask(Role.WRITER, build, timeout)
        except LOST:
            await self._close()
            raise ReopenError from None
        except InterlockError as error:
            if error.code == Code.EVENT_INVALID and not self.world.network.lost:
                self.world.wrong(f"{self.name}: {error.message}")
            if error.code == Code.LOG_WRITE_FAILED:
                await self.host.rest(1.0)
            await self._close()
            raise ReopenError from None

    async def _close(self) -> None:
        for _ in range(30):
            try:
                await self.host.ask(Role.WRITER, lambda rid: CloseSession(rid, self.name), 60.0)
            except InterlockError as error:
                if error.code != Code.LOG_WRITE_FAILED:
                    return
                await self.host.rest(1.0)
            except ReplyTimeoutError:
                continue
            except PeerLostError:
                return
            else:
                return

    def _compare(self, opened: SessionOpened) -> None:
        said = self.world.said.get(self.name, {})
        for seq in [seq for seq in said if seq >= opened.next_seq]:
            del said[seq]  # it was never durable, and something else takes its place
        durable = self.world.durable.get(self.name, -1)
        if opened.next_seq <= durable:
            self.world.wrong(
                f"L2: {self.name} has {opened.next_seq} events, and {durable} was acknowledged"
            )

    # Appending.

    async def _append(self, *drafts: Draft, flush: bool = False) -> Appended:
        appended = list(drafts)
        try:
            reply: Appended = await self.host.ask(
                Role.WRITER, lambda rid: Append(rid, self.name, appended, -1, flush), 60.0
            )
        except InterlockError as error:
            if error.code != Code.LOG_WRITE_FAILED or "first_seq" not in error.details:
                return await self._asked_again(error)
            self._said(error.details["first_seq"], appended)
            reply = await self._flush()
            first = error.details["first_seq"]
            return Appended(0, self.name, first, first, reply.durable_seq, "", None, None)
        except LOST:
            await self._close()
            raise ReopenError from None
        self._said(reply.first_seq, appended)
        self._durable(reply)
        return reply

    async def _asked_again(self, error: InterlockError) -> Appended:
        if error.code == Code.EVENT_INVALID and not self.world.network.lost:
            self.world.wrong(f"{self.name}: {error.message}")
        await self._close()
        raise ReopenError from None

    async def _flush(self) -> Appended:
        for _ in range(100):
            try:
                reply: Appended = await self.host.ask(
                    Role.WRITER, lambda rid: Flush(rid, self.name), 60.0
                )
            except InterlockError as error:
                if error.code != Code.LOG_WRITE_FAILED:
                    break
                await self.host.rest(1.0)
            except ReplyTimeoutError:
                continue
            except PeerLostError:
                break
            else:
                self._durable(reply)
                return reply
        await self._close()
        raise ReopenError

    def _said(self, first: int, drafts: list[Draft]) -> None:
        said = self.world.said.setdefault(self.name, {})
        for seq, made in enumerate(drafts, first):
            said[seq] = made.type, hashlib.sha256(made.data).digest()

    def _durable(self, reply: Appended) -> None:
        known = self.world.durable
        known[self.name] = max(known.get(self.name, -1), reply.durable_seq)

    # Turns.

    async def _work(self, opened: SessionOpened) -> None:
        draw = self.world.draw
        for turn in range(opened.last_turn + 1, TURNS + 1):
            start = [turn_start(turn), user(f"{turn}")]
            if draw.random() < 0.1:
                start.insert(0, approval_policy(draw.choice(("ask", "never"))))
            await self._append(*start)
            for step in range(1, draw.choice((1, 2)) + 1):
                await self._flush()
                await self._append(step_start(step, turn))
                await self._step(turn, step)
                await self._append(step_end(step, turn))
            await self._append(turn_end(turn))
        if self.world.was_full or draw.random() < 0.7:
            await self._flush()
            if draw.random() < 0.5:
                await self._close()

    async def _step(self, turn: int, step: int) -> None:
        draw = self.world.draw
        names = [draw.choice(TOOL_NAMES) for _ in range(draw.choice((1, 1, 2, 3)))]
        calls = [(f"{self.name}-{turn}-{step}-{n}", name, "{}") for n, name in enumerate(names)]
        reply = await self._append(message(calls, step, turn))
        seq = reply.first_seq
        wire = [WireCall(i, name, b"{}") for i, name, _ in calls]
        cancelled: set[str] = set()
        if draw.random() < 0.15:
            which = draw.choice((None, [calls[-1][0]]))
            cancel = CancelCalls(self.name, seq, "the agent says so", which)

            def say() -> None:
                if self.host.alive:
                    cancelled.update([i for i, _, _ in calls] if which is None else which)
                    self.host.peer.say(Role.DISPATCHER, cancel)

            self.world.after(draw.choice((0.0, 0.05, 5.0)), say)
        for _ in range(30):
            now = [msgspec.structs.replace(c, cancelled=c.call_id in cancelled) for c in wire]

            def build(rid: int, now: list[WireCall] = now) -> ExecuteStep:
                return ExecuteStep(rid, self.name, 7, "/w", turn, step, seq, now)

            try:
                done: StepExecuted = await self.host.ask(Role.DISPATCHER, build, 3000.0)
            except ReplyTimeoutError:
                continue  # P9: the same request again joins what runs
            except PeerLostError:
                await self.host.until(Role.DISPATCHER)
                wire = await self._left(seq, calls)
                if not wire:
                    return
                continue
            except InterlockError as error:
                if error.code != Code.ABORTED_BEFORE_DISPATCH and not self.world.network.lost:
                    self.world.wrong(f"{self.name}: the step was refused: {error}")
                await self._close()
                raise ReopenError from None
            order = [result.call_id for result in done.results]
            if order != [call.call_id for call in wire]:
                self.world.wrong(f"P3: results of {self.name} come as {order}")
            if any(result.seq < 0 for result in done.results):
                await self._close()
                raise ReopenError
            return
        raise ReopenError

    async def _left(self, seq: int, calls: list[tuple[str, str, str]]) -> list[WireCall]:
        """F3: the calls without a result, with what the log has of them."""
        state: SessionOpened = await self._asked_writer(lambda rid: SessionState(rid, self.name))
        pending: PendingEvents = await self._asked_writer(
            lambda rid: ReadPending(rid, self.name, seq)
        )
        events = [decode_line(line) for line in pending.lines]
        unanswered = {c.call_id: c for c in state.unanswered}
        left = []
        for call_id, name, _ in calls:
            if call_id in unanswered:
                started = unanswered[call_id].call_seq
                undecided, never = approvals_of(call_id, events)
                begun = -1 if started is None else started
                left.append(WireCall(call_id, name, b"{}", begun, undecided, never))
        return left
