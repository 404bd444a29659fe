"""Chunks, their stream records, and the answers put together from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interlock.actors.agent import (
    Accumulator,
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageReport,
    chunks_of,
)
from interlock.actors.agent.chunks import from_json, to_json
from interlock.actors.agent.stream import StreamRecorder, expand

SAMPLES = Path(__file__).parents[3].parent / "shared" / "dsh" / "samples"

BLOCKS = [
    {"type": "reasoning", "text": "Think."},
    {"type": "text", "text": "I will list them, é🙂."},
    {"type": "tool-call", "id": "c1", "name": "ls", "arguments": '{"path":"."}'},
]


def record(chunks: list[tuple[int, Chunk]]) -> list[dict[str, Any]]:
    recorder = StreamRecorder()
    for time, chunk in chunks:
        recorder.add(chunk, time)
    return recorder.records


def hear(chunks: list[Chunk]) -> Accumulator:
    accumulator = Accumulator("p", "m")
    for time, chunk in enumerate(chunks):
        accumulator.add(chunk, time)
    return accumulator


def test_deltas_of_a_block_become_one_run_and_others_stay_chunks() -> None:
    records = record(
        [
            (10, BlockStart(0, "text")),
            (12, TextDelta(0, "a")),
            (11, TextDelta(0, "b")),
            (20, TextDelta(1, "c")),
            (21, ReasoningDelta(1, "d")),
            (22, ToolCallDelta(2, "c1", '{"', "ls")),
            (25, ToolCallDelta(2, "c1", '"}', "ls")),
            (26, ToolCallDelta(2, "c1", "x")),
            (27, ToolCallDelta(2, "", "y")),
            (28, Finish({"kind": "stop"})),
        ]
    )
    assert records == [
        {
            "type": "chunk",
            "time": 10,
            "chunk": {"type": "block-start", "index": 0, "blockType": "text"},
        },
        {"type": "text-chunks", "time0": 12, "index": 0, "dt": [-1], "texts": ["a", "b"]},
        {"type": "text-chunks", "time0": 20, "index": 1, "dt": [], "texts": ["c"]},
        {"type": "reasoning-chunks", "time0": 21, "index": 1, "dt": [], "texts": ["d"]},
        {
            "type": "tool-call-chunks",
            "time0": 22,
            "index": 2,
            "dt": [3],
            "id": "c1",
            "name": "ls",
            "args": ['{"', '"}'],
        },
        {"type": "tool-call-chunks", "time0": 26, "index": 2, "dt": [], "id": "c1", "args": ["x"]},
        {
            "type": "chunk",
            "time": 27,
            "chunk": {"type": "tool-call-delta", "index": 2, "id": "", "argumentsDelta": "y"},
        },
        {"type": "chunk", "time": 28, "chunk": {"type": "finish", "reason": {"kind": "stop"}}},
    ]


_text = st.text(st.characters(), max_size=4)
_index = st.integers(0, 2)
_chunk: st.SearchStrategy[Chunk] = st.one_of(
    st.builds(BlockStart, _index, st.sampled_from(["text", "reasoning", "tool-call"])),
    st.builds(TextDelta, _index, _text),
    st.builds(ReasoningDelta, _index, _text),
    st.builds(ToolCallDelta, _index, st.sampled_from(["", "c1"]), _text),
    st.builds(ToolCallDelta, _index, st.just("c1"), _text, st.sampled_from(["", "ls"])),
    st.builds(UsageReport, st.builds(Usage, st.integers(0, 9), st.integers(0, 9))),
)


@given(st.lists(st.tuples(st.integers(-(2**53), 2**53), _chunk), max_size=12))
def test_records_expand_to_the_chunks_they_were_made_of(chunks: list[tuple[int, Chunk]]) -> None:
    assert list(expand(record(chunks))) == chunks


@pytest.mark.parametrize("pieces", [1, 8, 1000])
def test_an_answer_in_pieces_is_the_answer(pieces: int) -> None:
    usage = Usage(3, 4, cache_read_tokens=0)
    answer = hear(list(chunks_of(BLOCKS, usage=usage, pieces=pieces))).answer()
    assert answer.content == BLOCKS
    assert answer.finish == {"kind": "tool-calls"}
    assert answer.usage == usage
    assert answer.calls == [BLOCKS[2]]
    assert answer.text == "I will list them, é🙂."
    data = answer.event_data(1, 2, "m1")
    assert data["usage"] == {"inputTokens": 3, "outputTokens": 4, "cacheReadTokens": 0}
    assert data["message"]["source"] == {"kind": "model", "provider": "p", "model": "m"}
    assert "interrupted" not in data


def test_an_answer_without_block_ends_is_made_of_its_deltas() -> None:
    chunks = [c for c in chunks_of(BLOCKS) if not isinstance(c, BlockEnd | BlockStart)]
    assert hear(chunks).answer().content == BLOCKS


def test_on_max_tokens_the_calls_are_dropped() -> None:
    chunks = list(chunks_of(BLOCKS, reason={"kind": "max-tokens"}))
    assert hear(chunks).answer().content == BLOCKS[:2]


def test_an_interrupted_answer_keeps_only_text_that_says_something() -> None:
    chunks = list(chunks_of([{"type": "text", "text": " "}, *BLOCKS]))[:-1]
    answer = hear(chunks).answer(interrupted=True)
    assert answer.content == BLOCKS[:2]
    assert answer.event_data(1, 1, "m")["interrupted"] is True


def test_replay_state_goes_into_the_source() -> None:
    state = {"response": {"id": "r1"}}
    answer = hear([TextDelta(0, "x"), Finish({"kind": "stop"}, state)]).answer()
    assert answer.event_data(1, 1, "m")["message"]["source"]["replayState"] == state


def sample_streams() -> list[Any]:
    found = []
    for path in sorted(SAMPLES.glob("migrated/**/session.v3.jsonl")):
        for line in path.read_text("utf-8").rstrip("\n").split("\n"):
            row = json.loads(line)
            if row["type"] == "assistant/message" and row["data"]["stream"]:
                found.append(pytest.param(row["data"], id=f"{path.parent.name}-{row['seq']}"))
    return found


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="no samples of the harness's logs in ../shared")
def test_streams_of_real_logs_replay_to_their_messages() -> None:
    streams = sample_streams()
    assert streams
    for param in streams:
        (data,) = param.values
        accumulator = Accumulator("p", "m")
        for time, chunk in expand(data["stream"]):
            assert from_json(to_json(chunk)) == chunk
            accumulator.add(chunk, time)
        assert accumulator.stream == data["stream"], param.id
        answer = accumulator.answer(interrupted=data.get("interrupted", False))
        assert answer.content == data["message"]["content"], param.id
        assert (to_json(answer.usage) if answer.usage else None) == data.get("usage"), param.id
