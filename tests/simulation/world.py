"""One run: owners that crash and come back, a store that fails, and what really happened."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from interlock.actors.broker.core import BrokerCore
from interlock.actors.dispatcher.core import DispatcherCore
from interlock.actors.launcher.core import LauncherCore
from interlock.actors.messages import (
    ApprovalAsked,
    BodyFinished,
    CancelCalls,
    CommandEnded,
    Launch,
    Message,
    RegisterTools,
    Release,
    WireTool,
)
from interlock.actors.roles import OWNERS, Role
from interlock.actors.tools.spec import ToolSpec
from interlock.actors.writer.core import WriterCore
from interlock.backends.codes import Code
from interlock.backends.errors import InterlockError, LogError
from interlock.backends.event import Event, decode_line
from interlock.backends.log import Item
from interlock.backends.memory import MemoryBackend

from .host import Host
from .network import Faults, SeededNetwork
from .outside import Commands, Effect, Person, Spawner

SCHEMA = msgspec.json.encode({"type": "object", "properties": {}, "additionalProperties": False})


def spec(name: str, **more: Any) -> ToolSpec:
    return ToolSpec(name=name, description=name, schema=SCHEMA, **more)


TOOLS = (
    spec("act", timeout=60.0),
    spec("look", effect="read", parallel=True, timeout=60.0),
    spec("again", effect="idempotent", timeout=60.0),
    spec("ask", approval="ask", timeout=60.0),
    spec("ask-look", approval="ask", parallel=True, timeout=60.0),
    spec("pay", reconciles=True, timeout=60.0),
    spec("here", place="host", timeout=60.0),
    spec("run", place="sandbox", timeout=60.0),
    spec("outer", timeout=300.0),
)


class Disk(MemoryBackend):
    """Logs that survive their writer up to the last commit; a full disk refuses some of them."""

    durability = "journal"
    power_loss_durable = True

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        self._draw = draw
        self.full = 0.0

    def commit(self, items: Sequence[Item]) -> Sequence[int | InterlockError]:
        outcomes: list[int | InterlockError] = []
        for item in items:
            if self.full and self._draw.random() < self.full:
                outcomes.append(LogError(Code.LOG_WRITE_FAILED, "the disk is full", closed=False))
            else:
                outcomes += super().commit([item])
        return outcomes

    def writer_died(self) -> None:
        """Its locks are free."""
        for session in self._sessions.values():
            session.open = False

    def durable(self, session: str) -> list[Event]:
        """What a power cut would leave of a log now."""
        found = self._sessions.get(session)
        return [decode_line(line) for line in found.lines] if found is not None else []


class World:
    """Everything of one run, from one seed."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.draw = draw = random.Random(seed)
        faulty = seed % 4  # a quarter of the runs has no fault of the network, another only crashes
        rates = Faults(
            late=draw.choice((0.0, 0.05, 0.2)) if faulty else 0.0,
            twice=draw.choice((0.0, 0.1)) if faulty else 0.0,
            lost=draw.choice((0.0, 0.0, 0.02)) if faulty == 3 else 0.0,
        )
        self.network = SeededNetwork(draw, rates)
        if trace:
            self.network.trace = []
        self.network.posted, self.network.arrived = self._posted, self._arrived
        self.disk = Disk(draw)
        self.disk.full = draw.choice((0.0, 0.0, 0.15))
        self.was_full = self.disk.full > 0
        self.effects: list[Effect] = []
        self.violations: list[str] = []
        #: What agents were told: events by session and seq, and up to where they are durable.
        self.said: dict[str, dict[int, tuple[str, bytes]]] = {}
        self.durable: dict[str, int] = {}
        #: Requests that somebody was shown, and the words that were given before their end.
        self.allowed: set[str] = set()
        self._released: dict[int, float] = {}
        self._cancelled: set[tuple[str, int, str]] = set()
        self._pid = 100
        self._lives: dict[Role, int] = dict.fromkeys(OWNERS, 0)
        self.lives = 0
        self.crashes = draw.choice((0, 0, 1, 2, 4))
        #: Whether a dispatcher has ended: what it held is lost with it.
        self.dispatcher_died = False
        self.spawner = Spawner(self)
        self.commands = Commands(self)
        self.agents = [f"s{n}" for n in range(draw.randint(1, 3))]
        self.finished: set[str] = set()
        self.host: Host | None = None
        for role in (Role.WRITER, Role.BROKER, Role.LAUNCHER):
            self.start(role)
        self.begin_host()
        self.people = [Person(self, f"person{n}") for n in range(draw.choice((0, 1, 2)))]

    # Owners.

    def start(self, role: Role) -> None:
        """Begin a life of an owner."""
        self._lives[role] += 1
        life = f"{role}-{self._lives[role]}"
        network = self.network
        network.note(f"{life} starts")
        if role is Role.WRITER:
            self.disk.writer_died()
            network.start(role, lambda p: WriterCore(p, self.disk, life, p.end), life)
        elif role is Role.BROKER:
            network.start(role, lambda p: BrokerCore(p, p.end, waits=False), life)
            for person in getattr(self, "people", ()):
                person.join()
        elif role is Role.LAUNCHER:
            self.commands = Commands(self)
            network.start(role, lambda p: LauncherCore(p, self.commands, p.end), life)
        else:
            self.spawner = Spawner(self)
            network.start(role, lambda p: self._dispatcher(p, life), life)
            if self.host is not None:
                self.register()
        if self.host is not None:
            self.host.is_back(role)

    def _dispatcher(self, port: Any, life: str) -> DispatcherCore:
        return DispatcherCore(
            port,
            self.spawner,
            port.end,
            incarnation=life,
            approval="ask",
            approval_timeout=self.draw.choice((5.0, 100.0)),
            sandbox="workspace-write",
            workers=self.draw.choice((1, 2)),
        )

    def register(self) -> None:
        """The host tells a dispatcher of its tools."""
        assert self.host is not None
        wire = [WireTool(tool, b"") for tool in TOOLS]
        message = RegisterTools(0, wire, False, False, False, worker_env=[], sys_path=[])
        self.host.peer.say(Role.DISPATCHER, message)

    def begin_host(self) -> None:
        """An embedding process begins, with a dispatcher; agents that are not done go on."""
        self.lives += 1
        self.host = Host(self, f"host{self.lives}")
        self.start(Role.DISPATCHER)
        for name in self.agents:
            if name not in self.finished:
                self.host.begin(name)

    # Crashes.

    def crash(self) -> None:
        """Something ends, by lot."""
        what = self.draw.choice((*sorted(OWNERS), "worker", "host"))
        if what == "worker":
            if self.spawner.workers:
                self.spawner.exit(self.draw.choice(sorted(self.spawner.workers)), "it was killed")
        elif what == "host":
            self._host_dies()
        elif Role(what) in self.network.owners and self.host is not None:
            self.end(Role(what))
            self.after(self.draw.choice((0.0, 0.1, 2.0)), lambda: self._again(Role(what)))

    def _again(self, role: Role) -> None:
        if role not in self.network.owners and self.host is not None:
            self.start(role)

    def end(self, role: Role) -> None:
        """An owner's process ends with what depends on it."""
        if role is Role.DISPATCHER:
            self.dispatcher_died = True
            self.spawner.die()
        elif role is Role.LAUNCHER:
            self.commands.die()
        self.network.kill(role)
        if self.host is not None:
            self.host.lost(role)

    def _host_dies(self) -> None:
        if self.host is None:
            return
        self.network.note("the host ends")
        self.dispatcher_died = True  # it ends as well, when what runs is recorded
        self.host.die()
        self.host = None
        self.network.lose_host()
        self.after(1.0, self._next_runtime)

    def _next_runtime(self) -> None:
        """F1: once the orphaned owners have ended, somebody starts the runtime again."""
        if self.network.owners.keys() & {Role.WRITER, Role.DISPATCHER}:
            self.after(1.0, self._next_runtime)
            return
        for role in list(self.network.owners):
            self.end(role)
        self.spawner.die()
        self.commands.die()
        for role in (Role.WRITER, Role.BROKER, Role.LAUNCHER):
            self.start(role)
        self.begin_host()

    # The outside.

    def next_pid(self) -> int:
        self._pid += 1
        return self._pid

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Call something of the outside later."""
        self.network.timers.at(self.network.now + seconds, lambda: call() and None)

    def answered(self, asked: ApprovalAsked, word: str) -> None:
        if word == "allow":
            self.allowed.add(asked.request)

    def _posted(self, message: Message) -> None:
        """K5: a nested call is released while the body that makes it runs; P4, A1."""
        if isinstance(message, Release | Launch):
            self._released.setdefault(message.number, self.network.now)
            which = message.session, message.message_seq, message.call_id
            again = isinstance(message, Release) and message.attempt > 1  # as somebody asked for
            if which in self._cancelled and not again:
                self.wrong(f"P4: {message.call_id} was released after it had been cancelled")
        if not isinstance(message, Release) or message.tool != "act" or self.network.lost:
            return
        for parent in self.effects:
            same = parent.call_id == message.call_id and parent.session == message.session
            # Of a process that has died the dispatcher hears later.
            if parent.tool == "outer" and same and parent.end not in (None, "died"):
                self.wrong(f"K5: a call under {message.call_id} was released after that had ended")

    def _arrived(self, message: Message) -> None:
        node = self.network.owners.get(Role.DISPATCHER)
        if isinstance(message, CancelCalls) and node is not None:
            self._cancels(node.core, message)
        if isinstance(message, BodyFinished | CommandEnded) and node is not None:
            core: Any = node.core
            waits = core._bodies.find(message.number) is not None
            for effect in self.effects:
                effect.reported |= waits and effect.number == message.number

    def _cancels(self, core: Any, message: CancelCalls) -> None:
        """P4, K4: what is cancelled before its release is not released."""
        step = core._steps.get(message.session)
        if step is None or step.message_seq != message.message_seq:
            return
        for call in step.calls:
            if not call.released and message.call_ids in (None, [call.call_id]):
                self._cancelled.add((message.session, message.message_seq, call.call_id))

    def begins(self, release: Release | Launch) -> Effect:
        """A body begins: what must hold at this moment is looked at now."""
        tool = release.tool if isinstance(release, Release) else "run"
        effect = Effect(
            session=release.session,
            call_id=release.call_id,
            message_seq=release.message_seq,
            tool=tool,
            key=release.idempotency_key,
            attempt=release.attempt if isinstance(release, Release) else 1,
            number=release.number,
            # P8: its time runs from the release, however late that arrives.
            begun=self._released.get(release.number, self.network.now),
        )
        self._look_at(effect)
        self.effects.append(effect)
        self.network.note(f"the world: {tool} {effect.call_id} begins (attempt {effect.attempt})")
        return effect

    def _look_at(self, effect: Effect) -> None:
        log = self.disk.durable(effect.session)
        name = f"{effect.tool} {effect.call_id} in {effect.session}"
        for other in self.effects:
            if other.key != effect.key:
                continue
            if other.end is None:
                self.wrong(f"P9: {name} runs twice at a time")
            if effect.attempt <= other.attempt:
                self.wrong(f"P9: {name} was run again")
            if effect.tool not in ("look", "again", "ask-look"):
                self.wrong(f"R4: {name} writes and was run again")
        call = self._recorded(log, effect)
        if effect.parent is None:
            self._alone(effect, name)
        if call is None:
            self.wrong(f"K2: {name} began before its record was durable")
            return
        asked = {
            e.data["id"]: None
            for e in log
            if e.type == "approval/asked"
            and e.data["callId"] == effect.call_id
            and e.seq > call.seq
        }
        granted = {
            e.data["id"]
            for e in log
            if e.type == "approval/decided" and e.data["outcome"] == "allowed-once"
        }
        if effect.tool in ("ask", "ask-look") and not asked:
            self.wrong(f"A2: {name} began without having been asked about")
        for request in asked:
            if request not in granted:
                self.wrong(f"A2: {name} began before its grant was durable")
            if request not in self.allowed:
                self.wrong(f"A2: {name} began though nobody allowed it")
        if effect.attempt > 1 and not any(
            e.type == "interlock/settled" and e.data.get("callSeq") == call.seq for e in log
        ):
            self.wrong(f"R4: {name} was retried before that was durable")

    def _alone(self, effect: Effect, name: str) -> None:
        """P3: only calls that are declared parallel overlap."""
        parallel = {"look", "ask-look"}
        for other in self.effects:
            same = (other.session, other.message_seq) == (effect.session, effect.message_seq)
            if not same or other.end is not None or other.parent is not None:
                continue
            recent = self.network.now - other.begun < 50.0  # beyond, it may have been given up
            if recent and not {effect.tool, other.tool} <= parallel and not self.network.lost:
                self.wrong(f"P3: {name} began while {other.tool} {other.call_id} ran")

    def _recorded(self, log: list[Event], effect: Effect) -> Event | None:
        parent = next(
            (
                e
                for e in self.effects
                if e.tool == "outer" and e.call_id == effect.call_id and e.session == effect.session
            ),
            None,
        )
        if effect.tool == "act" and parent is not None and parent.key != effect.key:
            effect.parent = parent
            parent.nested.append(effect)
        for event in log:
            same = event.type == "tool/call" and event.data["callId"] == effect.call_id
            if same and event.seq > effect.message_seq:
                return event
        return None

    def wrong(self, what: str) -> None:
        """Note a violation."""
        if what not in self.violations:
            self.violations.append(what)
            self.network.note(f"VIOLATION {what}")

    # Running.

    def run(self) -> World:
        """Lead it to its end."""
        network = self.network
        for _ in range(self.crashes):
            wanted = network.steps + self.draw.choice((5, 40, 150, 400))
            network.settle(lambda wanted=wanted: self.done or network.steps >= wanted)
            if self.done:
                break
            self.crash()
        self.disk.full = 0.0
        network.faults.lost = 0.0
        # Until everybody is done; what is hung runs into its time.
        if not network.settle(lambda: self.done) and not self.done:
            left = sorted(set(self.agents) - self.finished)
            self.wrong(f"the agents {', '.join(left)} never finished")
        self._windows()
        return self

    def _windows(self) -> None:
        """L3: what was appended is written within its window, without that anybody asks for it."""
        node, until = self.network.owners.get(Role.WRITER), self.network.now + 1.0
        if node is None or self.was_full:  # L5: a failed write is not tried again by itself
            return
        self.after(1.0, lambda: None)
        self.network.settle(lambda: self.network.now >= until)
        if self.network.owners.get(Role.WRITER) is node:
            core: Any = node.core
            if core.counters()["unwritten_events"]:
                self.wrong("L3: events are not written though their window has passed")

    @property
    def done(self) -> bool:
        """Whether every agent has finished."""
        return len(self.finished) == len(self.agents)
