"""The decisions of the sandbox launcher: K6, P5, F1, F3, S7."""

from __future__ import annotations

from typing import Any

import pytest
from interlock.actors.launcher.core import LauncherCore
from interlock.actors.messages import (
    CancelBody,
    CommandEnded,
    CommandOutput,
    Launch,
    Shutdown,
    Stopped,
)
from interlock.actors.roles import Role
from interlock.actors.tools.command import Command
from virtual import Network, VirtualPeer


class Running:
    """A command that ends when the test says so."""

    def __init__(self, launch: Launch, output: Any, ended: Any) -> None:
        self.launch, self.output, self.ended = launch, output, ended
        self.kills: list[bool] = []

    def cancel(self, *, kill: bool) -> None:
        self.kills.append(kill)

    def end(self) -> None:
        fields = {"status": "exited", "exit_code": 0, "signal": None, "stdout": "", "stderr": ""}
        counts = {"stdout_bytes": 0, "stderr_bytes": 0, "cut_bytes": 0, "duration": 0.0}
        how: Any = {"backend": "b", "enforcement": "full", "gaps": [], "evidence": None}
        rest: Any = {"message": "", "risks": []}
        self.ended(CommandEnded(number=self.launch.number, **fields, **counts, **how, **rest))


class LauncherWorld:
    """A launcher and a dispatcher that the test leads."""

    def __init__(self) -> None:
        self.network = Network()
        self.commands: list[Running] = []
        self.core: LauncherCore = self.network.start(
            Role.LAUNCHER, lambda p: LauncherCore(p, self, p.end), "l"
        )
        self.dispatcher = VirtualPeer(self.network, "dispatcher", Role.DISPATCHER)

    def run_command(self, launch: Launch, output: Any, ended: Any) -> Running:
        self.commands.append(Running(launch, output, ended))
        return self.commands[-1]

    def launch(self, number: int, life: str = "one") -> None:
        command = Command(["true"])
        message = Launch(number, "s", 1, "c", command, "read-only", "/", "key", 5.0, "w", 3, life)
        self.dispatcher.say(Role.LAUNCHER, message)
        self.network.run()


@pytest.fixture
def world() -> LauncherWorld:
    return LauncherWorld()


def numbers(world) -> list[int]:
    return [running.launch.number for running in world.commands]


def test_K6_a_launch_is_single_use_and_numbers_have_to_grow(world):
    for number in (5, 5, 4, 6, 5, 6):
        world.launch(number)
    assert numbers(world) == [5, 6]


def test_K6_also_after_the_command_has_ended(world):
    world.launch(5)
    world.commands[0].end()
    world.launch(5)
    assert numbers(world) == [5]


def test_a_command_reports_to_whoever_launched_it(world):
    world.launch(5)
    world.commands[0].output("stdout", b"text")
    world.commands[0].end()
    world.network.run()
    assert world.dispatcher.got(CommandOutput) == [CommandOutput(5, "stdout", b"text")]
    [ended] = world.dispatcher.got(CommandEnded)
    assert ended.number == 5
    assert world.core.counters() == {"running_commands": 0, "launched_commands": 1}


@pytest.mark.parametrize("kill", [False, True])
def test_P5_a_command_is_asked_or_killed_as_told(world, kill):
    world.launch(5)
    world.launch(6)
    world.dispatcher.say(Role.LAUNCHER, CancelBody(5, "cancelled", kill=kill))
    world.network.run()
    assert [running.kills for running in world.commands] == [[kill], []]


def test_cancelling_what_is_not_there_changes_nothing(world):
    world.launch(5)
    world.commands[0].end()
    world.dispatcher.say(Role.LAUNCHER, CancelBody(5, "late"))
    world.dispatcher.say(Role.LAUNCHER, CancelBody(99, "never"))
    world.network.run()
    assert world.commands[0].kills == []


def lose_dispatcher(world) -> None:
    world.network.owners[Role.LAUNCHER].port.known[Role.DISPATCHER] = "one"
    world.network.later(Role.LAUNCHER, lambda: world.core.peer_lost(Role.DISPATCHER))
    world.network.run()


def test_F3_commands_end_with_the_dispatcher_and_its_successors_run(world):
    world.launch(5)
    lose_dispatcher(world)
    assert world.commands[0].kills == [True]
    world.launch(6, "two")
    assert numbers(world) == [5, 6]


def test_F3_K6_what_a_lost_dispatcher_still_had_on_its_way_runs_nothing(world):
    world.launch(5)
    lose_dispatcher(world)
    world.launch(6)
    assert numbers(world) == [5]


def test_S7_a_shutdown_kills_everything_and_waits_until_it_is_gone(world):
    world.launch(5)
    world.launch(6)
    host = VirtualPeer(world.network, "host", Role.HOST)
    host.say(Role.LAUNCHER, Shutdown(1, 10.0))
    world.network.run()
    assert [running.kills for running in world.commands] == [[True], [True]]
    world.launch(7)
    assert numbers(world) == [5, 6], "nothing is launched any more"
    world.commands[0].end()
    world.network.run()
    assert host.got(Stopped) == []
    world.commands[1].end()
    world.network.run()
    assert len(host.got(Stopped)) == 1
    assert Role.LAUNCHER not in world.network.owners


def test_F1_what_was_launched_runs_on_until_the_dispatcher_is_gone(world):
    class Nobody:
        def batch_done(self) -> None:
            return

        host_lost = batch_done

    nobody: Any = Nobody()
    world.network.start(Role.DISPATCHER, lambda _port: nobody, "d")
    world.launch(5)
    world.network.lose_host()
    world.network.run()
    assert world.commands[0].kills == []
    world.network.kill(Role.DISPATCHER)
    world.network.run()
    assert True in world.commands[0].kills
    world.commands[0].end()
    world.network.run()
    assert Role.LAUNCHER not in world.network.owners
