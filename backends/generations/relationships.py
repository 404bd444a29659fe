"""The rules between events that a migrated log must keep, as the harness's restorer has them.

``grammar`` has the same rules and more of them, for what Interlock appends. A log that the harness
wrote owes it only these: what it accepts is not refused here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from ..event import Event, Replace
from ..fold import LogFold
from ..grammar import NOT_STARTED_TEXT, is_repair_message_id
from .refusal import Refusal

Data = dict[str, Any]


class _Compaction:
    """The compaction under way. ``crossed`` is a turn's boundary inside it: only a seed's end, with
    which the compaction ends as well, makes that good."""

    def __init__(self, data: Data) -> None:
        self.id = data["compactionId"]
        self.command = data.get("sourceCommandId")
        self.turn = data["turn"]
        self.summarized = False
        self.crossed: str | None = None


class Relationships:
    """Checks a migrated log's events one by one; :class:`Refusal` says which rule is broken.

    ``fold`` is the log's state, kept by the caller: before or after the event, since what is asked
    of it (the surface, a person's messages) is only asked for events that change neither.
    """

    def __init__(self, fold: LogFold) -> None:
        self._fold = fold
        self._turn: int | None = None
        self._step: int | None = None
        self._next_turn = 1
        self._next_step = 1
        self._provider: Any = None
        # The open step's calls: advertised with name and arguments, then started.
        self._calls: dict[str, tuple[str, str, bool]] = {}
        self._compaction: _Compaction | None = None
        self._commands: set[str] = set()
        self._command_events: set[int] = set()
        self._dispatch_roots: dict[str, str] = {}
        self._dispatches: dict[str, tuple[Any, ...] | None] = {}
        self._chains: dict[tuple[Any, ...], tuple[int, str]] = {}
        self._retry_ids: set[str] = set()
        self._scheduled: dict[tuple[str, int], tuple[int, int]] = {}
        self._started: set[tuple[str, int]] = set()

    def check(self, event: Event) -> None:
        """Check the next event against those before it, and take it in."""
        rule = _RULES.get(event.type)
        if rule is not None:
            rule(self, event, event.data)

    def finish(self) -> None:
        """Check what only the log's end decides."""
        self._uncrossed()

    def _turn_start(self, _event: Event, data: Data) -> None:
        self._cross("turn/start")
        if self._turn is not None or data["turn"] != self._next_turn:
            self._refuse(f"turn/start {data['turn']} does not open turn {self._next_turn}")
        self._turn, self._step, self._next_step = data["turn"], None, 1
        self._calls.clear()

    def _turn_end(self, _event: Event, data: Data) -> None:
        self._cross("turn/end")
        if self._turn != data["turn"]:
            self._refuse(f"turn/end {data['turn']} ends no open turn")
        self._answered("turn/end")
        if self._step is not None:
            self._refuse(f"turn/end {data['turn']} stands inside a step")
        self._turn = None
        self._next_turn += 1

    def _step_start(self, _event: Event, data: Data) -> None:
        expected = (self._turn, None, self._next_step)
        if (data["turn"], self._step, data["step"]) != expected:
            self._refuse("step/start is not the open turn's next step")
        self._step = data["step"]

    def _step_end(self, event: Event, data: Data) -> None:
        self._in_step(event, data)
        self._answered("step/end")
        self._calls.clear()
        self._step = None
        self._next_step += 1

    def _in_step(self, event: Event, data: Data) -> None:
        here = (self._turn, self._step)
        if None in here or (data["turn"], data["step"]) != here:
            self._refuse(f"{event.type} is not in the open turn and step")

    def _in_turn(self, event: Event, _data: Data) -> None:
        if self._turn is None:
            self._refuse(f"{event.type} stands outside a turn")

    def _answered(self, boundary: str) -> None:
        if self._calls:
            self._refuse(f"{boundary} leaves call {next(iter(self._calls))!r} without a result")

    def _assistant_message(self, event: Event, data: Data) -> None:
        self._in_step(event, data)
        for block in data["message"]["content"]:
            if block["type"] == "tool-call":
                if block["id"] in self._calls:
                    self._refuse(f"call {block['id']!r} is advertised again")
                self._calls[block["id"]] = (block["name"], block["arguments"], False)

    def _tool_call(self, event: Event, data: Data) -> None:
        self._in_step(event, data)
        advertised = (data["name"], data["arguments"], False)
        if self._calls.get(data["callId"]) != advertised:
            self._refuse(f"tool/call {data['callId']!r} is no advertised call")
        self._calls[data["callId"]] = (data["name"], data["arguments"], True)

    def _tool_result(self, event: Event, data: Data) -> None:
        if isinstance(event.surface_op, Replace):
            self._in_turn(event, data)
            return
        self._in_step(event, data)
        call_id = data["message"]["source"]["callId"]
        call = self._calls.pop(call_id, None)
        if call is None:
            self._refuse(f"the result of {call_id!r} answers no advertised call")
        if not call[2] and not _is_not_started(event, data, call_id):
            self._refuse(f"the result of {call_id!r} is no exact TOOL_NOT_STARTED")

    def _request_header(self, event: Event, data: Data) -> None:
        self._in_turn(event, data)
        self._provider = data["header"]["config"]["provider"]

    def _dispatch_start(self, event: Event, data: Data) -> None:
        self._family(event, data)
        if data["subCallId"] in self._dispatches:
            self._refuse("a dispatch starts twice")
        self._dispatches[data["subCallId"]] = _dispatched(data)
        self._dispatch_roots[data["subCallId"]] = data["rootCallId"]

    def _dispatch_end(self, event: Event, data: Data) -> None:
        self._family(event, data)
        if self._dispatches.get(data["subCallId"]) != _dispatched(data):
            self._refuse("a dispatch ends that did not start, or other than it did")
        self._dispatches[data["subCallId"]] = None

    def _family(self, event: Event, data: Data) -> None:
        self._in_turn(event, data)
        root, parent = data["rootCallId"], data["parentCallId"]
        if self._dispatch_roots.get(data["subCallId"], root) != root:
            self._refuse("a dispatch changes its rootCallId")
        if parent != root and self._dispatch_roots.get(parent) != root:
            self._refuse("a dispatch's parent belongs to another root")

    def _retry(self, _event: Event, data: Data) -> None:
        step = self._next_step - 1 if self._step is None else self._step
        if self._turn is None or (data["turn"], data["step"]) != (self._turn, step):
            self._refuse("llm/retry is not of the current turn and step")
        if data["provider"] != self._provider:
            self._refuse("llm/retry names another provider than the request")
        key = tuple(data[name] for name in ("turn", "step", "provider", "policyKey"))
        retry, retry_id = self._chains.get(key, (0, None))
        if data["retry"] != retry + 1:
            self._refuse(f"llm/retry should be number {retry + 1}")
        shared = data["retryId"] in self._retry_ids if retry_id is None else None
        if shared or (retry_id is not None and retry_id != data["retryId"]):
            self._refuse("the retries of one chain do not share one retryId of their own")
        self._chains[key] = (data["retry"], data["retryId"])
        self._retry_ids.add(data["retryId"])
        scheduled = (data["retryId"], data["retry"])
        self._scheduled.setdefault(scheduled, (data["turn"], data["step"]))

    def _retry_started(self, _event: Event, data: Data) -> None:
        key = (data["retryId"], data["retry"])
        if self._scheduled.get(key) != (data["turn"], data["step"]) or key in self._started:
            self._refuse("llm/retry-started answers no scheduled retry")
        self._started.add(key)

    def _title(self, event: Event, data: Data) -> None:
        for seq in data["messageSeqs"]:
            if not self._fold.is_user_message(seq):
                self._refuse(f"{event.type} cites {seq}, which is no message of a person")

    def _title_request(self, event: Event, data: Data) -> None:
        self._title(event, data)
        messages = data["messages"]
        if len(messages) == 1:
            [message] = messages
            source, content = message["source"], message["content"]
            framed = len(content) == 1 and content[0]["type"] == "text"
            plugin = source["kind"] == "plugin" and source["plugin"] == "dsh-session-title-llm"
            if framed and plugin and message["role"] == "user":
                return
        self._refuse("a title request does not represent the messages it cites")

    def _user_message(self, event: Event, data: Data) -> None:
        source = data["source"]
        compact = source["kind"] == "plugin" and source["plugin"] == "compact"
        if compact and isinstance(event.surface_op, Replace):
            self._owned(event, source)

    def _command_run(self, event: Event, data: Data) -> None:
        if data["commandId"] in self._commands:
            self._refuse(f"command {data['commandId']!r} runs twice")
        self._commands.add(data["commandId"])
        self._command_events.add(event.seq)

    def _command_done(self, event: Event, data: Data) -> None:
        if data["commandId"] not in self._commands:
            self._refuse(f"command {data['commandId']!r} did not run")
        source = data.get("sourceEventSeq")
        if source is not None and (data["kind"] != "success" or source in self._command_events):
            self._refuse("command/done cites an event that it cannot have led to")
        self._command_events.add(event.seq)

    def _compaction_start(self, _event: Event, data: Data) -> None:
        if self._compaction is not None:
            self._refuse("compaction/start while another compaction is open")
        if data["turn"] != self._turn:
            self._refuse("compaction/start names another turn than the open one")
        self._compaction = _Compaction(data)

    def _compaction_summary(self, event: Event, data: Data) -> None:
        compaction = self._owned(event, data)
        if compaction.turn != self._turn:
            self._refuse("compaction/summary stands in another turn than its start")
        if compaction.summarized:
            self._refuse("a compaction has two summaries")
        compaction.summarized = True
        self._shadowed(event, data)

    def _compaction_end(self, event: Event, data: Data) -> None:
        compaction = self._owned(event, data)
        self._uncrossed()
        if not data["turn"] == compaction.turn == self._turn:
            self._refuse("compaction/end stands in another turn than its start")
        if "error" not in data and not compaction.summarized:
            self._refuse("a compaction ends well without a summary")
        self._compaction = None

    def _end_seed(self, _event: Event, _data: Data) -> None:
        self._compaction = None

    def _owned(self, event: Event, data: Data) -> _Compaction:
        found = self._compaction
        if found is None or (found.id, found.command) != (
            data.get("compactionId"),
            data.get("sourceCommandId"),
        ):
            self._refuse(f"{event.type} belongs to no open compaction")
        return found

    def _shadowed(self, event: Event, data: Data) -> None:
        seqs, span = data["shadowedSeqs"], data["shadowedRange"]
        surface = self._fold.surface
        if not seqs or surface.span(span["start"], span["end"]) != seqs:
            self._refuse(f"{event.type} names no exact span of the surface")
        if surface.head in seqs:
            self._refuse(f"{event.type} hides the system prompt")

    def _cross(self, boundary: str) -> None:
        if self._compaction is not None and self._compaction.crossed is None:
            self._compaction.crossed = boundary

    def _uncrossed(self) -> None:
        if self._compaction is not None and self._compaction.crossed is not None:
            self._refuse(f"{self._compaction.crossed} crosses an open compaction")

    def _refuse(self, reason: str) -> NoReturn:
        raise Refusal(reason)


def _dispatched(data: Data) -> tuple[Any, ...]:
    return data["rootCallId"], data["parentCallId"], data["name"], data["arguments"]


def _is_not_started(event: Event, data: Data, call_id: str) -> bool:
    message = data["message"]
    block = message["content"][0]
    return (
        data.get("error") == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
        and event.sources is None
        and block.get("isError") is True
        and is_repair_message_id(message["id"], call_id)
        and block["content"] == [{"type": "text", "text": NOT_STARTED_TEXT}]
    )


_RULES: dict[str, Callable[[Relationships, Event, Data], None]] = {
    "turn/start": Relationships._turn_start,
    "turn/end": Relationships._turn_end,
    "step/start": Relationships._step_start,
    "step/end": Relationships._step_end,
    "system/message": Relationships._in_step,
    "user/message": Relationships._user_message,
    "assistant/message": Relationships._assistant_message,
    "assistant/attempt": Relationships._in_step,
    "tool/call": Relationships._tool_call,
    "tool/result": Relationships._tool_result,
    "request/header": Relationships._request_header,
    "request/context": Relationships._in_turn,
    "tool/ptc-dispatch-start": Relationships._dispatch_start,
    "tool/ptc-dispatch": Relationships._dispatch_end,
    "llm/retry": Relationships._retry,
    "llm/retry-started": Relationships._retry_started,
    "session/title": Relationships._title,
    "session/title-llm-request": Relationships._title_request,
    "command/run": Relationships._command_run,
    "command/done": Relationships._command_done,
    "compaction/start": Relationships._compaction_start,
    "compaction/summary": Relationships._compaction_summary,
    "compaction/end": Relationships._compaction_end,
    "compaction/prune": Relationships._shadowed,
    "session/end-seed": Relationships._end_seed,
}
