"""v2 → v3: the system prompt becomes messages on the surface.

Header: the ``agentPreset`` ``code`` is called ``ptc`` (in ``agent-preset/selected`` as well).

- After the first ``step/start`` an empty ``system/message`` is inserted: the head of the surface.
  At each ``request/header`` whose ``system`` differs from the prompt in force, a ``system/message``
  that replaces the head is inserted before it. ``header.system`` goes.
- The id of such a message is ``v2-to-v3-system-`` and the SHA-256 of
  ``["session-format-v2-to-v3",<session>,<v2 seq of its anchor>,<type of its anchor>]``.
- ``tool/code-dispatch(-start)`` is called ``tool/ptc-dispatch(-start)``, the plugin
  ``tools-code-mode`` is called ``tools-ptc``, and ``surfaceOp`` has ``startSeq`` and ``endSeq``.
- Empty ``tools`` and ``adapterDefaults`` of a ``request/header`` go.
- Events are numbered anew, and what refers to one moves with it.

Refused: whatever the inventory of v2 does not list, to the last member; a surface event before the
first step; a changed prompt outside an open step; a message id that collides with a made one; a
delivery marker of v3, or a foreign one of v2 outside what was inherited.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from .. import jsontext
from ..event import Event, Replace, SurfaceOp
from ..grammar import is_repair_message_id
from ..header import StoredHeader
from .inventory import V2_TYPES, audit, delivery_fault
from .references import SeqMap
from .refusal import Refusal
from .rows import Row
from .sources import messages_of

_MADE = "v2-to-v3-system-"
_SURFACE = frozenset({"user/message", "assistant/message", "tool/result"})
_RENAMED = {
    "tool/code-dispatch-start": "tool/ptc-dispatch-start",
    "tool/code-dispatch": "tool/ptc-dispatch",
}
_WITH_MESSAGES = frozenset({"user/message", "agent/inbox/spliced", "session/title-llm-request"})
_WITH_IDS = _WITH_MESSAGES | {"assistant/message", "tool/result"}
_WITH_NAMES = _WITH_MESSAGES | _RENAMED.keys() | {"agent-preset/selected"}


class V2ToV3:
    """The edge, for one log. Holds the prompt in force and where each event went."""

    def __init__(self, source: StoredHeader) -> None:
        header = source.header
        if header.agent_preset == "code":
            header = msgspec.structs.replace(header, agent_preset="ptc")
        self.header = StoredHeader(3, header)
        self._session = header.id
        self._map = SeqMap()
        self._next = 0
        self._head: int | None = None
        self._prompt = ""
        self._turn_step: tuple[Any, Any] | None = None
        self._cut: int | None = None
        self._foreign_delivery: int | None = None
        self._made_ids: set[str] = set()
        # Ids of source messages that look like made ones: nothing else can collide.
        self._suspect_ids: set[str] = set()

    def events(self, rows: Iterable[Row]) -> Iterator[Event]:
        """Yield the current events. Raises :class:`Refusal`."""
        for row in rows:
            yield from self.take(row)
        self.finish()

    def take(self, row: Row) -> list[Event]:
        """Return what becomes of the next event. Raises :class:`Refusal`."""
        kind, anchor, time = row.type, row.seq, row.time
        if anchor != len(self._map):
            raise Refusal("its events are not numbered without gaps", seq=anchor)
        if kind not in V2_TYPES:
            raise Refusal(f"it holds the unknown event type {kind!r}", seq=anchor)
        made: list[Event] = []
        prompt = self._take_prompt(row) if kind == "request/header" else None
        self._check(row)
        if prompt is not None and prompt != self._prompt:
            made.append(self._system(prompt, anchor, kind, time))
        self._map.move(row)
        self._map.append(self._next)
        if kind in _WITH_NAMES:
            self._rename(row)
        sources = row.sourceEventSeqs
        event = Event(
            row.type,
            self._next,
            time,
            None,
            row.ignorable is True,
            None if row.surfaceOp is UNSET else _operation(row),
            None if sources is UNSET else tuple(sources),
            row.data,
        )
        self._next += 1
        made.append(event)
        if kind == "step/start":
            self._turn_step = (row.data["turn"], row.data["step"])
            if self._head is None:
                made.append(self._system("", anchor, kind, time))
        elif kind in ("step/end", "turn/end"):
            self._turn_step = None
        return made

    def finish(self) -> None:
        """Check what only the log's end decides. Raises :class:`Refusal`."""
        foreign, cut = self._foreign_delivery, self._cut or 0
        if foreign is not None and (self.header.header.parent_session is None or foreign >= cut):
            raise Refusal("a delivery marker names another session", seq=foreign)

    def _take_prompt(self, row: Row) -> str:
        """Take ``system`` out of a request's header, and what v3 does not store empty."""
        header = row.data.get("header")
        if not isinstance(header, dict):
            raise Refusal("request/header has no header object", seq=row.seq)
        prompt = header.pop("system", "")
        if not isinstance(prompt, str):
            raise Refusal("request/header has a system prompt that is no text", seq=row.seq)
        if header.get("tools") == []:
            del header["tools"]
        if header.get("adapterDefaults") == {}:
            del header["adapterDefaults"]
        return prompt

    def _check(self, row: Row) -> None:
        kind, data = row.type, row.data
        audit(row)
        if kind in _SURFACE:
            if row.surfaceOp is UNSET:
                raise Refusal(f"{kind} has no surfaceOp", seq=row.seq)
            if kind == "assistant/message" and row.sourceEventSeqs is not UNSET:
                raise Refusal("assistant/message has sources", seq=row.seq)
            if self._head is None:
                raise Refusal(
                    "a message stands before the first step, where no system prompt can precede it",
                    seq=row.seq,
                )
            if kind == "tool/result":
                _check_result(row)
        elif row.surfaceOp is not UNSET or row.sourceEventSeqs is not UNSET:
            raise Refusal(f"{kind} may have neither surfaceOp nor sourceEventSeqs", seq=row.seq)
        if kind == "session/end-seed" and data.get("inherited") is True:
            self._cut = row.seq
        elif kind == "session-log-deepseek/delivery-accepted":
            self._check_delivery(row)
        if kind in _WITH_IDS:
            self._note_ids(row)

    def _check_delivery(self, row: Row) -> None:
        data = row.data
        version = data.get("sessionFormatVersion")
        if version == 3:
            raise Refusal("a delivery marker claims to be of v3", seq=row.seq)
        fault = delivery_fault(row, 2)
        if fault is not None:
            raise Refusal(fault, seq=row.seq)
        if version == 2 and data["sessionId"] != self._session:
            self._foreign_delivery = row.seq

    def _note_ids(self, row: Row) -> None:
        wrapped = row.type not in _WITH_MESSAGES
        messages = (row.data["message"],) if wrapped else messages_of(row.data)
        for message in messages:
            if looks_made(message["id"]):
                if message["id"] in self._made_ids:
                    raise Refusal("a message has the id of a made system message", seq=row.seq)
                self._suspect_ids.add(message["id"])

    def _system(self, prompt: str, anchor: int, kind: str, time: int) -> Event:
        """Return the message that puts a prompt in force."""
        if self._turn_step is None:
            raise Refusal("the system prompt changes outside an open step", seq=anchor)
        identity = jsontext.dumps(["session-format-v2-to-v3", self._session, anchor, kind])
        message_id = _MADE + hashlib.sha256(identity).hexdigest()
        if message_id in self._suspect_ids:
            raise Refusal("a message has the id of a made system message", seq=anchor)
        self._made_ids.add(message_id)
        turn, step = self._turn_step
        data = {
            "turn": turn,
            "step": step,
            "message": {
                "id": message_id,
                "role": "system",
                "source": {"kind": "plugin", "plugin": "@deepseek-ai/dsh-system-prompt"},
                "content": [{"type": "text", "text": prompt}] if prompt else [],
            },
        }
        head, seq = self._head, self._next
        operation: SurfaceOp = "append" if head is None else Replace(head, head)
        sources = None if head is None else (head,)
        event = Event("system/message", seq, time, None, False, operation, sources, data)
        self._head, self._prompt = seq, prompt
        self._next += 1
        return event

    def _rename(self, row: Row) -> None:
        kind = row.type
        row.type = _RENAMED.get(kind, kind)
        if kind == "agent-preset/selected":
            if row.data["agentPreset"] == "code":
                row.data["agentPreset"] = "ptc"
        elif kind in _WITH_MESSAGES:
            for message in messages_of(row.data):
                source = message["source"]
                if source["kind"] == "plugin" and source["plugin"] == "tools-code-mode":
                    source["plugin"] = "tools-ptc"


def looks_made(message_id: str) -> bool:
    """Tell whether a message's id is like those of the system messages that are made here."""
    return message_id.startswith(_MADE)


def _operation(row: Row) -> SurfaceOp:
    """Return a moved row's surface operation as v3 has it."""
    value = row.surfaceOp
    if value == "append":
        return "append"
    if value["op"] != "replace":
        raise Refusal(f"{row.type} has a malformed surfaceOp", seq=row.seq)
    return Replace(value["start"], value["end"])


def _check_result(row: Row) -> None:
    message, error = row.data["message"], row.data.get("error")
    block, call_id = message["content"][0], message["source"]["callId"]
    if block["toolCallId"] != call_id:
        raise Refusal("a tool/result's block and source name different calls", seq=row.seq)
    if error is None:
        return
    if block.get("isError") is not True:
        raise Refusal("a tool/result has an error and is not marked as one", seq=row.seq)
    if error["code"] == "TOOL_NOT_STARTED" and not is_repair_message_id(message["id"], call_id):
        raise Refusal("a TOOL_NOT_STARTED result has not the id of a repair", seq=row.seq)
