"""Who may ask the writer for what, and what readers get."""

from __future__ import annotations

from pathlib import Path

import pytest
from interlock.actors.messages import (
    CloseSession,
    CreateSession,
    ExecuteStep,
    PendingEvents,
    ReadPending,
    RepairSession,
    SessionOpened,
    StreamAck,
    StreamItem,
    StreamLagged,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from interlock.actors.roles import Role
from interlock.actors.writer.streams import CREDIT
from interlock.backends.codes import Code
from interlock.backends.event import Draft, decode_line, draft
from log_words import message, note, step_start, turn_start, user
from virtual import VirtualPeer

# X4: who may append what.


def test_X4_another_connection_neither_appends_nor_repairs_nor_closes(world):
    client = VirtualPeer(world.network, "client", Role.CLIENT)
    assert world.say(turn_start(), peer=client).code == Code.EVENT_INVALID
    assert client.ask(Role.WRITER, RepairSession(1, "s")).code == Code.EVENT_INVALID
    assert client.ask(Role.WRITER, CloseSession(2, "s")).code == Code.EVENT_INVALID
    assert world.say(turn_start()).first_seq == 1


def test_X4_a_client_appends_to_the_session_that_it_opened(world):
    client = VirtualPeer(world.network, "client", Role.CLIENT)
    assert isinstance(world.create("mine", client), SessionOpened)
    assert world.say(turn_start(), peer=client, session="mine").first_seq == 1
    assert world.say(user(), session="mine").code == Code.EVENT_INVALID


@pytest.mark.parametrize(
    "event",
    [
        draft("tool/call", {}),
        draft("tool/result", {}),
        draft("tool/ptc-dispatch-start", {}),
        draft("tool/ptc-dispatch", {}),
        draft("approval/asked", {"id": "x", "toolName": "t"}),
        draft("approval/decided", {"id": "x", "outcome": "allowed-once"}),
        draft("interlock/approval", {}, ignorable=True),
        draft("interlock/settled", {}, ignorable=True),
        draft("interlock/writer", {}, ignorable=True),
    ],
    ids=lambda event: event.type,
)
def test_X4_only_the_dispatcher_appends_calls_and_approvals(world, event):
    world.say(turn_start())
    refused = world.say(event)
    assert refused.code == Code.EVENT_INVALID
    assert "a host may not append" in refused.message


def test_X4_the_dispatcher_appends_nothing_else_and_is_bound_to_no_opener(world):
    dispatcher = VirtualPeer(world.network, "d", Role.DISPATCHER)
    world.say(turn_start())
    assert world.say(user(), peer=dispatcher).code == Code.EVENT_INVALID
    asked = draft("approval/asked", {"id": "x", "toolName": "t"})
    assert world.say(asked, peer=dispatcher).first_seq == 2


def test_X3_X4_neither_an_answerer_nor_a_worker_may_ask_for_an_append(world):
    for role in (Role.ANSWERER, Role.WORKER, Role.BROKER, Role.LAUNCHER):
        with pytest.raises(ValueError, match="not allowed"):
            world.say(turn_start(), peer=VirtualPeer(world.network, role, role))


def test_X3_what_the_writer_has_no_use_for_is_refused(world):
    step = ExecuteStep(world.rid(), "s", 0, "/", 1, 1, 0, [])
    assert world.host.ask(Role.WRITER, step).code == Code.EVENT_INVALID


@pytest.mark.parametrize(
    "event",
    [
        Draft("app/note", b"not json", ignorable=True),
        Draft("app/note", b'"text"', ignorable=True),
        Draft("app/note", b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", ignorable=True),
        Draft("app/note", b'{"a":\xff}', ignorable=True),
        Draft("app/note", b"{}", ignorable=True, spill=b"x"),
        Draft("app/note", b"{}", ignorable=True, sources=(-1,)),
        Draft("unknown/type", b"{}"),
    ],
)
def test_X3_a_malformed_event_is_refused_and_the_writer_lives_on(world, event):
    assert world.say(event).code == Code.EVENT_INVALID
    assert world.say(turn_start()).first_seq == 1


@pytest.mark.parametrize(
    ("session", "cwd"),
    [("x", ""), ("x", "relative"), ("", "/w"), ("a" * 4000, "/w")],
)
def test_X3_L14_a_session_that_cannot_be_is_refused_and_the_writer_lives_on(world, session, cwd):
    refused = world.host.ask(Role.WRITER, CreateSession(world.rid(), session, cwd))
    assert refused.code in (Code.SESSION_ID_INVALID, Code.EVENT_INVALID)
    assert world.say(turn_start()).first_seq == 1


@pytest.mark.parametrize(("session", "cwd"), [("..", "/w"), ("a/b", "/w"), ("x", "/with\0nul")])
def test_L14_no_id_and_no_cwd_leaves_the_root(world, session, cwd):
    opened = world.host.ask(Role.WRITER, CreateSession(world.rid(), session, cwd))
    assert Path(opened.path).resolve().is_relative_to(world.root)
    world.say(turn_start(), session=session)
    assert world.flush(session).durable_seq == 1


def test_after_an_append_waits_for_nothing_but_its_past(world):
    """Design, "Order between connections": refused if the log has not got that far."""
    world.say(turn_start())
    assert world.say(note(), after=1).first_seq == 2
    refused = world.say(note(), after=3)
    assert refused.code == Code.EVENT_INVALID
    assert "has not got to event 3" in refused.message


# Reading and subscriptions.


def test_what_is_not_durable_yet_can_be_read_from_the_writer(world):
    world.say(turn_start())
    world.flush()
    world.say(user(), note())
    pending = world.host.ask(Role.WRITER, ReadPending(world.rid(), "s", 0))
    assert isinstance(pending, PendingEvents)
    assert [decode_line(line).seq for line in pending.lines] == [2, 3]
    assert pending.durable_seq == 1
    assert pending.path == str(world.file())
    from_three = world.host.ask(Role.WRITER, ReadPending(world.rid(), "s", 3))
    assert [decode_line(line).seq for line in from_three.lines] == [3]


def test_a_subscription_says_where_the_stream_starts_and_misses_nothing_after_it(world):
    world.say(turn_start())
    reply = world.host.ask(Role.WRITER, Subscribe(world.rid(), "s"))
    assert isinstance(reply, Subscribed)
    assert reply.next_seq == 2
    world.say(user())
    assert world.host.last(StreamItem).first_seq == 2


def test_a_subscriber_without_credit_is_told_where_the_stream_goes_on(world):
    world.host.ask(Role.WRITER, Subscribe(world.rid(), "s"))
    world.say(turn_start())
    for _ in range(CREDIT + 10):
        world.say(note())
    items = world.host.got(StreamItem)
    assert len(items) == CREDIT, "beyond its credit nothing is queued"
    world.host.say(Role.WRITER, StreamAck("s", CREDIT - 1))
    world.network.run()
    assert world.host.got(StreamLagged) == [], "it has not taken everything yet"
    world.host.say(Role.WRITER, StreamAck("s", 1))
    world.network.run()
    lagged = world.host.last(StreamLagged)
    assert (lagged.next_seq, lagged.incarnation) == (CREDIT + 12, "life-1")
    world.say(note("next"))
    assert world.host.last(StreamItem).first_seq == lagged.next_seq


def test_a_subscriber_that_left_gets_nothing_and_costs_nothing(world):
    reader = VirtualPeer(world.network, "reader", Role.CLIENT)
    reader.ask(Role.WRITER, Subscribe(1, "s"))
    reader.say(Role.WRITER, Unsubscribe("s"))
    world.say(turn_start())
    assert reader.got(StreamItem) == []
    gone = VirtualPeer(world.network, "gone", Role.CLIENT)
    gone.ask(Role.WRITER, Subscribe(1, "s"))
    gone.leave()
    assert world.say(note()).first_seq == 2


# R2 through the writer.


def test_R2_repair_closes_what_is_open_and_is_durable(world):
    world.say(turn_start(), user(), step_start(), message([("c", "tool", "{}")]))
    repaired = world.host.ask(Role.WRITER, RepairSession(world.rid(), "s"))
    assert repaired.durable_seq == repaired.last_seq
    assert world.stored()[-3:] == ["tool/result", "step/end", "turn/end"]
    again = world.host.ask(Role.WRITER, RepairSession(world.rid(), "s"))
    assert again.first_seq == -1, "repairing a repaired log changes nothing"
