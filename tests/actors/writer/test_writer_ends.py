"""How sessions are opened and closed, in order and otherwise."""

from __future__ import annotations

from interlock.actors.messages import (
    Appended,
    CloseSession,
    Flush,
    OpenSession,
    SessionClosed,
    SessionOpened,
    Shutdown,
    Stopped,
    StreamEnded,
    Subscribe,
    WriteFailed,
)
from interlock.actors.roles import Role
from interlock.backends.codes import Code
from interlock.backends.errors import LogError
from log_words import note, turn_start, user
from virtual import VirtualPeer
from writer_world import WriterWorld, disk_full

# L6, L15: sessions that can no longer be written.


def test_L15_a_log_that_something_else_wrote_to_is_closed_and_everybody_is_told(world):
    reader = VirtualPeer(world.network, "reader", Role.ANSWERER)
    world.say(turn_start())
    world.flush()
    reader.ask(Role.WRITER, Subscribe(1, "s"))
    with world.file().open("ab") as file:
        file.write(b"something else")
    world.say(note())
    refused = world.flush()
    assert refused.code == Code.SESSION_SOURCE_CHANGED
    [told] = world.host.got(WriteFailed)
    assert told.closed
    assert reader.last(StreamEnded).code == Code.SESSION_SOURCE_CHANGED
    assert world.say(note()).code == Code.SESSION_CLOSED
    assert world.core.counters()["open_sessions"] == 0


def test_L6_those_who_wait_for_the_next_write_of_a_closed_session_are_told_too(world):
    world.port.hold_work = True
    world.say(turn_start())
    first = world.send(Flush, "s")
    world.network.run()
    world.say(note())
    second = world.send(Flush, "s")
    world.network.run()
    broken = LogError(Code.LOG_WRITE_FAILED, "cannot be put back", closed=True, trusted_length=9)
    world.port.jobs.popleft().fail(broken)
    world.network.run()
    # Told once the log is closed: whoever hears of it may open the session again at once.
    world.port.jobs.popleft().run()
    world.network.run()
    assert [world.reply(rid).code for rid in (first, second)] == [Code.LOG_WRITE_FAILED] * 2
    assert world.reply(first).details["trusted_length"] == 9
    assert world.writes == 1, "nothing more is written to it"
    assert world.say(note()).code == Code.SESSION_CLOSED


# L7: nothing is written before the first append or an explicit flush.


def test_L7_creating_and_closing_an_empty_session_writes_nothing(world):
    closed = world.host.ask(Role.WRITER, CloseSession(world.rid(), "s"))
    assert closed == SessionClosed(closed.rid, "s", -1)
    assert not world.file().exists()


def test_L7_an_explicit_flush_of_an_empty_session_publishes_the_header_alone(world):
    flushed = world.flush()
    assert (flushed.last_seq, flushed.durable_seq) == (-1, -1)
    assert world.stored() == []
    assert world.writes == 1
    world.flush()
    assert world.writes == 1


def test_L7_of_two_writers_that_create_one_id_one_gets_SESSION_EXISTS(world):
    other = WriterWorld(world.root)
    other.create()
    other.say(turn_start())
    other.flush()
    world.say(turn_start())
    assert world.flush().code == Code.SESSION_EXISTS
    assert world.core.counters()["open_sessions"] == 0


# L11: one writer per session.


def test_L11_a_second_handle_is_SESSION_LOCKED_and_names_the_holder(world):
    refused = world.host.ask(Role.WRITER, OpenSession(world.rid(), "s"))
    assert refused.code == Code.SESSION_LOCKED
    assert refused.details["pid"] is not None


def test_L11_also_while_the_first_is_still_opening(world):
    world.say(turn_start())
    world.host.ask(Role.WRITER, CloseSession(world.rid(), "s"))
    world.port.hold_work = True
    first = world.send(OpenSession, "s")
    second = world.send(OpenSession, "s")
    world.network.run()
    assert world.reply(second).code == Code.SESSION_LOCKED
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert isinstance(world.reply(first), SessionOpened)


def test_L11_a_session_that_could_not_be_opened_can_be_tried_again(world):
    assert world.host.ask(Role.WRITER, OpenSession(9, "absent")).code == Code.SESSION_NOT_FOUND
    assert isinstance(world.create("absent"), SessionOpened)


def test_L11_another_process_gets_SESSION_LOCKED_until_it_is_let_go(world):
    world.say(turn_start())
    world.flush()
    other = WriterWorld(world.root)
    assert other.host.ask(Role.WRITER, OpenSession(1, "s")).code == Code.SESSION_LOCKED
    world.host.ask(Role.WRITER, CloseSession(world.rid(), "s"))
    assert isinstance(other.host.ask(Role.WRITER, OpenSession(2, "s")), SessionOpened)


# L16: orderly ends.


def test_L16_closing_flushes_and_says_up_to_which_seq(world):
    world.say(turn_start(), user())
    closed = world.host.ask(Role.WRITER, CloseSession(world.rid(), "s"))
    assert closed.durable_seq == 2
    assert len(world.stored()) == 3
    assert world.flush().code == Code.SESSION_CLOSED


def test_L16_what_is_appended_while_a_session_closes_is_not_lost(world):
    world.say(turn_start())
    world.port.hold_work = True
    closing = world.send(CloseSession, "s")
    world.network.run()
    late = world.say(note("late"))
    world.port.hold_work = False
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert isinstance(late, Appended)
    assert world.reply(closing).durable_seq == late.last_seq
    assert world.stored()[-1] == "app/note"


def test_L16_a_close_that_cannot_flush_leaves_the_session_open_for_another_try(world):
    world.say(turn_start())
    world.port.hold_work = True
    first = world.send(CloseSession, "s")
    world.network.run()
    world.port.jobs.popleft().fail(disk_full())
    world.network.run()
    assert world.reply(first).code == Code.LOG_WRITE_FAILED
    world.port.hold_work = False
    assert world.host.ask(Role.WRITER, CloseSession(world.rid(), "s")).durable_seq == 1


def test_L16_a_shutdown_says_what_is_durable_and_names_what_failed(world):
    world.create("bad")
    world.say(turn_start())
    world.say(turn_start(), session="bad")
    world.port.hold_work = True
    rid = world.send(Shutdown, 1.0)
    world.network.run()
    good, bad = world.port.jobs
    world.port.jobs.clear()
    world.port.hold_work = False
    good.run()
    bad.fail(disk_full())
    world.network.run()
    stopped = world.reply(rid)
    assert stopped.durable == {"s": 1, "bad": -1}
    assert list(stopped.failed) == ["bad"]
    assert "No space left" in stopped.failed["bad"]
    assert Role.WRITER not in world.network.owners


def test_L16_shutdown_tells_subscribers_and_frees_the_locks(world):
    world.say(turn_start())
    world.host.ask(Role.WRITER, Subscribe(world.rid(), "s"))
    stopped = world.host.ask(Role.WRITER, Shutdown(world.rid(), 1.0))
    assert isinstance(stopped, Stopped)
    assert world.host.last(StreamEnded).code is None
    other = WriterWorld(world.root)
    assert isinstance(other.host.ask(Role.WRITER, OpenSession(1, "s")), SessionOpened)


def test_L16_a_session_that_is_opened_while_the_writer_ends_is_let_go(world):
    world.say(turn_start())
    world.host.ask(Role.WRITER, CloseSession(world.rid(), "s"))
    world.create("open")
    world.say(turn_start(), session="open")
    world.port.hold_work = True
    opening = world.send(OpenSession, "s")
    world.network.run()
    world.send(Shutdown, 1.0)
    world.network.run()
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert world.reply(opening).code == Code.SESSION_CLOSED
    port = world.port
    while port.jobs:
        world.network.called(Role.WRITER, port.finish_job)
        world.network.run()
    other = WriterWorld(world.root)
    assert isinstance(other.host.ask(Role.WRITER, OpenSession(1, "s")), SessionOpened)


def test_F1_the_writer_stays_until_the_dispatcher_is_gone_and_then_flushes(world):
    world.say(turn_start())
    world.network.start(Role.DISPATCHER, lambda _port: _Nobody(), "d")  # type: ignore[arg-type, return-value]
    world.network.lose_host()
    world.network.run()
    assert Role.WRITER in world.network.owners
    world.network.kill(Role.DISPATCHER)
    world.network.run()
    assert Role.WRITER not in world.network.owners
    assert world.stored() == ["interlock/writer", "turn/start"]


class _Nobody:
    """An owner that does nothing."""

    def batch_done(self) -> None:
        return

    host_lost = batch_done
