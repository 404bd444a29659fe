"""P7: what a body returns or raises always becomes a result that the log can hold."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import hashlib
import json
import math
import re
import types
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interlock.actors.tools import Outcome, ToolFailure, ToolResult
from interlock.actors.tools.fit import INLINE_LIMIT, PREVIEW, SPILL_LIMIT, fit
from interlock.actors.tools.outcome import MESSAGE_LIMIT, TRACEBACK_LIMIT, raised, returned
from interlock.backends.codes import Code


class Colour(enum.StrEnum):
    RED = "red"


class Model(pydantic.BaseModel):
    day: datetime.date


@dataclasses.dataclass
class Pair:
    left: int
    right: tuple[int, ...]


def round_trip(outcome: Outcome) -> Outcome:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(outcome), type=Outcome)


def recorded(outcome: Outcome) -> ToolResult:
    """The result as read back from the event that the log would hold."""
    data = ToolResult.of("c1", "t", outcome).event_data(1, 2, "m1")
    line = json.dumps(data, allow_nan=False)
    return ToolResult.from_event("t", json.loads(line))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, None),
        ("text", "text"),
        ("", ""),
        ('{"looks":"like json"}', '{"looks":"like json"}'),
        ("half \ud83d", "half \ud83d"),
        (True, True),
        (2**70, 2**70),
        (-0.0, 0.0),
        ([1, (2, 3)], [1, [2, 3]]),
        ({"a": {"b": None}}, {"a": {"b": None}}),
        (types.MappingProxyType({"k": 1}), {"k": 1}),
        (Pair(1, (2, 3)), {"left": 1, "right": [2, 3]}),
        (Model(day=datetime.date(2026, 1, 2)), {"day": "2026-01-02"}),
        ({"c": Colour.RED}, {"c": "red"}),
    ],
)
def test_P7_a_returned_value_reads_the_same_live_and_from_the_log(value: Any, read: Any) -> None:
    outcome = round_trip(returned(value))
    live = ToolResult.of("c1", "t", outcome)
    assert live.value == read
    assert type(live.value) is type(read)
    assert recorded(outcome) == live
    assert not live.is_error
    assert live.code is None


def test_P7_negative_zero_loses_its_sign_which_the_harness_refuses() -> None:
    assert returned({"x": [-0.0]}).value == b'{"x":[0.0]}'


def test_a_string_is_shown_as_it_is_and_the_rest_as_json() -> None:
    assert returned('say "hi"\n').blocks() == [{"type": "text", "text": 'say "hi"\n'}]
    assert returned({"a": [1, "é"]}).blocks() == [{"type": "text", "text": '{"a":[1,"é"]}'}]
    assert returned(None).blocks() == [{"type": "text", "text": "null"}]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"a": [1, {2, 3}]}, r"type set at \$\.a\[1\]"),
        (b"bytes", r"type bytes at \$"),
        (Path("/x"), r"type pathlib\.\w+ at"),
        ({1: "x"}, "key of type int"),
        (math.nan, r"number nan at \$"),
        ([math.inf], r"number inf at \$\[0\]"),
        (object(), "type object"),
        pytest.param(10**5000, "could not be read: .* digits", id="huge"),
    ],
)
def test_P7_what_is_not_json_is_a_clear_error(value: Any, words: str) -> None:
    outcome = returned(value)
    assert not outcome.ok
    assert outcome.code is Code.TOOL_FAILED
    assert "Its effects stand" in outcome.message
    assert re.search(words, outcome.message), outcome.message
    assert recorded(outcome).code == "TOOL_FAILED"


def test_P7_a_value_within_itself_or_very_deep_is_a_clear_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "levels deep" in returned(loop).message
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert returned(deep).ok
    assert "levels deep" in returned([[deep]]).message


def test_P7_a_model_that_fails_to_dump_is_a_clear_error() -> None:
    class Bad(pydantic.BaseModel):
        n: int

        @pydantic.model_serializer
        def dump(self) -> dict[str, Any]:
            raise RuntimeError("no")

    assert "could not be read" in returned(Bad(n=1)).message


def raise_and_catch(error: BaseException) -> Outcome:
    try:
        raise error  # noqa: TRY301 - the point is to catch it
    except BaseException as caught:
        return raised(caught)


def test_an_exception_is_its_type_and_message_with_a_bounded_traceback() -> None:
    outcome = raise_and_catch(KeyError("account"))
    assert (outcome.code, outcome.message) == (Code.TOOL_FAILED, "KeyError: 'account'")
    assert "raise_and_catch" in outcome.meta_object()["traceback"]

    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise ValueError("x" * 100_000 + "end")

    try:
        deep(300)
    except ValueError as error:
        outcome = raised(error)
    assert len(outcome.message) < MESSAGE_LIMIT + 100
    assert outcome.message.startswith("ValueError: xxx")
    assert outcome.message.endswith("end")
    assert "characters left out" in outcome.message
    assert len(outcome.meta_object()["traceback"]) < TRACEBACK_LIMIT + 100


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_what_would_end_a_process_is_an_error_of_the_call(error: BaseException) -> None:
    outcome = raise_and_catch(error)
    assert outcome.code is Code.TOOL_FAILED
    assert outcome.message.startswith(type(error).__name__)


def test_exceptions_that_cannot_be_printed_are_still_results() -> None:
    class RudeError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    assert raise_and_catch(RudeError()).message.endswith(
        "RudeError: (its message could not be read)"
    )
    half = round_trip(raise_and_catch(ValueError("half \ud83d")))
    assert half.message == "ValueError: half \\ud83d"


def test_a_tool_failure_is_clean_and_cannot_claim_interlocks_codes() -> None:
    failure = ToolFailure("not enough", code="TOOL_NOT_STARTED", meta={"balance": 3})
    result = recorded(raise_and_catch(failure))
    assert (result.code, result.message) == ("TOOL_FAILED", "not enough")
    assert result.meta == {"tool_code": "TOOL_NOT_STARTED", "tool_meta": {"balance": 3}}


@pytest.mark.parametrize("meta", [{"x": object()}, {"x": math.nan}, {"x": "y" * 100_000}])
def test_P7_meta_data_that_does_not_fit_is_left_out_with_a_word(meta: dict[str, Any]) -> None:
    result = recorded(raise_and_catch(ToolFailure("no", meta=meta)))
    assert "left_out" in result.meta["tool_meta"]


def test_a_nested_result_is_passed_on_and_its_code_stays_its_own() -> None:
    inner = ToolResult.of("c/1", "inner", Outcome.success({"n": 1}))
    assert ToolResult.of("c", "outer", returned(inner)).value == {"n": 1}
    bad = ToolResult.of("c/1", "inner", Outcome.failure(Code.TOOL_NOT_STARTED, "it did not run"))
    outer = ToolResult.of("c", "outer", returned(bad))
    assert outer.code == "TOOL_FAILED"
    assert outer.meta["nested"]["code"] == "TOOL_NOT_STARTED"


def test_content_shown_apart_from_the_value_keeps_both() -> None:
    shown = [{"type": "text", "text": "exit 0"}]
    outcome = round_trip(Outcome.success({"exit": 0}, content=shown))
    result = recorded(outcome)
    assert result.value == {"exit": 0}
    assert result.content == shown


def test_the_event_names_the_error_as_the_harness_does() -> None:
    result = ToolResult.of("c", "t", Outcome.failure(Code.TOOL_OUTCOME_UNKNOWN, "who knows"))
    data = result.event_data(1, 2, "m")
    assert data["error"] == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert data["message"]["content"][0]["isError"] is True
    assert data["message"]["source"] == {"kind": "tool", "callId": "c"}


def test_P7_a_result_at_the_inline_limit_stays_and_one_byte_more_is_spilled() -> None:
    at_limit = "x" * (INLINE_LIMIT - 2)
    assert fit(returned(at_limit)).spill is None
    fitted = fit(returned(at_limit + "x"), "spill/9")
    assert fitted.spill == (at_limit + "x").encode()
    assert fitted.digest == hashlib.sha256(fitted.spill).hexdigest()
    result = recorded(fitted.outcome)
    assert result.value is None
    assert result.meta["spill"] == {
        "file": "spill/9",
        "bytes": INLINE_LIMIT - 1,
        "sha256": fitted.digest,
        "size": INLINE_LIMIT - 1,
        "cut": 0,
    }
    assert result.text.startswith("x" * PREVIEW)
    assert "spill/9" in result.text
    assert fitted.digest in result.text
    assert len(result.text) < PREVIEW + 500


def test_P7_characters_that_grow_as_json_count_as_they_are_stored() -> None:
    assert fit(returned("\x01" * (INLINE_LIMIT // 5))).spill is not None


def test_P7_over_the_spill_limit_head_and_tail_stay_and_the_cut_is_stated() -> None:
    text = "ä" + "b" * SPILL_LIMIT + "ö"
    fitted = fit(returned(text), "spill/9")
    assert fitted.spill is not None
    assert len(fitted.spill) <= SPILL_LIMIT
    kept = fitted.spill.decode()
    assert kept[0] == "ä"
    assert kept[-1] == "ö"
    cut = fitted.outcome.meta_object()["spill"]["cut"]
    assert f"[interlock: {cut} bytes of the result were cut here]" in kept
    assert f"without {cut} bytes" in fitted.outcome.blocks()[0]["text"]
    assert fitted.size == len(text.encode())
    marker = f"\n[interlock: {cut} bytes of the result were cut here]\n"
    assert len(fitted.spill) - len(marker.encode()) + cut == fitted.size


def test_P7_the_preview_does_not_end_inside_a_character() -> None:
    fitted = fit(returned("x" + "€" * INLINE_LIMIT))
    assert "\ufffd" not in fitted.outcome.blocks()[0]["text"]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(_json)
def test_P7_no_result_breaks_the_log(value: Any) -> None:
    outcome = round_trip(fit(returned(value)).outcome)
    live = ToolResult.of("c1", "t", outcome)
    assert recorded(outcome) == live
