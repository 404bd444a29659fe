"""Who may be asked: every answerer that has joined, and which requests it takes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ..messages import AskApproval, BecomeAnswerer

#: Answerers that one connection may have; more are nobody's need.
MOST = 256


@dataclass(frozen=True)
class Answerer:
    """One answerer: a name on a connection, and the patterns of what it takes."""

    identity: bytes
    name: str
    sessions: tuple[str, ...]
    tools: tuple[str, ...]

    def takes(self, asked: AskApproval) -> bool:
        """Whether the request is for it: its session and its tool match (nothing given: all)."""
        return _matches(self.sessions, asked.session) and _matches(self.tools, asked.tool)


def _matches(patterns: tuple[str, ...], text: str) -> bool:
    return not patterns or any(fnmatchcase(text, pattern) for pattern in patterns)


class Answerers:
    """The answerers that have joined, by connection and name. Runs in the broker's thread."""

    def __init__(self) -> None:
        self._joined: dict[bytes, dict[str, Answerer]] = {}

    def __len__(self) -> int:
        return sum(len(names) for names in self._joined.values())

    def join(self, identity: bytes, message: BecomeAnswerer) -> Answerer | None:
        """Take one in, or change what it takes; None where its connection has too many."""
        names = self._joined.setdefault(identity, {})
        if message.name not in names and len(names) >= MOST:
            return None
        one = Answerer(identity, message.name, tuple(message.sessions), tuple(message.tools))
        names[message.name] = one
        return one

    def leave(self, identity: bytes, name: str = "") -> None:
        """Forget one, or (an empty name) all of its connection."""
        names = self._joined.get(identity, {})
        names.pop(name, None)
        if not name or not names:
            self._joined.pop(identity, None)

    def connections(self) -> list[bytes]:
        """The connections that somebody has joined over."""
        return list(self._joined)

    def taking(self, asked: AskApproval) -> list[Answerer]:
        """Whom to show the request."""
        return [one for one in self._all() if one.takes(asked)]

    def may_answer(self, identity: bytes, asked: AskApproval) -> bool:
        """Whether an answer of this connection counts: it was asked, or it asked to be shown
        nothing (it has the key, and names the request).
        """
        names = self._joined.get(identity)
        return names is None or any(one.takes(asked) for one in names.values())

    def named(self, identity: bytes, name: str) -> set[tuple[bytes, str]]:
        """The answerer ``name`` of the connection; all of it where none is called that."""
        names = self._joined.get(identity, {})
        return {(identity, one) for one in ([name] if name in names else names)}

    def _all(self) -> Iterable[Answerer]:
        for names in self._joined.values():
            yield from names.values()
