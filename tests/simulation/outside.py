"""What is outside of the runtime: bodies that act, processes that run them, people who answer.

``World.effects`` is the truth that logs are compared with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interlock.actors.messages import (
    AnswerApproval,
    ApprovalAsked,
    BecomeAnswerer,
    BodyFinished,
    BuildCommand,
    CancelBody,
    CommandBuilt,
    CommandEnded,
    Launch,
    LoadTools,
    Message,
    NestedCall,
    NestedResult,
    Reconcile,
    Reconciled,
    Release,
    WorkerReady,
)
from interlock.actors.roles import Role
from interlock.actors.tools.command import Command
from interlock.actors.tools.outcome import Outcome
from interlock.backends.codes import Code
from virtual import VirtualPeer

if TYPE_CHECKING:
    from .world import World


@dataclass(eq=False)
class Effect:
    """One body: that it began, whether it acted on the world, and what it said at its end."""

    session: str
    call_id: str
    message_seq: int
    tool: str
    key: str
    attempt: int
    number: int
    begun: float
    acted: bool = False
    #: ``ok``, ``failed``, ``stopped``, or how it was cut off.
    end: str | None = None
    #: Whether the word of its end has reached a dispatcher.
    reported: bool = False
    parent: Effect | None = None
    nested: list[Effect] = field(default_factory=list)


class Bodies:
    """A process that runs bodies: a worker, or the host. Takes each number once (K6)."""

    def __init__(self, world: World, peer: VirtualPeer) -> None:
        self.world, self.peer = world, peer
        self.running: dict[int, tuple[Effect, Release]] = {}
        self.passed = 0
        self.alive = True

    def take(self, message: Message) -> bool:
        """Handle what is for a runner of bodies."""
        if not self.alive:
            return True
        if isinstance(message, Release | Reconcile | BuildCommand):
            if message.number <= self.passed:
                return True
            self.passed = message.number
        match message:
            case Release():
                self._begin(message)
            case CancelBody(number):
                self._cancel(number)
            case NestedResult(number, _sub, _result):
                self._later(lambda: self._finish(number))
            case Reconcile():
                self._later(lambda: self._reconcile(message))
            case BuildCommand():
                built = CommandBuilt(message.number, Command(["true"]), None, "")
                self._later(lambda: self._say(built))
            case _:
                return False
        return True

    def die(self) -> None:
        """The process ends with everything in it."""
        self.alive = False
        for effect, _ in self.running.values():
            effect.end = effect.end or "died"
        self.running.clear()

    def _say(self, message: Message) -> None:
        self.peer.say(Role.DISPATCHER, message)

    def _later(self, call: Callable[[], None]) -> None:
        delay = self.world.draw.choice((0.0, 0.0, 0.01, 0.3, 3.0))
        self.world.after(delay, lambda: call() if self.alive else None)

    def _begin(self, release: Release) -> None:
        effect = self.world.begins(release)
        self.running[release.number] = effect, release
        if self.world.draw.random() < 0.06:
            return  # it hangs, until it is asked to stop or its process ends
        self._later(lambda: self._act(release.number))

    def _act(self, number: int) -> None:
        found = self.running.get(number)
        if found is None:
            return
        effect, release = found
        effect.acted = True
        self.world.network.note(f"the world: {effect.tool} {effect.call_id} acts")
        if effect.tool == "outer":
            nested = NestedCall(number, release.token, 1, "act", b"{}")
            if self.world.draw.random() < 0.1:  # it calls when it is over
                self.world.after(0.5, lambda: self._finish(number))
                self.world.after(0.7, lambda: self._say(nested) if self.alive else None)
                return
            self._later(lambda: self._say(nested))
            self.world.after(200.0, lambda: self._finish(number))
        else:
            self._later(lambda: self._finish(number))

    def _cancel(self, number: int) -> None:
        if number in self.running and self.world.draw.random() < 0.7:
            self._later(lambda: self._stop(number))

    def _stop(self, number: int) -> None:
        found = self.running.pop(number, None)
        if found is not None:
            self._report(found[0], "stopped", Outcome.failure(Code.ABORTED, "stopped"), True)

    def _finish(self, number: int) -> None:
        found = self.running.pop(number, None)
        if found is None:
            return
        effect = found[0]
        if effect.key.endswith(("0", "1")):
            self._report(effect, "failed", Outcome.failure(Code.TOOL_FAILED, "no"), False)
        else:
            self._report(effect, "ok", Outcome.success(effect.key), False)

    def _report(self, effect: Effect, end: str, outcome: Outcome, stopped: bool) -> None:
        effect.end = end
        self._say(BodyFinished(effect.number, outcome, stopped))

    def _reconcile(self, message: Reconcile) -> None:
        key = json.loads(message.record)["idempotency_key"]
        acted = any(e.acted for e in self.world.effects if e.key == key)
        meta = {"reconciled": "done" if acted else "not-done"}
        self._say(Reconciled(message.number, Outcome.success("looked up", meta=meta)))


class Spawner:
    """The dispatcher's shell: processes of workers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.workers: dict[int, Bodies] = {}
        self.peers: dict[int, VirtualPeer] = {}

    def spawn(self) -> tuple[int, bytes]:
        pid = self.world.next_pid()
        peer = VirtualPeer(self.world.network, f"worker{pid}", Role.WORKER)
        bodies = Bodies(self.world, peer)
        self.workers[pid], self.peers[pid] = bodies, peer

        def react(message: Message) -> None:
            if isinstance(message, LoadTools):
                peer.say(Role.DISPATCHER, WorkerReady(pid, True, {}))
            else:
                bodies.take(message)

        peer.react = react
        self.world.after(
            self.world.draw.choice((0.0, 0.1)),
            lambda: (
                peer.say(Role.DISPATCHER, WorkerReady(pid, False, {})) if bodies.alive else None
            ),
        )
        return pid, peer.key

    def kill(self, pid: int) -> None:
        bodies = self.workers.get(pid)
        for effect, release in bodies.running.values() if bodies is not None else ():
            left = effect.begun + release.timeout - self.world.network.now
            if self.world.host is None and left > 0:
                self.world.wrong(f"F1: {effect.call_id} had {left:.0f} s left and was cut off")
        self.exit(pid, "it was ended by signal 9 (SIGKILL)")

    def exit(self, pid: int, how: str) -> None:
        """A worker's process ends."""
        bodies = self.workers.pop(pid, None)
        if bodies is None:
            return
        self.world.network.note(f"worker{pid} ends")
        bodies.die()
        peer = self.peers.pop(pid)
        peer.leave()
        node = self.world.network.owners.get(Role.DISPATCHER)
        if node is not None:
            core: Any = node.core
            self.world.network.later(Role.DISPATCHER, lambda: core.worker_exited(peer.key, how))

    def die(self) -> None:
        """F3: the dispatcher is gone, and with it every worker."""
        for pid in list(self.workers):
            self.workers.pop(pid).die()
            self.peers.pop(pid).leave()


@dataclass(eq=False)
class RunningCommand:
    """A confined command."""

    effect: Effect
    stop: Callable[[], None]

    def cancel(self, *, kill: bool) -> None:
        del kill
        self.stop()


class Commands:
    """The launcher's shell: confined commands."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self._running: list[Effect] = []

    def run_command(self, launch: Launch, output: Any, ended: Any) -> RunningCommand:
        del output
        effect = self.world.begins(launch)
        self._running.append(effect)

        def end(status: str, word: str) -> None:
            if self.alive and effect.end is None:
                effect.end = word
                self._running.remove(effect)
                code = 0 if status == "exited" else None
                ended(_command_ended(launch, status, code))

        def act() -> None:
            if self.alive and effect.end is None:
                effect.acted = True
                self.world.after(0.1, lambda: end("exited", "ok"))

        self.world.after(self.world.draw.choice((0.0, 0.1, 2.0)), act)
        return RunningCommand(effect, lambda: end("cancelled", "stopped"))

    def die(self) -> None:
        """F5: the launcher's commands end with it."""
        self.alive = False
        for effect in self._running:
            effect.end = effect.end or "died"


def _command_ended(launch: Launch, status: str, code: int | None) -> CommandEnded:
    return CommandEnded(
        number=launch.number,
        status=status,
        exit_code=code,
        signal=None,
        stdout="",
        stderr="",
        stdout_bytes=0,
        stderr_bytes=0,
        cut_bytes=0,
        duration=0.1,
        backend="landlock",
        enforcement="full",
        gaps=[],
        evidence=None,
        message="",
        risks=[],
    )


class Person:
    """Answers requests: allows or rejects, soon, late, twice, or never."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.peer = VirtualPeer(world.network, name, Role.ANSWERER)
        self.peer.react = self._hear
        self._rid = 0
        self.join()

    def join(self) -> None:
        """Say to the broker, also to a new one, that somebody is there."""
        self._rid += 1
        self.peer.say(Role.BROKER, BecomeAnswerer(self._rid, self.name))

    def _hear(self, message: Message) -> None:
        if not isinstance(message, ApprovalAsked):
            return
        draw = self.world.draw
        if draw.random() < 0.1:
            return
        word = "allow" if draw.random() < 0.75 else "reject"
        for _ in range(draw.choice((1, 1, 2))):
            delay = draw.choice((0.0, 0.5, 20.0, 400.0))
            self.world.after(delay, lambda: self._answer(message, word))

    def _answer(self, asked: ApprovalAsked, word: str) -> None:
        self._rid += 1
        answer = AnswerApproval(self._rid, asked.request, word, self.name, "", asked.digest)
        self.world.answered(asked, word)
        self.peer.say(Role.BROKER, answer)
