"""v1 → v2: chunks move into the event that they led to, and references follow."""

from __future__ import annotations

import pytest


def kinds(events):
    return [event["type"] for event in events]


def texts(stream):
    return [record.get("texts") or record.get("args") for record in stream]


@pytest.fixture
def hello(old):
    """Chunks 2 to 6 of an answer, and the answer that cites them."""
    chunks = [
        old.chunk("block-start", index=0, blockType="text"),
        old.chunk("text-delta", index=0, text="hel"),
        old.chunk("text-delta", index=0, text="lo"),
        old.chunk("block-end", index=0, block={"type": "text", "text": "hello"}),
        old.chunk("finish", reason={"kind": "stop"}),
    ]
    answer = old.answer({"type": "text", "text": "hello"}, sourceEventSeqs=[2, 3, 4, 5, 6])
    return chunks, answer


def test_an_answer_gets_its_whole_stream_and_loses_its_sources(current, old, hello):
    chunks, answer = hello
    rows = [old.turn(), old.step(), *chunks, answer, old.step_end(), old.turn_end()]
    events = current(1, rows)
    [message] = [event for event in events if event["type"] == "assistant/message"]
    assert "sourceEventSeqs" not in message
    stream = message["data"]["stream"]
    assert [record["type"] for record in stream] == ["chunk", "text-chunks", "chunk", "chunk"]
    assert stream[1] == {
        "type": "text-chunks",
        "time0": 1003,
        "index": 0,
        "dt": [1],
        "texts": ["hel", "lo"],
    }
    assert [event["seq"] for event in events] == list(range(len(events)))


def test_packed_and_plain_deltas_join_only_where_they_belong_together(current, old):
    def packed(kind, index, members, **more):
        data = {"turn": 1, "step": 1, "index": index, "dt": [0] * (len(members) - 1), **more}
        data["args" if kind == "tool-call-chunks" else "texts"] = members
        return {"type": kind, "data": data}

    rows = [
        old.turn(),
        old.step(),
        packed("text-chunks", 0, ["a", "b"]),
        old.chunk("text-delta", index=0, text="c"),
        packed("text-chunks", 1, ["d"]),
        packed("reasoning-chunks", 1, ["e"]),
        packed("tool-call-chunks", 2, ["f"], id="c", name="n"),
        packed("tool-call-chunks", 2, ["g"], id="c", name="n"),
        old.chunk("tool-call-delta", index=2, id="c", argumentsDelta="h"),
        old.chunk("tool-call-delta", index=2, id="c", name="", argumentsDelta="i"),
    ]
    attempt = current(1, rows)[-1]
    assert attempt["type"] == "assistant/attempt"
    stream = attempt["data"]["stream"]
    assert texts(stream) == [["a", "b", "c"], ["d"], ["e"], ["f", "g"], ["h"], None]


def test_an_attempt_without_an_answer_stays_where_its_last_chunk_was(current, old):
    rows = [
        old.turn(),
        old.step(),
        old.chunk("text-delta", index=0, text="a"),
        old.event("todo/write", todos=[]),
        old.chunk("text-delta", index=0, text="b"),
        old.event("plan/mode", active=True),
        old.step_end(),
        old.turn_end(),
    ]
    events = current(1, rows)
    assert kinds(events)[3:] == [
        "todo/write",
        "assistant/attempt",
        "plan/mode",
        "step/end",
        "turn/end",
    ]
    assert events[4]["time"] == 1004
    assert texts(events[4]["data"]["stream"]) == [["a", "b"]]


def test_a_finished_attempt_is_followed_by_another(current, old):
    rows = [old.turn(), old.step()]
    for text in ("a", "b"):
        rows.append(old.chunk("text-delta", index=0, text=text))
        rows.append(old.chunk("finish", reason={"kind": "stop"}))
    rows += [old.step_end(), old.turn_end()]
    attempts = [e for e in current(1, rows) if e["type"] == "assistant/attempt"]
    assert [texts(attempt["data"]["stream"])[0] for attempt in attempts] == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("sources", "word"),
    [([2, 3, 4, 5], "one whole attempt"), ([3, 2, 4, 5, 6], "one whole"), (None, "does not cite")],
)
def test_an_answer_that_does_not_cite_its_whole_attempt_is_refused(
    refusal, old, hello, sources, word
):
    chunks, answer = hello
    if sources is None:
        del answer["sourceEventSeqs"]
    else:
        answer["sourceEventSeqs"] = sources
    assert word in refusal(1, [old.turn(), old.step(), *chunks, answer])


def test_a_reference_to_a_chunk_is_refused(refusal, old, hello):
    chunks, answer = hello
    run = old.event("command/run", commandId="c", name="n", source={"kind": "user"})
    done = old.event("command/done", commandId="c", kind="success", sourceEventSeq=3)
    rows = [old.turn(), old.step(), *chunks, answer, run, done]
    assert "refers to event 3, which has gone" in refusal(1, rows)


def test_what_was_inherited_ends_with_a_marker(current, refusal, old, hello):
    chunks, answer = hello
    rows = [old.turn(), old.step(), *chunks, answer, old.step_end(), old.turn_end()]
    more = [old.turn(2), old.turn_end(2)]
    inserted = current(1, rows + more, seedLength=10)
    assert kinds(inserted)[-3:] == ["session/end-seed", "turn/start", "turn/end"]
    tagged = current(1, [*rows, old.event("session/end-seed"), *more], seedLength=10)
    assert kinds(tagged) == kinds(inserted)
    assert tagged[-3]["data"] == {"inherited": True}
    at_end = current(1, rows, seedLength=10)
    assert at_end[-1]["data"] == {"inherited": True}
    assert at_end[-1]["time"] == 1009
    assert "inside an attempt" in refusal(1, rows, seedLength=4)


def test_a_turn_that_a_restart_left_open_is_closed_first(current, refusal, old):
    inbox = old.event(
        "agent/inbox/spliced", target="next-turn", start=0, inserted=[old.user()["data"]]
    )
    events = current(1, [old.turn(), old.step(), old.step_end(), inbox, old.turn(2)])
    assert kinds(events)[-3:] == ["agent/inbox/spliced", "turn/end", "turn/start"]
    assert events[-2]["data"] == {"turn": 1, "reason": {"kind": "interrupted"}}
    assert "turn 1 is open" in refusal(1, [old.turn(), old.turn(2)])
    assert "turn 1 is open" in refusal(1, [old.turn(), old.step(), inbox, old.turn(2)])


def test_a_goal_message_becomes_a_change_and_a_message_of_the_plugin(current, old):
    goal = {"id": "g", "revision": 1, "objective": "o", "phase": "active", "maxGoalRounds": 3}
    change = {
        "kind": "goal/change",
        "version": 1,
        "operation": "create",
        "goal": goal,
        "roundsStarted": 0,
        "createdAt": 1,
        "updatedAt": 1,
    }
    message = old.user("state")
    source = {"kind": "goal", "goalId": "g", "revision": 1, "round": 0, "change": change}
    message["data"]["source"] = source
    events = current(1, [old.turn(), old.step(), message])
    assert kinds(events)[-2:] == ["goal/change", "user/message"]
    assert events[-2]["data"] == change
    assert events[-1]["data"]["source"] == {"kind": "plugin", "plugin": "goal"}


def test_an_unknown_type_is_refused_even_if_ignorable(refusal, old):
    assert "acme/x" in refusal(1, [old.event("acme/x") | {"ignorable": True}])
