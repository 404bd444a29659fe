"""A network that a seed leads: which connection delivers next, what is late, lost, said twice."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from interlock.actors.messages import (
    AnswerApproval,
    Appended,
    ApprovalAsked,
    ApprovalSettled,
    BodyFinished,
    CancelCalls,
    ExecuteStep,
    Message,
    Release,
    StepExecuted,
)
from interlock.actors.roles import Role
from virtual import Network

#: What may come twice (a peer that sends again, a replay). An append never does: one connection is
#: one queue.
TWICE = (
    AnswerApproval,
    Appended,
    ApprovalAsked,
    ApprovalSettled,
    BodyFinished,
    CancelCalls,
    ExecuteStep,
    Release,
    StepExecuted,
)
#: What may be lost while both ends live: where it is, somebody has to notice by time.
LOST = (Appended, ApprovalAsked, ApprovalSettled, BodyFinished, Release, StepExecuted)
#: Steps after which a run is going in circles.
TOO_MANY = 60_000

Way = tuple[bytes, bytes]


@dataclass
class Faults:
    """How likely, for each message, each fault is."""

    late: float = 0.0
    twice: float = 0.0
    lost: float = 0.0


class SeededNetwork(Network):
    """Messages of one connection keep their order; between connections a seed decides."""

    def __init__(self, draw: random.Random, faults: Faults) -> None:
        super().__init__()
        self.draw, self.faults = draw, faults
        self._ways: dict[Way, deque[tuple[float, Role | None, Callable[[], None]]]] = {}
        #: What happens now, for a readable account; None keeps none.
        self.trace: list[str] | None = None
        self.lost: list[Message] = []
        #: Called with each message when it is sent.
        self.posted: Callable[[Message], None] = lambda _message: None
        #: Called with each message when it arrives.
        self.arrived: Callable[[Message], None] = lambda _message: None
        self.steps = 0

    def note(self, text: str) -> None:
        """Write a line of the account."""
        if self.trace is not None:
            self.trace.append(f"{self.now - 1000:9.3f}  {text}")

    def post(self, way: Way, role: Role | None, call: Callable[[], None], message: Message) -> None:
        """Put a message on its connection."""
        self.posted(message)
        faults, draw = self.faults, self.draw
        if faults.lost and isinstance(message, LOST) and draw.random() < faults.lost:
            self.lost.append(message)
            self.note(f"lost: {_words(way, message)}")
            return
        due = self.now
        if faults.late and draw.random() < faults.late:
            due += draw.choice((0.001, 0.05, 1.0, 40.0))
        queue = self._ways.setdefault(way, deque())
        queue.append((due, role, lambda: self._deliver(way, message, call)))
        if faults.twice and isinstance(message, TWICE) and draw.random() < faults.twice:
            again = due + draw.choice((0.0, 0.01, 5.0))
            queue.append((again, role, lambda: self._deliver(way, message, call)))

    def _deliver(self, way: Way, message: Message, call: Callable[[], None]) -> None:
        if self.trace is not None:
            self.note(_words(way, message))
        self.arrived(message)
        call()

    def kill(self, role: Role) -> None:
        node = self.owners.get(role)
        if node is not None:
            self.note(f"the {role} ends")
            own = node.port.identity
            # A connection that is given up takes what came over it and was not looked at yet.
            self._ways = {
                way: queue
                for way, queue in self._ways.items()
                if way[1] != own and not (way[0] == own and way[1] in self.peers)
            }
            # What a process had sent before its end lies with the receiver.
            for way, queue in self._ways.items():
                if way[0] == own:
                    self._ways[way] = deque((min(due, self.now), r, c) for due, r, c in queue)
        super().kill(role)

    # Scheduling.

    def step(self) -> bool:
        """Do one thing that can be done now; False where only time can help."""
        choices = [way for way, queue in self._ways.items() if queue and queue[0][0] <= self.now]
        count = len(choices) + bool(self._queue) + bool(self._touched)
        if not count:
            return False
        at = self.draw.randrange(count)
        if at < len(choices):
            queue = self._ways[choices[at]]
            _, role, call = queue.popleft()
            if not queue:
                del self._ways[choices[at]]
            self._call(role, call)
        elif at == len(choices) and self._queue:
            self._call(*self._queue.popleft())
        else:
            role = self.draw.choice(sorted(self._touched))
            self._touched.discard(role)
            if role in self.owners:
                self.owners[role].core.batch_done()
        return True

    def _call(self, role: Role | None, call: Callable[[], None]) -> None:
        if role is None or role in self.owners:
            call()
        if role is not None:
            self._touched.add(role)

    def wait(self) -> bool:
        """Let time pass until something is due; False where nothing will be."""
        times = [queue[0][0] for queue in self._ways.values() if queue]
        timer = self.timers.next()
        if timer is not None:
            times.append(timer)
        if not times:
            return False
        self.now = max(self.now, min(times))
        self.timers.run(self.now)
        return True

    def settle(self, until: Callable[[], bool]) -> bool:
        """Go on until ``until`` holds; False where nothing moves any more before."""
        while not until():
            self.steps += 1
            if self.steps > TOO_MANY:
                raise AssertionError("the run goes in circles")
            if not self.step() and not self.wait():
                return False
        return True


def _words(way: Way, message: Message) -> str:
    sender, receiver = (end.decode("utf-8", "replace").replace("\0", "") for end in way)
    text = repr(message)
    return f"{sender} -> {receiver}: {text if len(text) < 240 else text[:240] + '…'}"
