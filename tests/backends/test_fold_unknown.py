"""R4: what a log's fold knows of calls with an unknown outcome, whoever replays it."""

from __future__ import annotations

from typing import Any

import pytest
from interlock.backends.codes import Code
from interlock.backends.event import Draft, decode_line, draft, encode_line
from interlock.backends.fold import LogFold, settled_message_id


def note(kind: str, **data: Any) -> Draft:
    return draft(kind, data, ignorable=kind.startswith("interlock/"))


def message(kind: str, data: dict[str, Any], sources: tuple[int, ...] | None = None) -> Draft:
    return draft(kind, data, surface_op="append", sources=sources)


def answer(call_id: str) -> Draft:
    block = {"type": "tool-call", "id": call_id, "name": "pay", "arguments": "{}"}
    source = {"kind": "model", "provider": "p", "model": "m"}
    body = {"id": "a1", "role": "assistant", "content": [block], "source": source}
    return message("assistant/message", {"turn": 1, "step": 1, "message": body, "stream": []})


def result(call_id: str, call_seq: int, code: str | None) -> Draft:
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "isError": code is not None,
        "content": [{"type": "text", "text": "…"}],
    }
    source = {"kind": "tool", "callId": call_id}
    body = {"id": "r1", "role": "user", "content": [block], "source": source}
    data: dict[str, Any] = {"turn": 1, "step": 1, "message": body}
    if code is not None:
        data["error"] = {"name": "E", "code": code}
    return message("tool/result", data, (call_seq,))


def told(call_seq: int) -> Draft:
    return message(
        "user/message",
        {
            "id": settled_message_id(call_seq),
            "role": "user",
            "content": [{"type": "text", "text": "it was done"}],
            "source": {"kind": "plugin", "plugin": "interlock"},
        },
    )


CALL = 4
BEGIN = [
    note("interlock/writer"),
    note("turn/start", turn=1),
    note("step/start", turn=1, step=1),
    answer("c1"),
    note("tool/call", turn=1, step=1, callId="c1", name="pay", arguments="{}"),
]
END = [
    note("step/end", turn=1, step=1),
    note("turn/end", turn=1, reason={"kind": "completed"}),
]


def settled(**more: Any) -> Draft:
    return note("interlock/settled", callSeq=CALL, callId="c1", **more)


@pytest.fixture(params=["admitted", "replayed"])
def fold(request):
    """Fold drafts one by one; replayed, from the rows that they became."""

    def make(*drafts: Draft) -> LogFold:
        live = LogFold()
        events = [event for made in drafts for event in live.admit([made], 1)]
        if request.param == "admitted":
            return live
        again = LogFold()
        for event in events:
            again.replay(decode_line(encode_line(event)))
        return again

    return make


def test_an_unknown_result_is_kept_until_the_model_was_told(fold) -> None:
    unknown = [*BEGIN, result("c1", CALL, Code.TOOL_OUTCOME_UNKNOWN), *END]
    [known] = fold(*unknown).unknown.values()
    assert (known.call.call_id, known.call.call_seq, known.turn, known.step) == ("c1", CALL, 1, 1)
    assert known.outcome is None
    retried = [*unknown, settled(attempt=2, outcome="retrying")]
    [known] = fold(*retried).unknown.values()
    assert (known.call.attempts, known.outcome) == (2, None)
    decided = [*retried, settled(attempt=2, outcome="done", text="it was done")]
    [known] = fold(*decided).unknown.values()
    assert (known.call.attempts, known.outcome) == (2, "it was done")
    told_of = [*decided, note("turn/start", turn=2), told(CALL)]
    assert fold(*told_of).unknown == {}


@pytest.mark.parametrize("code", [None, Code.TOOL_NOT_STARTED, Code.TOOL_FAILED])
def test_other_results_are_known(fold, code) -> None:
    assert fold(*BEGIN, result("c1", CALL, code), *END).unknown == {}


def test_attempts_of_an_open_call_are_counted(fold) -> None:
    [call] = fold(*BEGIN, settled(attempt=2), settled(attempt=3)).calls
    assert call.attempts == 3
    assert call.result_seq is None


@pytest.mark.parametrize(
    "data", [{}, {"callSeq": "x"}, {"callSeq": True}, {"callSeq": 99}, {"callSeq": CALL, "text": 5}]
)
def test_a_foreign_settled_event_changes_nothing(fold, data) -> None:
    unknown = [*BEGIN, result("c1", CALL, Code.TOOL_OUTCOME_UNKNOWN), *END]
    [known] = fold(*unknown, note("interlock/settled", **data)).unknown.values()
    assert (known.call.attempts, known.outcome) == (1, None)


def test_a_refused_append_leaves_what_is_unknown_as_it_was() -> None:
    live = LogFold()
    for made in BEGIN:
        live.admit([made], 1)
    with pytest.raises(Exception, match="refused"):
        live.admit([result("c1", CALL, Code.TOOL_OUTCOME_UNKNOWN), note("turn/start", turn=9)], 1)
    assert live.unknown == {}
