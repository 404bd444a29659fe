from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interlock.backends import jsontext
from interlock.backends.errors import SessionError
from interlock.backends.event import (
    EnvelopeError,
    Event,
    Replace,
    RowError,
    decode_line,
    encode_line,
    to_json,
)
from interlock.backends.header import Header, decode_header, encode_header
from interlock.backends.paths import (
    default_root,
    log_name,
    parse_log_name,
    project_dir_name,
    session_dir_name,
)

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x != 0)
    | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_any_json_value_survives_lone_surrogates_included(value):
    text = jsontext.dumps(value)

    assert b"\n" not in text
    text.decode("utf-8")
    # Two lone halves that meet are one character to every JSON reader, ours included.
    assert jsontext.loads(text) == json.loads(text)
    assert json.loads(text) == json.loads(json.dumps(value))


@pytest.mark.parametrize("bad", [math.nan, math.inf, {"a": [None, -math.inf]}, {"a": object()}])
def test_what_json_cannot_hold_is_refused(bad):
    with pytest.raises(ValueError, match="not JSON"):
        jsontext.dumps(bad)


@pytest.mark.parametrize(
    "bad", [b"NaN", b"[Infinity]", b'{"a":1', b'"\\ud83d" NaN', b'["\\ud83d", 1e999]', b""]
)
def test_text_that_is_not_json_is_refused(bad):
    with pytest.raises(ValueError, match=r"JSON|value|range|data"):
        jsontext.loads(bad)


def test_minus_zero_is_written_as_javascript_writes_it():
    assert jsontext.dumps({"a": [-0.0, -0.5, None]}) == b'{"a":[0,-0.5,null]}'


@pytest.mark.parametrize(
    ("sources", "stored"),
    [
        ((3,), b"[3]"),
        ((1, 2), b"[1,2]"),
        ((1, 2, 3), b"[[1,3]]"),
        ((0, 1, 2, 4, 5, 7, 8, 9), b"[[0,2],4,5,[7,9]]"),
        ((3, 2, 1), b"[3,2,1]"),
        ((9, 1, 2, 3), b"[9,1,2,3]"),
    ],
)
def test_sources_are_stored_as_runs_of_three_and_more_where_they_rise(sources, stored):
    event = Event("user/message", 20, 1, b"{}", False, "append", sources)

    line = encode_line(event)

    assert b'"sourceEventSeqs":' + stored + b"," in line
    assert decode_line(line) == event
    assert to_json(decode_line(line))["sourceEventSeqs"] == list(sources)


def test_a_row_has_its_keys_in_the_order_of_the_format():
    event = Event("tool/result", 5, -7, b'{"a":1}', True, Replace(1, 2), (1, 2))

    assert encode_line(event) == (
        b'{"type":"tool/result","seq":5,"time":-7,"data":{"a":1},"ignorable":true,'
        b'"sourceEventSeqs":[1,2],"surfaceOp":{"op":"replace","startSeq":1,"endSeq":2}}\n'
    )


@pytest.mark.parametrize("row", ["", "no", "[]", "1", '{"seq":0}', '{"type":"a"}', '{"type":1}'])
def test_a_line_that_is_no_row_is_told_apart(row):
    with pytest.raises(RowError):
        decode_line(row.encode())


@pytest.mark.parametrize(
    "members",
    [
        '"time":1,"data":{},"extra":1',
        '"time":1.5,"data":{}',
        '"data":{}',
        '"time":1',
        '"time":1,"data":[]',
        '"time":1,"data":{},"ignorable":false',
        '"time":1,"data":{},"surfaceOp":"prepend"',
        '"time":1,"data":{},"surfaceOp":{"op":"replace","start":0,"end":0}',
        '"time":1,"data":{},"sourceEventSeqs":[]',
        '"time":1,"data":{},"sourceEventSeqs":[0,0]',
        '"time":1,"data":{},"sourceEventSeqs":[4]',
        '"time":1,"data":{},"sourceEventSeqs":[[0,999999999999]]',
        '"time":1,"data":{},"sourceEventSeqs":[[1,2],0]',
        '"time":1,"data":{},"sourceEventSeqs":[true]',
    ],
)
def test_a_row_with_a_wrong_member_says_which_row_it_is(members):
    with pytest.raises(EnvelopeError) as caught:
        decode_line(b'{"type":"user/message","seq":4,%b}' % members.encode())
    assert (caught.value.type, caught.value.seq) == ("user/message", 4)


def test_lone_surrogates_in_a_row_survive_reading_and_writing():
    line = b'{"type":"a\\ud83d","seq":0,"time":1,"data":{"t":"\\udc00x"}}\n'
    event = decode_line(line)

    assert (event.type, event.data) == ("a\ud83d", {"t": "\udc00x"})
    assert encode_line(event) == line


@pytest.mark.parametrize(
    ("session_id", "name"),
    [
        ("séance/../会话~1 🙂", "s~00E9ance~002F..~002F~4F1A~8BDD~007E1~0020~D83D~DE42"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
        ("a\0b", "a~0000b"),
        ("\ud83d", "~D83D"),
        ("A.b_c-9", "A.b_c-9"),
    ],
)
def test_L14_session_directory_names_are_those_of_the_format(session_id, name):
    assert session_dir_name(session_id) == name


@given(ANY_TEXT.filter(bool), ANY_TEXT.filter(bool))
def test_L14_no_id_leaves_its_directory_and_no_two_share_one(one, other):
    try:
        names = session_dir_name(one), session_dir_name(other)
    except SessionError:
        return
    for name in names:
        assert name not in (".", "..")
        assert not set(name) & set("/\\\0:")
        assert len(name.encode()) <= 255
    same_text = one.encode("utf-16", "surrogatepass") == other.encode("utf-16", "surrogatepass")
    assert (names[0] == names[1]) is same_text


@pytest.mark.parametrize("session_id", ["", "x" * 256, "é" * 52])
def test_L14_an_id_without_a_name_is_refused_naming_the_limit(session_id):
    with pytest.raises(SessionError) as caught:
        session_dir_name(session_id)
    assert caught.value.code == "SESSION_ID_INVALID"
    assert not session_id or "255" in caught.value.message


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/demo/project", "--demo-project--"),
        ("/", "--root--"),
        (r"C:\a b", "--C-a~0020b--"),
        (None, "_no-cwd"),
        ("/" + "a" * 300, f"--{'a' * 251}--"),
        (
            "/demo/проект: «тест» 日本/a b",
            "--demo-~043F~0440~043E~0435~043A~0442-~0020~00AB~0442~0435~0441~0442~00BB~0020{}".format(
                "~65E5~672C-a~0020b--"
            ),
        ),
    ],
)
def test_project_directory_names_are_those_of_the_format(cwd, name):
    assert project_dir_name(cwd) == name
    assert len(name) <= 255


@pytest.mark.parametrize("name", ["session.v0.jsonl", "session.V1.jsonl", "session.v01.jsonl"])
def test_only_canonical_names_are_generations(name):
    assert parse_log_name(name) is None
    assert parse_log_name(log_name(3, compressed=True)) == (3, True)
    assert parse_log_name("session.jsonl") == (0, False)


def test_the_default_root_is_the_users_state_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "interlock" / "sessions"
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_root() == tmp_path / ".local" / "state" / "interlock" / "sessions"


GOOD = {
    "type": "session",
    "version": 3,
    "id": "s",
    "createdAt": 5,
    "cwd": "/x",
    "isSeeded": False,
    "delegationDepth": 0,
}


def test_a_header_survives_in_the_order_of_the_format():
    header = Header("s", 5, "/x", "parent", True, "subagent", 2, "preset")

    line = encode_header(header)

    assert list(json.loads(line)) == [
        "type",
        "version",
        "id",
        "createdAt",
        "cwd",
        "parentSession",
        "isSeeded",
        "origin",
        "delegationDepth",
        "agentPreset",
    ]
    assert decode_header(line) == header
    assert decode_header(json.dumps(GOOD).encode()) == Header("s", 5, "/x")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"version": 9, "anything": 1}, "SESSION_FORMAT_UNSUPPORTED"),
        ({"version": 4, "id": None}, "SESSION_FORMAT_UNSUPPORTED"),
        ({"version": 2}, "SESSION_CORRUPT"),
        ({"version": "3"}, "SESSION_CORRUPT"),
        ({"type": "other"}, "SESSION_CORRUPT"),
        ({"delegationDepth": None}, "SESSION_CORRUPT"),
        ({"delegationDepth": -1}, "SESSION_CORRUPT"),
        ({"createdAt": 1.5}, "SESSION_CORRUPT"),
        ({"cwd": "relative"}, "SESSION_CORRUPT"),
        ({"cwd": None}, "SESSION_CORRUPT"),
        ({"origin": "other"}, "SESSION_CORRUPT"),
        ({"isSeeded": 1}, "SESSION_CORRUPT"),
        ({"sandboxMode": "read-only"}, "SESSION_CORRUPT"),
        ({"extra": 1}, "SESSION_CORRUPT"),
        ({"seedLength": 1}, "SESSION_CORRUPT"),
        ({"id": ""}, "SESSION_CORRUPT"),
    ],
)
def test_a_wrong_header_is_refused_foreign_version_first(change, code):
    with pytest.raises(SessionError) as caught:
        decode_header(json.dumps(GOOD | change).encode())
    assert caught.value.code == code


@pytest.mark.parametrize("missing", ["id", "createdAt", "isSeeded", "delegationDepth", "version"])
def test_a_header_without_a_required_member_is_damage(missing):
    row = {key: value for key, value in GOOD.items() if key != missing}
    with pytest.raises(SessionError) as caught:
        decode_header(json.dumps(row).encode())
    assert caught.value.code == "SESSION_CORRUPT"


def test_minus_zero_in_a_header_is_refused():
    line = json.dumps(GOOD).encode().replace(b'"createdAt": 5', b'"createdAt": -0')
    with pytest.raises(SessionError, match="-0"):
        decode_header(line)
