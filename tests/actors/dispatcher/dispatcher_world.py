"""A dispatcher among the real cores of the other owners, with a host, workers and bodies that the
test leads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from interlock.actors.broker.core import BrokerCore
from interlock.actors.dispatcher.core import DispatcherCore
from interlock.actors.launcher.core import LauncherCore
from interlock.actors.messages import (
    AnswerApproval,
    Append,
    ApprovalAsked,
    BecomeAnswerer,
    BodyFinished,
    BuildCommand,
    CancelBody,
    CancelCalls,
    CommandBuilt,
    CommandEnded,
    CreateSession,
    ExecuteStep,
    JudgeCall,
    Judged,
    Launch,
    LoadTools,
    Message,
    NestedCall,
    NestedResult,
    OpenSession,
    ReadPending,
    RegisterTools,
    Release,
    SettleSession,
    StepExecuted,
    WireCall,
    WireResult,
    WireTool,
    WorkerReady,
)
from interlock.actors.roles import Role
from interlock.actors.tools.command import Command
from interlock.actors.tools.outcome import Outcome
from interlock.actors.tools.spec import ToolSpec
from interlock.actors.writer.core import WriterCore
from interlock.backends.codes import Code
from interlock.backends.event import Draft, Event, decode_line
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.reading import read_log
from log_words import message, step_start, turn_start
from virtual import Network, VirtualPeer, VirtualPort

SCHEMA = msgspec.json.encode(
    {
        "type": "object",
        "properties": {"x": {"type": "integer"}},
        "additionalProperties": False,
    }
)


def spec(name: str, **more: Any) -> ToolSpec:
    return ToolSpec(name=name, description=name, schema=SCHEMA, **more)


TOOLS = [
    spec("act"),
    spec("look", effect="read", parallel=True),
    spec("again", effect="idempotent"),
    spec("ask", approval="ask"),
    spec("ask-too", approval="ask", parallel=True),
    spec("alone", isolate=True, timeout=60.0),
    spec("quick", timeout=5.0),
    spec("here", place="host"),
    spec("run", place="sandbox"),
]


@dataclass(eq=False)
class Body:
    """A released body; nothing happens in it unless the test says so."""

    world: DispatcherWorld
    peer: VirtualPeer
    release: Release

    def end(self, outcome: Outcome, *, cancelled: bool = False) -> None:
        finished = BodyFinished(self.release.number, outcome, cancelled)
        self.peer.say(Role.DISPATCHER, finished)
        self.world.network.run()

    def finish(self, value: Any = "done") -> None:
        self.end(Outcome.success(value))

    def fail(self, text: str = "broke") -> None:
        self.end(Outcome.failure(Code.TOOL_FAILED, text))

    def stop(self) -> None:
        """It ends because it was asked to."""
        self.end(Outcome.failure(Code.ABORTED, "stopped"), cancelled=True)

    def call(self, tool: str, arguments: bytes = b"{}", *, sub: int = 1, token: str = "") -> None:
        """Make a nested call."""
        number = self.release.number
        nested = NestedCall(number, token or self.release.token, sub, tool, arguments)
        self.peer.say(Role.DISPATCHER, nested)
        self.world.network.run()

    def nested(self, sub: int = 1) -> WireResult | None:
        found = [m for m in self.peer.got(NestedResult) if m.sub == sub]
        return found[0].result if found else None

    @property
    def asked(self) -> list[str]:
        """Why it was asked to stop, each time it was."""
        return [m.reason for m in self.peer.got(CancelBody) if m.number == self.release.number]


class VirtualSpawner:
    """Starts workers that connect at once, unless told otherwise."""

    def __init__(self, world: DispatcherWorld) -> None:
        self.world = world
        self.workers: dict[int, VirtualPeer] = {}
        self.killed: list[int] = []
        #: Workers started from now on end before they are ready.
        self.broken = False
        #: Workers started from now on do not connect by themselves.
        self.silent = False
        #: Tools that workers cannot load, and why.
        self.unloadable: dict[str, str] = {}
        self._pid = 100

    def spawn(self) -> tuple[int, bytes]:
        self._pid += 1
        pid = self._pid
        worker = VirtualPeer(self.world.network, f"worker{pid}", Role.WORKER)
        worker.react = lambda message: self._react(worker, pid, message)
        self.workers[pid] = worker
        if self.broken:
            self.exit(pid, "it could not start")
        elif not self.silent:
            worker.say(Role.DISPATCHER, WorkerReady(pid, False, {}))
        return pid, worker.key

    def kill(self, pid: int) -> None:
        self.killed.append(pid)
        self.exit(pid, "the worker process that ran it was ended by signal 9 (SIGKILL)")

    def exit(self, pid: int, how: str) -> None:
        """Its process ends; the shell tells the dispatcher, as the next thing that happens."""
        worker = self.workers.pop(pid, None)
        if worker is not None:
            worker.leave()
            core = self.world.dispatcher
            self.world.network.later(Role.DISPATCHER, lambda: core().worker_exited(worker.key, how))

    def pid_of(self, peer: VirtualPeer) -> int:
        [pid] = [pid for pid, worker in self.workers.items() if worker is peer]
        return pid

    def _react(self, worker: VirtualPeer, pid: int, message: Message) -> None:
        if isinstance(message, LoadTools):
            worker.say(Role.DISPATCHER, WorkerReady(pid, True, self.unloadable))
        elif isinstance(message, Release):
            self.world.bodies[message.call_id].append(Body(self.world, worker, message))
        elif isinstance(message, BuildCommand):
            built = self.world.build(message)
            if built is not None:
                worker.say(Role.DISPATCHER, built)


@dataclass(eq=False)
class VirtualCommand:
    """A launched command that ends when the test says so."""

    launch: Launch
    output: Callable[[str, bytes], None]
    ended: Callable[[CommandEnded], None]
    cancels: list[bool]

    def cancel(self, *, kill: bool) -> None:
        self.cancels.append(kill)


class VirtualRunner:
    """The launcher's shell."""

    def __init__(self) -> None:
        self.commands: list[VirtualCommand] = []

    def run_command(self, launch: Launch, output: Any, ended: Any) -> VirtualCommand:
        command = VirtualCommand(launch, output, ended, [])
        self.commands.append(command)
        return command


class _Bodies(dict[str, list[Body]]):
    def __missing__(self, call_id: str) -> list[Body]:
        return self.setdefault(call_id, [])


class DispatcherWorld:
    """All owners and one session ``s`` with an open turn and step."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.network = Network()
        self.bodies: dict[str, list[Body]] = _Bodies()
        self.spawner = VirtualSpawner(self)
        self.runner = VirtualRunner()
        self.commands: dict[str, Command] = {}
        self.judge: Callable[[JudgeCall], Judged | None] = lambda m: Judged(m.rid, "allow", "")
        self.options = {"approval": "ask", "approval_timeout": 300.0, "workers": 1} | options
        self.registration = {
            name: self.options.pop(name, False) for name in ("gates", "guards", "hooks")
        } | {
            name: self.options.pop(name, [])
            for name in ("gate_pieces", "guard_pieces", "hook_pieces")
        }
        self._rid = 0
        self.step = 0
        self.start_writer("writer-1")
        waits = bool(self.options.pop("waits", False))
        self.start_broker(waits=waits)
        self.start_launcher()
        self.host = VirtualPeer(self.network, "host", Role.HOST)
        self.host.react = self._host_reacts
        self.start_dispatcher("dispatcher-1")
        opened = self.host.ask(Role.WRITER, CreateSession(self.rid(), "s", str(root)))
        self.path = Path(opened.path)
        self.append(turn_start())
        self.next_step()

    # Owners.

    def start_writer(self, incarnation: str) -> None:
        self.backend = JsonlBackend(self.root)
        self.network.start(
            Role.WRITER, lambda p: WriterCore(p, self.backend, incarnation, p.end), incarnation
        )

    def start_broker(self, *, waits: bool = False) -> None:
        self.network.start(Role.BROKER, lambda p: BrokerCore(p, p.end, waits=waits), "broker")

    def start_launcher(self) -> None:
        self.network.start(Role.LAUNCHER, lambda p: LauncherCore(p, self.runner, p.end), "launcher")

    def start_dispatcher(self, incarnation: str, tools: list[ToolSpec] | None = None) -> None:
        def build(port: VirtualPort) -> DispatcherCore:
            options = {"sandbox": "workspace-write", "incarnation": incarnation} | self.options
            return DispatcherCore(port, self.spawner, port.end, **options)

        self.network.start(Role.DISPATCHER, build, incarnation)
        wire = [WireTool(tool, b"") for tool in (TOOLS if tools is None else tools)]
        self.host.ask(
            Role.DISPATCHER,
            RegisterTools(self.rid(), wire, worker_env=[], sys_path=[], **self.registration),
        )

    def dispatcher(self) -> DispatcherCore:
        core: Any = self.network.owners[Role.DISPATCHER].core
        return core

    def replace_writer(self) -> None:
        """The writer dies with what it had not written, and another life takes over."""
        for opened in self.network.owners[Role.WRITER].core._sessions.values():
            opened.log.close()
        self.network.kill(Role.WRITER)
        self.network.run()
        self.start_writer("writer-2")
        self.network.run()

    def reopen(self) -> Any:
        """As the host does after the writer was replaced (F2): open, then settle."""
        opened = self.host.ask(Role.WRITER, OpenSession(self.rid(), "s"))
        return opened, self.send(SettleSession, "s", opened.unanswered)

    # The session.

    def rid(self) -> int:
        self._rid += 1
        return self._rid

    def append(self, *drafts: Draft, flush: bool = False) -> Any:
        request = Append(self.rid(), "s", list(drafts), flush=flush)
        reply = self.host.ask(Role.WRITER, request)
        assert getattr(reply, "first_seq", -1) >= 0, reply
        return reply

    def next_step(self) -> None:
        self.step += 1
        self.append(step_start(self.step))

    def message(self, *calls: tuple[str, str] | tuple[str, str, str]) -> int:
        """An assistant message with calls (id, tool, arguments); its seq."""
        full = [(*call, "{}")[:3] for call in calls]
        self.calls = [WireCall(i, tool, arguments.encode()) for i, tool, arguments in full]
        return self.append(message(full, self.step)).first_seq

    def request(self, seq: int, **more: Any) -> ExecuteStep:
        return ExecuteStep(
            rid=self.rid(),
            session="s",
            created_at=7,
            workspace=str(self.root),
            turn=1,
            step=self.step,
            message_seq=seq,
            calls=more.pop("calls", self.calls),
            **more,
        )

    def execute(self, *calls: tuple[str, str] | tuple[str, str, str], **more: Any) -> int:
        """Append a message with calls and have them run; the request's rid."""
        self.seq = self.message(*calls)
        request = self.request(self.seq, **more)
        self.host.say(Role.DISPATCHER, request)
        self.network.run()
        return request.rid

    def cancel(self, *call_ids: str) -> None:
        which = list(call_ids) or None
        self.host.say(Role.DISPATCHER, CancelCalls("s", self.seq, "the test says so", which))
        self.network.run()

    def send(self, make: Any, *rest: Any, role: Role = Role.DISPATCHER) -> int:
        rid = self.rid()
        self.host.say(role, make(rid, *rest))
        self.network.run()
        return rid

    def reply(self, rid: int) -> Any:
        found = [m for m in self.host.inbox if getattr(m, "rid", None) == rid]
        found = [m for m in found if not isinstance(m, JudgeCall)]
        return found[0] if found else None

    def results(self, rid: int) -> list[WireResult]:
        reply = self.reply(rid)
        assert isinstance(reply, StepExecuted), f"the step has not ended: {reply}"
        return reply.results

    def result(self, rid: int) -> Outcome:
        [result] = self.results(rid)
        return result.outcome

    def running(self, call_id: str) -> Body:
        [body] = self.bodies[call_id]
        return body

    def events(self) -> list[Event]:
        """The session's events, on disk and in the writer's memory."""
        stored = list(read_log(self.path).events) if self.path.exists() else []
        writer = self.network.owners.get(Role.WRITER)
        if writer is not None and "s" in writer.core._sessions:
            pending = self.host.ask(Role.WRITER, ReadPending(self.rid(), "s", len(stored)))
            stored += [decode_line(line) for line in pending.lines]
        return stored

    def types(self, *prefixes: str) -> list[str]:
        return [e.type for e in self.events() if e.type.startswith(prefixes or ("tool/", "appr"))]

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events() if event.type == kind]

    def recorded(self, kind: type) -> list[Any]:
        """Every message of a type that an owner sent."""
        return [m for _, _, m in self.network.record if isinstance(m, kind)]

    # Answerers and judges.

    def answerer(self, name: str = "person") -> VirtualPeer:
        peer = VirtualPeer(self.network, name, Role.ANSWERER)
        peer.ask(Role.BROKER, BecomeAnswerer(1, name))
        return peer

    def answer(self, peer: VirtualPeer, word: str = "allow", note: str = "") -> Any:
        asked = peer.last(ApprovalAsked)
        request = AnswerApproval(self.rid(), asked.request, word, peer.name, note)
        return peer.ask(Role.BROKER, request)

    def _host_reacts(self, message: Message) -> None:
        if isinstance(message, Release):
            self.bodies[message.call_id].append(Body(self, self.host, message))
        elif isinstance(message, JudgeCall):
            judged = self.judge(message)
            if judged is not None:
                self.host.say(Role.DISPATCHER, judged)

    def build(self, message: BuildCommand) -> CommandBuilt | None:
        command = self.commands.get(message.call_id, Command(["true"]))
        return CommandBuilt(message.number, command, None, "")


def ended(launch: Launch, **more: Any) -> CommandEnded:
    """How a command ended: exit status 0 unless told otherwise."""
    fields: dict[str, Any] = {
        "number": launch.number,
        "status": "exited",
        "exit_code": 0,
        "signal": None,
        "stdout": "out",
        "stderr": "",
        "stdout_bytes": 3,
        "stderr_bytes": 0,
        "cut_bytes": 0,
        "duration": 0.1,
        "backend": "landlock",
        "enforcement": "full",
        "gaps": [],
        "evidence": None,
        "message": "",
        "risks": [],
    }
    return CommandEnded(**(fields | more))
