"""Subscribers of one session: items by credit, and an honest word to one that lags.

Queues towards a subscriber are not bounded by dropping. Each may have :data:`CREDIT` items that it
has not acknowledged; beyond that nothing is queued, and when it has caught up it is told from which
``seq`` the stream goes on, so that it re-reads the log in between.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..messages import Message, StreamItem, StreamLagged

#: Items a subscriber may have outstanding before it is told that it lagged.
CREDIT = 256


@dataclass
class Subscriber:
    """One connection that follows the session."""

    outstanding: int = 0
    lagging: bool = False


@dataclass
class Streams:
    """The subscribers of one session, by connection."""

    subscribers: dict[bytes, Subscriber] = field(default_factory=dict)

    def add(self, identity: bytes) -> None:
        self.subscribers[identity] = Subscriber()

    def remove(self, identity: bytes) -> None:
        self.subscribers.pop(identity, None)

    def publish(self, item: StreamItem) -> list[tuple[bytes, Message]]:
        """What to send for ``item``: nothing to those without credit left."""
        out: list[tuple[bytes, Message]] = []
        for identity, subscriber in self.subscribers.items():
            if subscriber.outstanding >= CREDIT:
                subscriber.lagging = True
            if not subscriber.lagging:
                subscriber.outstanding += 1
                out.append((identity, item))
        return out

    def acknowledge(
        self,
        identity: bytes,
        count: int,
        next_seq: int,
        durable_seq: int,
        incarnation: str,
        session: str,
    ) -> StreamLagged | None:
        """Give back credit; the word to a lagging subscriber once it has taken everything."""
        subscriber = self.subscribers.get(identity)
        if subscriber is None:
            return None
        subscriber.outstanding = max(0, subscriber.outstanding - count)
        if subscriber.lagging and subscriber.outstanding == 0:
            subscriber.lagging = False
            subscriber.outstanding = 1
            return StreamLagged(session, next_seq, durable_seq, incarnation)
        return None
