"""The history that a model is shown: in order, paired, mended in what is shown only."""

from __future__ import annotations

from typing import Any

from agent_memory_session import Ends, Row
from interlock.actors.agent import History, Message
from interlock.actors.tools import Outcome, ToolResult
from interlock.backends.grammar import NOT_STARTED_TEXT
from interlock.backends.repair import NO_RESULT_TEXT


class Log:
    def __init__(self) -> None:
        self.rows: list[Row] = []

    def add(self, kind: str, data: dict[str, Any], op: Any = "append") -> int:
        self.rows.append(Row(kind, len(self.rows), data, op))
        return len(self.rows) - 1

    def user(self, text: str, op: Any = "append") -> int:
        return self.add("user/message", {"role": "user", "content": [words(text)]}, op)

    def system(self, text: str, op: Any = "append") -> int:
        return self.add("system/message", {"message": {"content": [words(text)]}}, op)

    def assistant(self, *call_ids: str, text: str = "") -> int:
        content = [words(text)] if text else []
        content += [call(call_id) for call_id in call_ids]
        return self.add("assistant/message", {"message": {"content": content}})

    def result(self, call_id: str, value: str, op: Any = "append") -> int:
        result = ToolResult.of(call_id, "t", Outcome.success(value))
        return self.add("tool/result", result.event_data(1, 1, "m"), op)


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": "t", "arguments": "{}"}


def shown(log: Log) -> list[Message]:
    history = History()
    history.add(log.rows)
    return history.messages()


def results(message: Message) -> list[tuple[str, str, bool]]:
    return [(b["toolCallId"], b["content"][0]["text"], b["isError"]) for b in message.content]


def test_P3_results_stand_in_model_order_behind_their_message() -> None:
    log = Log()
    log.user("go")
    log.assistant("a", "b", "c")
    for call_id in "cab":
        log.result(call_id, f"{call_id}!")
    log.user("and?")
    first, answer, answered, then = shown(log)
    assert (first.role, answer.role, answered.role, then.role) == (
        "user",
        "assistant",
        "user",
        "user",
    )
    assert results(answered) == [("a", "a!", False), ("b", "b!", False), ("c", "c!", False)]


def test_R1_a_call_without_a_result_gets_one_in_the_history_only() -> None:
    log = Log()
    log.assistant("a", "b")
    log.result("b", "b!")
    before = list(log.rows)
    _, answered = shown(log)
    assert results(answered) == [("a", NOT_STARTED_TEXT, True), ("b", "b!", False)]
    assert log.rows == before
    started = Log()
    started.assistant("a")
    started.add("tool/call", {"callId": "a", "name": "t", "arguments": "{}"}, None)
    assert results(shown(started)[1])[0] == ("a", NO_RESULT_TEXT, True)


def test_the_same_id_in_a_later_message_is_another_call() -> None:
    log = Log()
    log.assistant("a")
    log.result("a", "first")
    log.assistant("a")
    assert [results(m) for m in shown(log)[1::2]] == [
        [("a", "first", False)],
        [("a", NOT_STARTED_TEXT, True)],
    ]
    log.result("a", "second")
    assert results(shown(log)[3]) == [("a", "second", False)]


def test_a_replacement_takes_the_place_of_its_span() -> None:
    log = Log()
    first = log.user("one")
    log.assistant("a", text="x")
    last = log.result("a", "a!")
    log.user("two")
    log.user("summary", Ends(first, last))
    assert [m.content[0]["text"] for m in shown(log)] == ["summary", "two"]


def test_a_replaced_result_still_answers_its_call() -> None:
    log = Log()
    log.assistant("a")
    seq = log.result("a", "a long result")
    log.assistant("b")
    log.result("a", "pruned", Ends(seq, seq))
    messages = shown(log)
    assert results(messages[1]) == [("a", "pruned", False)]
    assert results(messages[3]) == [("b", NOT_STARTED_TEXT, True)]


def test_a_result_whose_call_is_hidden_is_not_shown_alone() -> None:
    log = Log()
    first = log.user("one")
    second = log.assistant("a")
    log.result("a", "a!")
    log.user("summary", Ends(first, second))
    assert shown(log) == [Message("user", [words("summary")])]


def test_the_system_prompt_in_force_is_the_head() -> None:
    log = Log()
    head = log.system("first")
    log.user("x")
    history = History()
    history.add(log.rows)
    assert (history.system(), history.head) == ("first", head)
    new = log.system("second", Ends(head, head))
    history.add(log.rows)
    assert (history.system(), history.head, history.next_seq) == ("second", new, 3)
    assert [m.role for m in history.messages()] == ["user"]


def test_events_are_taken_in_once() -> None:
    log = Log()
    log.user("x")
    history = History()
    history.add(log.rows)
    history.add(log.rows)
    assert len(history.messages()) == 1
