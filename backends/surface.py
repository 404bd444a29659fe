"""The surface: which messages a model sees, in order, and what may take the place of what.

Kept as two flat arrays (12 bytes an entry), since a long log's surface stays in memory.
"""

from __future__ import annotations

from array import array

from .event import Event, Replace

_KINDS = {"user/message": 0, "assistant/message": 1, "tool/result": 2, "system/message": 3}
_TOOL_RESULT = _KINDS["tool/result"]
_DIGEST = 0xFFFF_FFFC


class SurfaceError(ValueError):
    """An event breaks a rule of the surface; the text says which."""


class Surface:
    """The seqs now on the surface, in surface order, and the protected system head if any."""

    __slots__ = ("_seqs", "_tags", "first_type", "head")

    def __init__(self) -> None:
        self._seqs = array("q")
        # Kind in the low two bits; above them, for a tool result, a digest of its call id.
        self._tags = array("I")
        #: The type of the first event that ever entered the surface.
        self.first_type: str | None = None
        #: The seq of the system message that only a system message may replace.
        self.head: int | None = None

    def __len__(self) -> int:
        return len(self._seqs)

    def span(self, start_seq: int, end_seq: int) -> list[int] | None:
        """Return the seqs from ``start_seq`` to ``end_seq``, or None if they name no span."""
        bounds = self._bounds(start_seq, end_seq)
        return None if bounds is None else list(self._seqs[bounds[0] : bounds[1]])

    def check(self, event: Event) -> None:
        """Check a surface event against what is there; :class:`SurfaceError` says why not."""
        operation = event.surface_op
        system = event.type == "system/message"
        if system and self.first_type is not None and self.head is None:
            raise SurfaceError("system/message needs a system message as the first surface event")
        if not isinstance(operation, Replace):
            return
        bounds = self._bounds(operation.start_seq, operation.end_seq)
        if bounds is None:
            raise SurfaceError("the replacement names no span of the current surface")
        start, end = bounds
        hidden = self._seqs[start:end]
        if self.head is not None and self.head in hidden:
            if not system:
                raise SurfaceError("only a system message may replace the system head")
            if len(hidden) != 1:
                raise SurfaceError("a system message must replace exactly the system head")
        if not set(hidden).issubset(event.sources or ()):
            raise SurfaceError("sourceEventSeqs omit an event that the replacement hides")
        if event.type == "tool/result" and list(self._tags[start:end]) != [_tag(event)]:
            raise SurfaceError("a tool result may replace exactly one result of the same call")

    def apply(self, event: Event) -> None:
        """Enter a checked event."""
        operation = event.surface_op
        system = event.type == "system/message"
        tag = _tag(event)
        if isinstance(operation, Replace):
            bounds = self._bounds(operation.start_seq, operation.end_seq)
            if bounds is None:
                return
            start, end = bounds
            if self.head is not None and self.head in self._seqs[start:end]:
                self.head = event.seq
            self._seqs[start:end] = array("q", (event.seq,))
            self._tags[start:end] = array("I", (tag,))
        else:
            if system and self.first_type is None:
                self.head = event.seq
            self._seqs.append(event.seq)
            self._tags.append(tag)
        if self.first_type is None:
            self.first_type = event.type

    def enter(self, event: Event) -> None:
        """Check a surface event and enter it; :class:`SurfaceError` says why not."""
        if event.surface_op == "append" and event.type != "system/message":
            self.append(event.type, event.seq, _call_of(event))
        else:
            self.check(event)
            self.apply(event)

    def append(self, kind: str, seq: int, call_id: str = "") -> None:
        """Enter an event at the end, no system message; ``call_id`` is a tool result's call."""
        self._seqs.append(seq)
        self._tags.append(_tag_of(kind, call_id))
        if self.first_type is None:
            self.first_type = kind

    def copy(self) -> Surface:
        """Return an independent copy."""
        other = Surface()
        other._seqs, other._tags = self._seqs[:], self._tags[:]
        other.first_type, other.head = self.first_type, self.head
        return other

    def cut(self, length: int, first_type: str | None, head: int | None) -> None:
        """Undo appends: go back to an earlier length, first type and head."""
        del self._seqs[length:], self._tags[length:]
        self.first_type, self.head = first_type, head

    def _bounds(self, start_seq: int, end_seq: int) -> tuple[int, int] | None:
        try:
            start = self._seqs.index(start_seq)
            end = start if end_seq == start_seq else self._seqs.index(end_seq, start)
        except ValueError:
            return None
        return start, end + 1


def _tag(event: Event) -> int:
    return _tag_of(event.type, _call_of(event))


def _call_of(event: Event) -> str:
    call_id = event.data["message"]["source"]["callId"] if event.type == "tool/result" else ""
    return str(call_id)


def _tag_of(kind: str, call_id: str) -> int:
    tag = _KINDS[kind]
    # Only compared with others of this process.
    return tag if tag != _TOOL_RESULT else hash(call_id) & _DIGEST | tag
