"""Playing a stream again: what it gives is the message, or the migration refuses."""

from __future__ import annotations

import pytest
from interlock.backends import jsontext
from interlock.backends.event import Event
from interlock.backends.generations.refusal import Refusal
from interlock.backends.generations.replay import check_replay

TEXT = {"type": "text", "text": "hello"}
CALL = {"type": "tool-call", "id": "c", "name": "n", "arguments": "{}"}
USAGE = {"inputTokens": 1, "outputTokens": 2}


def chunk(kind, **more):
    return {"type": "chunk", "time": 1, "chunk": {"type": kind, **more}}


def run(kind, index, *members, **more):
    name = "args" if kind == "tool-call-chunks" else "texts"
    dt = [0] * (len(members) - 1)
    return {"type": kind, "time0": 1, "index": index, "dt": dt, name: list(members), **more}


HELLO = run("text-chunks", 0, "hel", "lo")
MADE_CALL = run("tool-call-chunks", 1, "{", "}", id="c", name="n")


def replay(stream, content, *, kind="assistant/message", state=None, **data):
    source = {"kind": "model", "provider": "p", "model": "m"}
    if state is not None:
        source["replayState"] = state
    message = {"id": "m", "role": "assistant", "content": content, "source": source}
    data = {"turn": 1, "step": 1, "message": message, "stream": stream, **data}
    check_replay(Event(kind, 7, 1, jsontext.dumps(data)))


FINISHED = {
    "deltas alone": ([HELLO, MADE_CALL], [TEXT, CALL], {}),
    "a closed block is what it was closed with": (
        [run("text-chunks", 0, "x"), chunk("block-end", index=0, block=TEXT), HELLO],
        [TEXT],
        {},
    ),
    "blocks stand in the order in which they began": (
        [chunk("block-start", index=1, blockType="tool-call"), HELLO, MADE_CALL],
        [CALL, TEXT],
        {},
    ),
    "usage": ([HELLO, chunk("usage", usage=USAGE)], [TEXT], {"usage": USAGE}),
    "a cut answer loses its calls and their state": (
        [
            HELLO,
            MADE_CALL,
            chunk("finish", reason={"kind": "max-tokens"}, replayState={"blocks": [1, 2]}),
        ],
        [TEXT],
        {"state": {"blocks": [1]}},
    ),
    "state that does not fit the blocks is none": (
        [HELLO, chunk("finish", reason={"kind": "stop"}, replayState={"blocks": [1, 2]})],
        [TEXT],
        {},
    ),
    "an interrupted answer keeps text that says something": (
        [HELLO, run("reasoning-chunks", 2, "  "), MADE_CALL],
        [TEXT],
        {"interrupted": True},
    ),
    "an empty stream proves nothing": ([], [TEXT], {"usage": USAGE}),
}


@pytest.mark.parametrize("name", FINISHED)
def test_L12_a_stream_gives_its_message(name):
    stream, content, more = FINISHED[name]
    replay(stream, content, **more)


@pytest.mark.parametrize(
    ("stream", "more", "word"),
    [
        ([HELLO, HELLO], {}, "content"),
        ([HELLO, MADE_CALL], {}, "content"),
        ([HELLO], {"usage": USAGE}, "usage"),
        ([HELLO, chunk("usage", usage=USAGE)], {}, "usage"),
        ([HELLO], {"state": {"response": 1}}, "replay state"),
        ([HELLO, chunk("hologram")], {}, "unknown kind"),
        ([chunk("block-start", index=0, blockType="image")], {}, "unfinished"),
        ([HELLO, {"type": "text-chunks"}], {}, "malformed"),
        ([run("text-chunks", 0, 5)], {}, "malformed"),
    ],
)
def test_L12_a_stream_that_gives_something_else_refuses(stream, more, word):
    with pytest.raises(Refusal, match=word) as caught:
        replay(stream, [TEXT], **more)
    if word in ("content", "usage", "replay state", "malformed"):
        assert caught.value.seq == 7


def test_L12_an_attempts_stream_must_be_playable():
    replay([HELLO], [], kind="assistant/attempt")
    with pytest.raises(Refusal, match="unknown kind"):
        replay([chunk("hologram")], [], kind="assistant/attempt")
