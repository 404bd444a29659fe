"""A command's output, held within a limit: its head and its tail, and how much was cut between."""

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Output:
    """One stream of a command, as bytes.

    head, tail: what was kept; together the whole stream where ``cut`` is 0.
    total: bytes the command wrote. cut: bytes of them that were not kept.
    """

    head: bytes = b""
    tail: bytes = b""
    total: int = 0
    cut: int = 0

    def text(self) -> str:
        """The stream as text; bytes that are not UTF-8 are replaced, and a cut is stated."""
        if not self.cut:
            return (self.head + self.tail).decode(errors="replace")
        head, tail = self.head.decode(errors="replace"), self.tail.decode(errors="replace")
        return f"{head}\n[... {self.cut} of {self.total} bytes cut ...]\n{tail}"


class Collector:
    """Takes a stream in pieces and keeps at most ``limit`` bytes of it: half head, half tail."""

    def __init__(self, limit: int) -> None:
        self._room = limit - limit // 2
        self._most = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._kept = 0
        self._total = 0

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self._total += len(piece)
        space = self._room - len(self._head)
        self._head += piece[:space]
        rest = piece[space:]
        if not rest:
            return
        self._tail.append(rest[-self._most :] if self._most else b"")
        self._kept += len(self._tail[-1])
        while self._kept - len(self._tail[0]) >= self._most and len(self._tail) > 1:
            self._kept -= len(self._tail.popleft())

    def result(self) -> Output:
        """What was kept so far."""
        joined = b"".join(self._tail)
        tail = joined[-self._most :] if self._most else b""
        kept = len(self._head) + len(tail)
        return Output(bytes(self._head), tail, self._total, self._total - kept)
