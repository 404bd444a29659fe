"""The decisions of the sandbox launcher: what runs, once, and what is told of it.

Policies come with the launch; the launcher adds what no command may ever touch (S6) and interprets
nothing by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from interlock.backends.codes import Code

from ..errors import SandboxError
from ..fibers import Promise
from ..messages import CancelBody, CommandEnded, CommandOutput, Launch, Message, Stopped
from ..port import Peer, Port
from ..roles import Role


class Running(Protocol):
    """A command under way."""

    def cancel(self, *, kill: bool) -> None:
        """Ask it to stop and end it after a grace, or at once."""


class CommandRunner(Protocol):
    """Runs commands on threads that live as long as they do (S8); the shell's part."""

    def run_command(
        self,
        launch: Launch,
        output: Callable[[str, bytes], None],
        ended: Callable[[CommandEnded], None],
    ) -> Running:
        """Start it; both callbacks come in the launcher's thread, ``ended`` once."""


@dataclass(eq=False)
class Command:
    """One launched command and who is told of it."""

    running: Running
    asker: bytes


class LauncherCore:
    """Owns every command of one runtime. All methods run in the launcher's thread."""

    def __init__(self, port: Port, runner: CommandRunner, end: Callable[[], None]) -> None:
        self._port, self._runner, self._end = port, runner, end
        self._commands: dict[int, Command] = {}
        self._passed = 0
        #: Lives of the dispatcher that have ended: what they still had on its way comes too late.
        self._lost: set[str] = set()
        self._launched = 0
        self._closing: Promise[Stopped] | None = None

    # Core protocol.

    def receive(self, peer: Peer, message: Message) -> None:
        match message:
            case Launch():
                self._launch(peer, message)
            case CancelBody(number, _, kill):
                command = self._commands.get(number)
                if command is not None:
                    command.running.cancel(kill=kill)
            case _:
                raise SandboxError(
                    Code.SANDBOX_UNAVAILABLE,
                    f"the launcher has no use for {type(message).__name__}",
                )

    def told(self, role: Role, message: Message) -> None:
        """The launcher asks nobody, so nothing can come this way."""

    def batch_done(self) -> None:
        """Nothing is put off."""

    def peer_lost(self, role: Role) -> None:
        """F3: running bodies are ended with the dispatcher that released them."""
        if role is Role.DISPATCHER:
            self._lost.add(self._port.peer_incarnation(role))
            for command in list(self._commands.values()):
                command.running.cancel(kill=True)

    def host_lost(self) -> None:
        """F1: what was released runs on; the dispatcher says when it is over, or ends itself."""
        self._port.when_gone(Role.DISPATCHER, lambda: self.shutdown(0.0).then(self._end))

    def client_gone(self, key: bytes) -> Promise[None]:
        """A client has nothing here."""
        settled: Promise[None] = Promise()
        settled.resolve(None)
        return settled

    def shutdown(self, grace: float) -> Promise[Stopped]:
        """End every command and wait until all are gone (S7)."""
        if self._closing is None:
            self._closing = Promise()
            for command in list(self._commands.values()):
                command.running.cancel(kill=True)
            self._close_if_idle()
        return self._closing

    def counters(self) -> dict[str, int]:
        return {"running_commands": len(self._commands), "launched_commands": self._launched}

    # Commands.

    def _launch(self, peer: Peer, message: Launch) -> None:
        if message.number <= self._passed or self._closing is not None:
            return  # K6: single use
        if message.dispatcher in self._lost:
            return
        self._passed = message.number
        self._launched += 1
        number, asker = message.number, peer.identity

        def output(stream: str, data: bytes) -> None:
            self._port.send(asker, CommandOutput(number, stream, data))

        def ended(end: CommandEnded) -> None:
            self._commands.pop(number, None)
            self._port.send(asker, end)
            self._close_if_idle()

        self._commands[number] = Command(self._runner.run_command(message, output, ended), asker)

    def _close_if_idle(self) -> None:
        if self._closing is not None and not self._commands:
            self._closing.resolve(Stopped(0))
