"""X2, X3: every message survives the wire, and only from those who may say it."""

from __future__ import annotations

import ast
import inspect
import types
import typing
from pathlib import Path
from typing import Any, ClassVar

import interlock.actors
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interlock.actors import messages
from interlock.actors.errors import error_for
from interlock.actors.messages import Hello, Message, Refused, Release, WireTool
from interlock.actors.owner import refusal
from interlock.actors.roles import Role
from interlock.actors.tools.command import Command
from interlock.actors.tools.outcome import Outcome
from interlock.actors.tools.spec import ToolSpec
from interlock.actors.wire import (
    LIMITS,
    MESSAGE_TYPES,
    BadMessageError,
    bundle,
    decode,
    decode_all,
    encode,
)
from interlock.backends.codes import Code
from interlock.backends.errors import LogError
from interlock.backends.event import Draft, Replace, draft

EXAMPLES: dict[Any, Any] = {
    Draft: [
        draft("a/b", {"k": "ü\ud800"}, surface_op="append"),
        Draft("x", b"{}", False, Replace(1, 2), (1, 2), b"\0\xff"),
    ],
    Outcome: [
        Outcome.success({"a": [1, None]}),
        Outcome.failure(Code.TOOL_FAILED, "no", meta={"x": 1}),
    ],
    Command: [Command(["a", "ü"], env={"A": "b"}, stdin="text", timeout=1.5, mode="read-only")],
    ToolSpec: [ToolSpec(name="t", description="d", schema=b"{}", approval="ask", isolate=True)],
}


def example(kind: Any, index: int = 0) -> Any:
    """A value of a field's type; with another index another one."""
    if kind in EXAMPLES:
        return EXAMPLES[kind][index % len(EXAMPLES[kind])]
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        some = [part for part in parts if part is not type(None)]
        if len(some) == len(parts):
            return example(some[index % len(some)], index)
        return None if index else example(some[0])
    if origin is list:
        return [example(parts[0], i) for i in range(2)]
    if origin is dict:
        return {example(parts[0]): example(parts[1])}
    simple: dict[Any, Any] = {str: "ü", int: 2**40, float: 1.5, bool: True, bytes: b"\0\xff"}
    if kind in simple:
        return simple[kind]
    return kind(**fields_of(kind, index))


def fields_of(kind: Any, index: int) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {
        name: example(hints[name], index)
        for name in kind.__struct_fields__
        if typing.get_origin(hints[name]) is not ClassVar
    }


@pytest.mark.parametrize("kind", MESSAGE_TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("index", [0, 1])
def test_X3_a_message_comes_out_as_it_went_in(kind, index):
    message = kind(**fields_of(kind, index))
    sender = next(iter(kind.SENDERS))
    assert decode(encode(message), sender) == message


@pytest.mark.parametrize("kind", MESSAGE_TYPES, ids=lambda kind: kind.__name__)
def test_X3_a_message_names_who_may_say_it_and_nobody_else_may(kind):
    assert kind.SENDERS, "somebody has to be able to say it"
    assert kind.__doc__
    payload = encode(kind(**fields_of(kind, 0)))
    for role in Role:
        if role in kind.SENDERS:
            assert isinstance(decode(payload, role), kind)
        else:
            with pytest.raises(BadMessageError, match="not allowed"):
                decode(payload, role)


def test_every_message_type_is_on_the_wire():
    defined = {
        value.__name__
        for value in vars(messages).values()
        if inspect.isclass(value) and issubclass(value, Message) and value is not Message
    }
    assert {kind.__name__ for kind in MESSAGE_TYPES} == defined


@pytest.mark.parametrize("role", Role)
def test_X3_what_is_too_large_for_its_sender_is_not_even_parsed(role):
    with pytest.raises(BadMessageError, match="too large"):
        decode(memoryview(bytes(LIMITS[role] + 1)), role)


@given(st.binary(max_size=200), st.sampled_from(Role))
def test_X3_no_bytes_do_anything_but_be_refused_or_be_a_message(payload, role):
    try:
        message = decode(payload, role)
    except BadMessageError:
        return
    assert role in message.SENDERS


@given(st.data())
def test_X3_a_damaged_message_is_refused_or_a_message(data):
    kind = data.draw(st.sampled_from(MESSAGE_TYPES))
    payload = bytearray(encode(kind(**fields_of(kind, 0))))
    payload[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    for role in kind.SENDERS:
        try:
            decode(bytes(payload), role)
        except BadMessageError:
            continue


@pytest.mark.parametrize("count", [1, 2, 20])
def test_X3_a_bundle_comes_out_in_its_order(count):
    messages = [Hello(number) for number in range(count)]
    payload = bundle([encode(message) for message in messages])
    assert decode_all(payload, Role.HOST) == messages
    assert decode_all(memoryview(payload), Role.HOST) == messages


@given(payload=st.binary(max_size=300), role=st.sampled_from(sorted(Role)))
def test_X3_no_bytes_in_a_bundle_do_anything_but_be_refused_or_be_messages(payload, role):
    for data in (payload, b"\xc1" + payload, b"\xc1\xdd\0\0\0\x01" + payload):
        try:
            messages = decode_all(data, role)
        except BadMessageError:
            continue
        assert all(role in message.SENDERS for message in messages)


@pytest.mark.parametrize("role", sorted(Role))
def test_X3_a_bundle_that_is_too_large_for_its_sender_is_not_even_parsed(role):
    with pytest.raises(BadMessageError, match="too large"):
        decode_all(b"\xc1" + bytes(LIMITS[role]), role)


def test_X4_releases_and_registrations_have_one_sender():
    assert {Role.DISPATCHER} == Release.SENDERS
    assert {Role.DISPATCHER} == messages.Launch.SENDERS
    assert {Role.HOST} == messages.RegisterTools.SENDERS
    assert {Role.DISPATCHER} == messages.LoadTools.SENDERS
    assert Role.ANSWERER not in messages.Append.SENDERS
    assert Role.CLIENT not in messages.AnswerApproval.SENDERS


def test_X2_pickles_travel_in_one_field_of_two_messages_and_are_read_in_one_place():
    carriers = [kind for kind in MESSAGE_TYPES if "pickled" in repr(typing.get_type_hints(kind))]
    assert carriers == []
    assert "pickled" in WireTool.__struct_fields__
    readers = set()
    for path in Path(interlock.actors.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Import | ast.ImportFrom)
            names = [alias.name for alias in node.names] if named else []
            if isinstance(node, ast.ImportFrom):
                names.append(node.module or "")
            if {"pickle", "cloudpickle", "marshal", "shelve"} & {n.split(".")[0] for n in names}:
                readers.add(path.name)
    assert readers == {"pack.py"}, "nothing else may unpickle"


def test_a_refusal_stands_for_the_error_that_it_was_made_of():
    error = LogError(Code.EVENT_INVALID, "no", session="s", seq=4, where=Path("/x"))
    sent = decode(encode(refusal(3, error)), Role.WRITER)
    assert isinstance(sent, Refused)
    again = error_for(sent.code, sent.message, **sent.details)
    assert (type(again), again.code, again.message) == (LogError, Code.EVENT_INVALID, "no")
    assert again.details == {"session": "s", "seq": 4, "where": "/x"}
