"""A real worker process, led by a mailbox that stands for the dispatcher."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from interlock.actors import ToolContext, tool
from interlock.actors.keys import Doorkeeper, KeyPair, Keyring
from interlock.actors.mailbox import Mailbox
from interlock.actors.messages import (
    BodyFinished,
    BodyProgress,
    BuildCommand,
    CancelBody,
    CommandBuilt,
    LoadTools,
    Message,
    NestedCall,
    NestedResult,
    Release,
    WireResult,
    WorkerReady,
)
from interlock.actors.roles import Role
from interlock.actors.tools.outcome import Outcome
from interlock.actors.tools.pack import pack
from interlock.actors.worker.config import WorkerConfig
from interlock.backends.codes import Code


@tool
def mark(path: str) -> str:
    """Leave a mark."""
    with open(path, "a") as file:
        file.write("x")
    return "marked"


@tool
def patient(ctx: ToolContext) -> str:
    """Say that it runs, and wait until it is asked to stop."""
    ctx.progress("running")
    ctx.wait_cancelled(60.0)
    ctx.raise_if_cancelled()
    return "was not asked"


@tool
def outer(ctx: ToolContext) -> str:
    """Make a nested call."""
    return f"inner said {ctx.call('mark', {'path': 'p'}).value}"


class WorkerWorld:
    """One worker process and the dispatcher's end of its connection."""

    def __init__(self, directory: Path) -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.door = Doorkeeper(self.context)
        keys, server, keyring = KeyPair.generate(), KeyPair.generate(), Keyring()
        keyring.admit(keys.public, Role.WORKER)
        self.door.guard(Role.DISPATCHER, keyring)
        endpoint = f"ipc://{directory}/dispatcher"
        self.mailbox = Mailbox()
        self.mailbox.open(self.context, [endpoint], server, keyring, Role.DISPATCHER)
        config = WorkerConfig(endpoint, keys, server.public, os.getpid(), sys.path, str(directory))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "interlock.actors.worker"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.msgpack.encode(config))
        self.process.stdin.close()
        self.inbox: list[Message] = []
        self.identity = b""
        assert not self.until(WorkerReady).loaded
        tools = {tool.name: pack(tool) for tool in (mark, patient, outer)}
        self.say(LoadTools(tools | {"broken": b"no pickle"}))
        self.ready = self.until(WorkerReady)

    def say(self, message: Message) -> None:
        assert self.mailbox.send(self.identity, message)

    def until(self, kind: type) -> Any:
        """The next message of a type; others are kept."""
        while True:
            for index, message in enumerate(self.inbox):
                if isinstance(message, kind):
                    return self.inbox.pop(index)
            for peer, message in self.mailbox.get().message.received:
                self.identity = peer.identity
                self.inbox.append(message)

    def release(self, number: int, name: str, arguments: bytes = b"{}") -> None:
        self.say(
            Release(number, "s", 3, f"c{number}", name, arguments, "key", 60.0, "w", 5, "token")
        )

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.mailbox.close()
        self.door.close()
        self.context.destroy(linger=0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[WorkerWorld]:
    world = WorkerWorld(tmp_path)
    yield world
    world.close()


def test_K6_a_duplicate_or_replayed_release_runs_nothing(world, tmp_path):
    path = tmp_path / "marks"
    arguments = msgspec.json.encode({"path": str(path)})
    for number in (5, 5, 4, 6, 5):
        world.release(number, "mark", arguments)
    ends = [world.until(BodyFinished) for _ in range(2)]
    world.release(7, "mark", arguments)
    ends.append(world.until(BodyFinished))
    assert sorted(end.number for end in ends) == [5, 6, 7]
    assert path.read_text() == "xxx"


def test_K6_a_builder_shares_the_numbers(world):
    world.say(BuildCommand(8, "s", 3, "c", "mark", b"{}", "key"))
    assert world.until(CommandBuilt).number == 8
    world.release(8, "mark", b'{"path": "late"}')
    world.say(BuildCommand(9, "s", 3, "c", "mark", b"{}", "key"))
    assert world.until(CommandBuilt).number == 9
    assert not any(isinstance(message, BodyFinished) for message in world.inbox)


def test_a_tool_that_cannot_be_loaded_is_named_and_the_others_work(world, tmp_path):
    assert list(world.ready.failed) == ["broken"]
    assert world.ready.loaded
    world.release(1, "mark", msgspec.json.encode({"path": str(tmp_path / "m")}))
    assert world.until(BodyFinished).outcome.ok


def test_P5_a_body_that_is_asked_stops_and_says_so(world):
    world.release(1, "patient")
    assert world.until(BodyProgress).number == 1
    world.say(CancelBody(1, "timeout"))
    end = world.until(BodyFinished)
    assert end.cancelled
    assert end.outcome.code == Code.ABORTED


def test_K5_a_nested_call_shows_the_token_of_its_release(world):
    world.release(1, "outer")
    nested = world.until(NestedCall)
    assert (nested.number, nested.token, nested.name) == (1, "token", "mark")
    result = WireResult("c1.1", "mark", 9, Outcome.success("hello"))
    world.say(NestedResult(1, nested.sub, result))
    assert world.until(BodyFinished).outcome.value_object() == "inner said hello"


def test_F3_a_worker_ends_with_its_dispatcher(tmp_path):
    """Its parent is the dispatcher; here a process that starts one and ends."""
    script = (
        "import os, subprocess, sys, msgspec\n"
        "from interlock.actors.keys import KeyPair\n"
        "from interlock.actors.worker.config import WorkerConfig\n"
        "keys = KeyPair.generate()\n"
        "config = WorkerConfig(sys.argv[1], keys, keys.public, os.getpid(), sys.path, '/')\n"
        "worker = subprocess.Popen([sys.executable, '-m', 'interlock.actors.worker'],\n"
        "    stdin=subprocess.PIPE, start_new_session=True)\n"
        "worker.stdin.write(msgspec.msgpack.encode(config)); worker.stdin.close()\n"
        "print(worker.pid, flush=True)\n"
    )
    endpoint = f"ipc://{tmp_path}/nobody"
    # The worker inherits the ends of these pipes: they are read until it is gone as well.
    out = subprocess.run(
        [sys.executable, "-c", script, endpoint], capture_output=True, text=True, timeout=60
    )
    assert ended(int(out.stdout))


def ended(pid: int) -> bool:
    """Gone, or dead and not yet reaped by whoever inherited it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
