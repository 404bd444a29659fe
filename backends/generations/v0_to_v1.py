"""v0 → v1: the same layout; what the first builds wrote in older shapes gets the later one.

Header: ``version`` only. Events keep seq, time, order and count; packed runs pass as they are.
Rewritten:

- ``steering/message`` becomes ``user/message``; ``compact/*`` becomes ``compaction/*``, and one
  without ``compactionId`` gets ``legacy-compaction:<session>:<seq of its start>``.
- ``turn/start.trigger`` and ``request/header.header.messagePrefix`` are dropped.
- ``turn/end.reason``: ``aborted`` without a reason, ``disposed``, and ``error`` with a step.
- Messages without an id are wrapped and get ``legacy-message:<session>:<seq>``; a ``tool/result``
  that replaces another takes that one's id. ``provenance`` becomes ``source``.
- ``llm/retry`` without ``retryId`` gets ``legacy-retry:<session>:<seq>``, shared along its chain.

Refused: event types outside the frozen v0 inventory, ignorable or not; ``request/header-delta``,
``mode/set`` and the reason ``fallback``; unexpected header members; ``subagent/descriptor`` of
another version; a delivery marker that names another session (unless inherited); members that the
inventory does not list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeGuard

from ..header import StoredHeader
from .inventory import V0_TYPES, check_members, delivery_fault
from .refusal import Refusal
from .rows import Item, Row, Run

#: Types that only v0 has, and what they are called from v1 on.
RENAMED = {
    "compact/start": "compaction/start",
    "compact/summary": "compaction/summary",
    "compact/end": "compaction/end",
    "compact/prune": "compaction/prune",
}
#: Ends of a turn that say nothing else.
_BARE_ENDS = frozenset({"completed", "blocked", "max-tokens", "interrupted", "disposed"})
_OLD_ABORTS = frozenset({"aborted", "disposed"})
#: What an old failure may say, and as what.
_FAILURE: dict[str, type | tuple[type, ...]] = {
    "message": str,
    "code": str,
    "status": (int, float),
    "providerRetryAfterMs": (int, float),
    "requestId": str,
}
_CHECKED = frozenset(
    {"request/header", "subagent/descriptor", "session-log-deepseek/delivery-accepted"}
)


class V0ToV1:
    """The edge, for one log."""

    def __init__(self, source: StoredHeader) -> None:
        if source.unexpected:
            raise Refusal(f"its header has the unexpected member {source.unexpected[0]!r}")
        self.header = StoredHeader(1, source.header, source.inherited)
        self._normalizer = Normalizer(source)
        #: Ids of tool results by seq.
        self.results = self._normalizer.results

    def events(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items of v1. Raises :class:`Refusal`."""
        for item in items:
            self.take(item)
            yield item

    def take(self, item: Item) -> None:
        """Make the next item, in place, one of v1. Raises :class:`Refusal`."""
        if not isinstance(item, Run):
            self._normalizer.normalize(item)
            if item.type not in V0_TYPES or item.type in _CHECKED:
                self._check(item)

    def _check(self, row: Row) -> None:
        kind, data = row.type, row.data
        if kind not in V0_TYPES:
            raise Refusal(f"it holds the unknown event type {kind!r}", seq=row.seq)
        if kind == "request/header" and data.get("reason") == "fallback":
            raise Refusal("request/header has the retired reason 'fallback'", seq=row.seq)
        if kind == "subagent/descriptor" and data.get("version") != 3:
            raise Refusal("a subagent/descriptor is not of version 3", seq=row.seq)
        if kind == "session-log-deepseek/delivery-accepted":
            check_members(row, ("sessionId", "throughSeq"))
            header, inherited = self.header.header, self.header.inherited or 0
            owed = header.parent_session is None or row.seq >= inherited
            fault = delivery_fault(row, 0)
            if fault is None and owed and data["sessionId"] != header.id:
                fault = "a delivery marker names another session"
            if fault is not None:
                raise Refusal(fault, seq=row.seq)


class Normalizer:
    """Gives v0 events their later shapes, in place. ``keep_prefix`` keeps ``messagePrefix``."""

    def __init__(self, source: StoredHeader, *, keep_prefix: bool = False) -> None:
        self._session = source.header.id
        self._keep_prefix = keep_prefix
        self._compaction: str | None = None
        self._retries: dict[str, str] = {}
        # Ids of tool results by seq: what a replacement in the oldest shape takes over.
        self.results: dict[int, str] = {}
        self._rules: dict[str, Callable[[Row], None]] = {
            "turn/start": self._turn_start,
            "turn/end": self._turn_end,
            "request/header": self._request_header,
            "steering/message": self._steering,
            "user/message": self._user_message,
            "assistant/message": self._assistant_message,
            "tool/result": self._tool_result,
            "llm/retry": self._retry,
            "session/end-seed": self._end_seed,
            "compaction/start": self._compaction_start,
            "compaction/summary": self._compaction_member,
            "compaction/end": self._compaction_end,
        }

    def normalize(self, row: Row) -> None:
        """Rewrite one event. Raises :class:`Refusal` for an old shape that is malformed."""
        if row.type in RENAMED:
            row.type = RENAMED[row.type]
        rule = self._rules.get(row.type)
        if rule is not None:
            rule(row)

    def _turn_start(self, row: Row) -> None:
        data = row.data
        if "trigger" not in data:
            return
        check_members(row, ("turn", "trigger"))
        trigger = data["trigger"]
        kind = trigger.get("kind") if isinstance(trigger, dict) else None
        if not _is_count(data["turn"], 1) or not isinstance(kind, str) or not kind:
            raise Refusal("turn/start has a malformed turn or trigger", seq=row.seq)
        del data["trigger"]

    def _turn_end(self, row: Row) -> None:
        check_members(row, ("turn", "reason"))
        reason = row.data["reason"]
        kind = reason.get("kind") if isinstance(reason, dict) else None
        if not _is_count(row.data["turn"], 1) or not isinstance(kind, str):
            raise Refusal("turn/end has a malformed turn or reason", seq=row.seq)
        if kind == "error" and "error" not in reason:
            row.data["reason"] = {"kind": "error", "error": _failure(reason, row.seq)}
        elif kind in _BARE_ENDS or (kind == "aborted" and "reason" not in reason):
            if reason.keys() != {"kind"}:
                raise Refusal("turn/end has a malformed reason", seq=row.seq)
            if kind not in _OLD_ABORTS:
                return
            by = "legacy" if kind == "aborted" else kind
            row.data["reason"] = {"kind": "aborted", "reason": {"kind": by}}

    def _request_header(self, row: Row) -> None:
        header = row.data.get("header")
        if not isinstance(header, dict) or "messagePrefix" not in header:
            return
        if not isinstance(header["messagePrefix"], list):
            raise Refusal("request/header has a malformed messagePrefix", seq=row.seq)
        if not self._keep_prefix:
            del header["messagePrefix"]

    def _steering(self, row: Row) -> None:
        data = row.data
        wrapped = "message" in data
        check_members(row, ("turn", "message") if wrapped else ("turn", "content", "source"))
        if not _is_count(data["turn"], 0):
            raise Refusal("steering/message has a malformed turn", seq=row.seq)
        row.type = "user/message"
        if wrapped:
            if not isinstance(data["message"], dict):
                raise Refusal("steering/message has a malformed message", seq=row.seq)
            row.data = data["message"]
        else:
            del data["turn"]
        self._user_message(row)

    def _user_message(self, row: Row) -> None:
        data = row.data
        source = data.get("source")
        if isinstance(source, dict) and self._compaction is not None:
            ours = source.get("kind") == "plugin" and source.get("plugin") == "compact"
            if ours and "compactionId" not in source:
                source["compactionId"] = self._compaction
        if "content" in data and "source" in data and not data.keys() & {"id", "role", "message"}:
            data["id"] = self._message_id(row.seq)
            data["role"] = "user"

    def _assistant_message(self, row: Row) -> None:
        data = row.data
        if "message" in data or "content" not in data or "provenance" not in data:
            return
        provenance = data.pop("provenance")
        if not isinstance(provenance, dict):
            raise Refusal("assistant/message has a malformed provenance", seq=row.seq)
        data["message"] = {
            "id": self._message_id(row.seq),
            "role": "assistant",
            "content": data.pop("content"),
            "source": {**provenance, "kind": "model"},
        }

    def _tool_result(self, row: Row) -> None:
        data = row.data
        call_id, is_error = data.get("callId"), data.get("isError")
        old = "message" not in data and "content" in data
        if old and isinstance(call_id, str) and isinstance(is_error, bool):
            del data["callId"], data["isError"]
            block = {
                "type": "tool-result",
                "toolCallId": call_id,
                "content": data.pop("content"),
                "isError": is_error,
            }
            data["message"] = {
                "id": self._result_id(row),
                "role": "user",
                "content": [block],
                "source": {"kind": "tool", "callId": call_id},
            }
        message = data.get("message")
        if isinstance(message, dict) and isinstance(message.get("id"), str):
            self.results[row.seq] = message["id"]

    def _result_id(self, row: Row) -> str:
        operation = row.surfaceOp
        if not isinstance(operation, dict) or operation.get("op") != "replace":
            return self._message_id(row.seq)
        start = operation.get("start")
        found = self.results.get(start) if isinstance(start, int) else None
        if found is None:
            raise Refusal("a tool/result replaces an event that is no result", seq=row.seq)
        return found

    def _retry(self, row: Row) -> None:
        data = row.data
        chain = json.dumps([data.get(key) for key in ("turn", "step", "provider", "policyKey")])
        given = data.get("retryId")
        if isinstance(given, str) and given:
            self._retries[chain] = given
        elif "retryId" not in data:
            made = f"legacy-retry:{self._session}:{row.seq}"
            data["retryId"] = self._retries.setdefault(chain, made)

    def _end_seed(self, _row: Row) -> None:
        self._compaction = None

    def _compaction_start(self, row: Row) -> None:
        data = row.data
        if "compactionId" not in data:
            data["compactionId"] = f"legacy-compaction:{self._session}:{row.seq}"
        given = data["compactionId"]
        if isinstance(given, str) and given:
            self._compaction = given

    def _compaction_member(self, row: Row) -> None:
        if self._compaction is not None:
            row.data.setdefault("compactionId", self._compaction)

    def _compaction_end(self, row: Row) -> None:
        self._compaction_member(row)
        self._compaction = None

    def _message_id(self, seq: int) -> str:
        return f"legacy-message:{self._session}:{seq}"


def _failure(reason: dict[str, Any], seq: int) -> dict[str, Any]:
    """Return the failure that an old ``error`` reason holds."""
    if not _is_count(reason.get("step"), 0):
        raise Refusal("turn/end has an error without its step", seq=seq)
    failure = reason.get("failure")
    if reason.keys() == {"kind", "step", "failure"} and _is_failure(failure):
        return dict(failure)
    if reason.keys() in ({"kind", "step", "message"}, {"kind", "step", "message", "code"}):
        told = {"message": reason["message"], "code": reason.get("code", "UNKNOWN")}
        if _is_failure(told):
            return told
    raise Refusal("turn/end has a malformed error", seq=seq)


def _is_failure(failure: Any) -> TypeGuard[dict[str, Any]]:
    if not isinstance(failure, dict) or not {"message", "code"} <= failure.keys():
        return False
    return all(
        isinstance(value, _FAILURE.get(name, ())) and not isinstance(value, bool)
        for name, value in failure.items()
    )


def _is_count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
