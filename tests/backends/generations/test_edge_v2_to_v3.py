"""v2 → v3: the system prompt becomes messages, and the rest is audited to the last member."""

from __future__ import annotations

import copy
import hashlib
import json

import pytest
from interlock.backends.errors import SessionError
from interlock.backends.reading import read_log


def kinds(events):
    return [event["type"] for event in events]


@pytest.fixture
def answer(old):
    def answer(*blocks, stream=(), **more):
        made = old.answer(*blocks, **more)
        made["data"]["stream"] = list(stream)
        return made

    return answer


def test_the_prompt_in_force_is_the_head_of_the_surface(current, old):
    rows = [old.turn(), old.step(), old.user(), old.request(system="one")]
    rows += [old.request(system="one"), old.request(), old.step_end(), old.turn_end()]
    events = current(2, rows)
    prompts = [event for event in events if event["type"] == "system/message"]
    assert [event["seq"] for event in prompts] == [2, 4, 7]
    content = [event["data"]["message"]["content"] for event in prompts]
    assert content == [[], [{"type": "text", "text": "one"}], []]
    assert [event["surfaceOp"] for event in prompts[1:]] == [
        {"op": "replace", "startSeq": 2, "endSeq": 2},
        {"op": "replace", "startSeq": 4, "endSeq": 4},
    ]
    assert [event["sourceEventSeqs"] for event in prompts[1:]] == [[2], [4]]
    identity = json.dumps(["session-format-v2-to-v3", "s", 3, "request/header"])
    digest = hashlib.sha256(identity.replace(" ", "").encode()).hexdigest()
    assert prompts[1]["data"]["message"]["id"] == f"v2-to-v3-system-{digest}"
    assert not any("system" in e["data"].get("header", {}) for e in events)


def test_code_mode_is_called_ptc(current, old):
    inserted = old.user("x")["data"]
    inserted["source"] = {"kind": "plugin", "plugin": "tools-code-mode"}
    message = old.user("y")
    message["data"]["source"] = {"kind": "plugin", "plugin": "tools-code-mode"}
    ids = {"rootCallId": "r", "parentCallId": "r", "subCallId": "c", "name": "n", "arguments": {}}
    rows = [
        old.event("agent-preset/selected", agentPreset="code"),
        old.turn(),
        old.step(),
        old.event("agent/inbox/spliced", target="next-step", start=0, inserted=[inserted]),
        message,
        old.event("tool/code-dispatch-start", **ids),
        old.event("tool/code-dispatch", **ids, isError=False, content=[]),
    ]
    events = current(2, rows, agentPreset="code")
    assert events[0]["data"] == {"agentPreset": "ptc"}
    assert kinds(events)[-2:] == ["tool/ptc-dispatch-start", "tool/ptc-dispatch"]
    sources = (events[4]["data"]["inserted"][0]["source"], events[5]["data"]["source"])
    assert all(source["plugin"] == "tools-ptc" for source in sources)


def test_what_v3_does_not_store_empty_goes(current, old):
    rows = [old.turn(), old.request(tools=[], adapterDefaults={})]
    assert current(2, rows)[-1]["data"]["header"] == old.request()["data"]["header"]


@pytest.mark.parametrize("member", ["system", "tools", "adapterDefaults", "more"])
def test_a_requests_header_is_audited(refusal, old, member):
    assert "request/header" in refusal(2, [old.turn(), old.request(**{member: 1})])


def test_a_message_before_the_first_step_is_refused(refusal, old):
    assert "before the first step" in refusal(2, [old.turn(), old.user()])


def test_a_prompt_that_changes_outside_a_step_is_refused(refusal, old):
    rows = [old.turn(), old.step(), old.step_end(), old.request(system="new")]
    assert "outside an open step" in refusal(2, rows)


def _with(row, value, *path):
    row = copy.deepcopy(row)
    place = row
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return row


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("data", "more"), 1),
        (("data", "content", 0, "type"), "hologram"),
        (("data", "content", 0, "more"), 1),
        (("data", "source"), {"kind": "oracle"}),
        (("data", "source"), {"kind": "user", "more": 1}),
        (("data", "source"), {"kind": "plugin", "plugin": "x", "compactionId": "c"}),
        (("data", "source"), {"kind": "plugin", "plugin": "compact"}),
        (("data", "source"), {"kind": "plugin", "plugin": "x", "form": "snapshot"}),
        (("data", "source"), {"kind": "skill-catalog", "form": "catalog", "entries": [{}]}),
        (("data", "id"), ""),
    ],
)
def test_whatever_is_not_audited_in_a_message_is_refused(write, old, path, value):
    rows = [old.turn(), old.step(), _with(old.user(), value, *path)]
    with pytest.raises(SessionError) as caught:
        read_log(write(2, rows))
    # A message without an id is what no generation has.
    expected = "SESSION_CORRUPT" if path[-1] == "id" else "SESSION_FORMAT_UNSUPPORTED"
    assert caught.value.code == expected


@pytest.mark.parametrize(
    "source",
    [
        {"kind": "plugin", "plugin": "x", "form": "notice", "summary": ""},
        {"kind": "plugin", "plugin": "x", "form": "relay"},
        {"kind": "coordinator", "form": "relay", "senderSessionId": "s"},
        {"kind": "agent-message", "form": "relay", "senderSessionId": "s"},
        {"kind": "goal", "goalId": "g", "revision": 1, "round": 1},
    ],
)
def test_every_audited_source_is_carried_over(current, old, source):
    rows = [old.turn(), old.step(), _with(old.user(), source, "data", "source")]
    assert current(2, rows)[-1]["data"]["source"] == source


def test_a_stream_may_only_hold_known_blocks(refusal, current, old, answer):
    start = {"type": "block-start", "index": 0, "blockType": "text"}
    stream = [{"type": "chunk", "time": 1, "chunk": start}]
    rows = [old.turn(), old.step(), answer(stream=stream)]
    assert current(2, rows)[-1]["data"]["stream"] == stream
    start["blockType"] = "hologram"
    assert "hologram" in refusal(2, rows)
    end = {"type": "block-end", "index": 0, "block": {"type": "text", "more": 1}}
    stream[0]["chunk"] = end
    assert "block in the stream" in refusal(2, rows)


def test_a_result_with_an_error_is_marked_as_one(refusal, old, answer):
    failed = old.result("c")
    failed["data"]["error"] = {"name": "N", "code": "C"}
    rows = [old.turn(), old.step(), answer(old.tool("c")), old.call("c"), failed]
    assert "not marked as one" in refusal(2, rows)


def test_a_made_id_that_a_message_has_already_is_refused(refusal, old):
    identity = '["session-format-v2-to-v3","s",3,"request/header"]'
    made = f"v2-to-v3-system-{hashlib.sha256(identity.encode()).hexdigest()}"
    earlier = _with(old.user(), made, "data", "id")
    rows = [old.turn(), old.step(), earlier, old.request(system="x")]
    assert "made system message" in refusal(2, rows)
    identity = '["session-format-v2-to-v3","s",1,"step/start"]'
    made = f"v2-to-v3-system-{hashlib.sha256(identity.encode()).hexdigest()}"
    assert "made system message" in refusal(
        2, [old.turn(), old.step(), _with(old.user(), made, "data", "id")]
    )


@pytest.mark.parametrize(
    ("data", "header", "word"),
    [
        ({"sessionFormatVersion": 3, "sessionId": "s"}, {}, "v3"),
        ({"sessionFormatVersion": 2, "sessionId": "other"}, {}, "another session"),
        ({"sessionFormatVersion": 1, "sessionId": "other"}, {}, None),
        ({"sessionFormatVersion": 2, "sessionId": "s"}, {}, None),
    ],
)
def test_delivery_markers_must_name_this_session(current, refusal, old, data, header, word):
    marker = old.event("session-log-deepseek/delivery-accepted", throughSeq=0, **data)
    rows = [old.turn(), marker]
    if word is None:
        assert current(2, rows, **header)[-1]["data"] == marker["data"]
    else:
        assert word in refusal(2, rows, **header)


def test_references_move_with_what_they_name(current, old):
    summary = {
        "compactionId": "c",
        "summary": [],
        "shadowedRange": {"start": 2, "end": 3},
        "shadowedSeqs": [2, 3],
        "shadowedTokenCount": 0,
        "provider": "p",
        "model": "m",
        "maxTokens": 0,
    }
    title = old.event("session/title", title="t", messageSeqs=[2], source={"kind": "fallback"})
    run = old.event("command/run", commandId="c", name="n", source={"kind": "user"})
    done = old.event("command/done", commandId="c", kind="success", sourceEventSeq=5)
    rows = [old.turn(), old.step(), old.user("a"), old.user("b")]
    rows += [old.event("compaction/start", compactionId="c", turn=1)]
    rows += [old.event("compaction/summary", **summary), title, run, done]
    events = current(2, rows)
    assert events[6]["data"]["shadowedSeqs"] == [3, 4]
    assert events[6]["data"]["shadowedRange"] == {"start": 3, "end": 4}
    assert events[7]["data"]["messageSeqs"] == [3]
    assert events[9]["data"]["sourceEventSeq"] == 6


def test_an_inherited_beginning_and_the_header_agree(write, current, old):
    marker = old.event("session/end-seed", inherited=True)
    events = current(2, [old.turn(), old.turn_end(), marker], isSeeded=True)
    assert events[-1]["data"] == {"inherited": True}
    for rows, seeded in (([marker], False), ([], True)):
        with pytest.raises(SessionError) as caught:
            read_log(write(2, rows, isSeeded=seeded))
        assert caught.value.code == "SESSION_CORRUPT"


@pytest.mark.parametrize("kind", ["system/message", "tool/ptc-dispatch", "acme/x"])
def test_a_type_that_v2_does_not_have_is_refused_even_if_ignorable(refusal, old, kind):
    assert kind in refusal(2, [old.turn(), old.event(kind) | {"ignorable": True}])
