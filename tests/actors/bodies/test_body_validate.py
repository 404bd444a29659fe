"""P1: what the model wrote is checked against the schema before any gate sees it."""

from __future__ import annotations

import json
from typing import Any, Literal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interlock.actors.bodies.validate import validate
from interlock.actors.tools import InvalidArgumentsError, tool


class Address(pydantic.BaseModel):
    city: str
    zip: int = 0


@tool
def send(
    to: str, cents: int, kind: Literal["a", "b"] = "a", home: Address | None = None
) -> None: ...


@tool
def total(cents: list[int]) -> None: ...


@tool
def now() -> None: ...


@tool
def anything(value: Any = None) -> None: ...


def test_P1_valid_arguments_pass_unchanged() -> None:
    raw = ' {"to" : "é🙂", "cents": 5, "home": {"city": "x"}} '
    valid = validate(send.spec, raw)
    assert valid.raw == raw.encode()
    assert valid.value == {"to": "é🙂", "cents": 5, "home": {"city": "x"}}


@pytest.mark.parametrize("raw", ["", " \n", "{}"])
def test_P1_no_arguments_are_an_empty_object(raw: str) -> None:
    valid = validate(now.spec, raw)
    assert (valid.raw, valid.value) == (b"{}", {})


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ('{"to":"x"', "not JSON: .* at character 9"),
        ("to=x", "not JSON"),
        ('{"to":"x","cents":1} and more', "not JSON"),
        ("[1]", "an array, not a JSON object"),
        ("null", "null, not a JSON object"),
        ('"x"', "a string, not"),
        ("3", "a number, not"),
        ("true", "a boolean, not"),
        ("{}", '"to" is a required property; "cents" is a required property'),
        ('{"to":"x","cents":"5"}', 'cents: "5" is not of type "integer"'),
        ('{"to":"x","cents":true}', "cents: true is not of type"),
        ('{"to":"x","cents":1,"note":"y"}', "'note' was unexpected"),
        ('{"to":"x","cents":1,"kind":"c"}', 'kind: "c" is not one of'),
        ('{"to":"x","cents":1,"home":{}}', "home: "),
        ('{"to":"x","cents":1,"cents":1000000}', "the key 'cents' is given twice"),
        ('{"to":"x","cents":1,"home":{"city":"a","city":"b"}}', "the key 'city' is given twice"),
        ('{"to":"x","cents":NaN}', "NaN is not JSON"),
        ('{"to":"x","cents":-Infinity}', "-Infinity is not JSON"),
        ('{"to":"half \\ud83d","cents":1}', "half of a surrogate pair"),
        ('{"to":"half \ud83d","cents":1}', "half of a surrogate pair"),
        ('{"to":"x","cents":1,"\\udc00":1}', "half of a surrogate pair"),
        ('{"to":"x","cents":%s}' % ("9" * 5000), "cannot be read"),
        ('{"to":' + "[" * 100_000, "nested too deeply"),
        ('{"to":"' + "x" * 10 + '\x01"}', "not JSON"),
    ],
)
def test_P1_what_does_not_fit_says_what_and_where(raw: str, words: str) -> None:
    with pytest.raises(InvalidArgumentsError, match=words) as caught:
        validate(send.spec, raw)
    str(caught.value).encode()
    assert "arguments of send" in str(caught.value)


def test_P1_messages_are_short_however_large_the_arguments() -> None:
    raw = json.dumps({"to": ["x" * 1_000_000], "cents": "y" * 1_000_000})
    with pytest.raises(InvalidArgumentsError) as caught:
        validate(send.spec, raw)
    assert len(str(caught.value)) < 2000
    with pytest.raises(InvalidArgumentsError, match="and 995 more") as caught:
        validate(total.spec, json.dumps({"cents": ["x"] * 1000}))
    assert len(str(caught.value)) < 2000


@given(st.text(st.characters(), max_size=60))
def test_P1_any_text_is_an_object_or_a_refusal(raw: str) -> None:
    try:
        valid = validate(anything.spec, raw)
    except InvalidArgumentsError:
        return
    assert json.loads(valid.raw) == valid.value


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(_values)
def test_P1_what_passes_the_schema_reaches_the_body_the_same(value: Any) -> None:
    valid = validate(anything.spec, json.dumps({"value": value}))
    assert anything.coerce(valid.raw) == {"value": value}
