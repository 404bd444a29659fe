"""The decisions of the session writer when what is written, and who is told."""

from __future__ import annotations

from interlock.actors.messages import (
    Append,
    Appended,
    Flush,
    Refused,
    StreamItem,
    Subscribe,
    WriteFailed,
)
from interlock.actors.roles import Role
from interlock.actors.writer.commits import WINDOW
from interlock.backends.codes import Code
from interlock.backends.event import decode_line
from log_words import note, turn_end, turn_start, user
from writer_world import WriterWorld, disk_full

# L1, L2: appended and durable.


def test_L1_seqs_are_contiguous_and_the_first_append_says_who_writes(world):
    reply = world.say(turn_start(), user())
    assert (reply.first_seq, reply.last_seq) == (1, 2)
    assert world.say(note()).first_seq == 3
    world.flush()
    assert world.stored() == ["interlock/writer", "turn/start", "user/message", "app/note"]


def test_L1_an_append_of_several_events_is_atomic(world):
    world.say(turn_start())
    refused = world.say(user(), turn_start(2))
    assert isinstance(refused, Refused)
    assert refused.code == Code.EVENT_INVALID
    assert world.say(note()).first_seq == 2, "nothing of the refused append may remain"


def test_L1_a_refused_first_append_leaves_no_note_of_the_writer_behind(world):
    assert isinstance(world.say(turn_end()), Refused)
    assert world.say(turn_start()).first_seq == 1


def test_L2_a_reply_says_what_is_durable_and_by_which_life_of_the_writer(world):
    appended = world.say(turn_start())
    assert (appended.last_seq, appended.durable_seq, appended.incarnation) == (1, -1, "life-1")
    flushed = world.flush()
    assert (flushed.last_seq, flushed.durable_seq, flushed.incarnation) == (1, 1, "life-1")


def test_L2_stream_items_say_what_is_durable_and_by_whom(world):
    world.host.ask(Role.WRITER, Subscribe(world.rid(), "s"))
    world.say(turn_start())
    fresh = world.host.last(StreamItem)
    assert [decode_line(line).type for line in fresh.lines] == ["interlock/writer", "turn/start"]
    assert (fresh.first_seq, fresh.durable_seq, fresh.incarnation) == (0, -1, "life-1")
    world.flush()
    settled = world.host.last(StreamItem)
    assert (settled.first_seq, settled.lines, settled.durable_seq) == (2, [], 1)


# L3: the write-behind window.


def test_L3_the_window_is_200_ms_from_the_first_event_and_is_not_extended(world):
    assert WINDOW == 0.2
    world.say(turn_start())
    world.network.advance(0.15)
    world.say(note())
    world.network.advance(0.04)
    assert world.writes == 0
    world.network.advance(0.02)
    assert world.writes == 1
    assert world.stored()[-1] == "app/note", "what came later rides along"


def test_L3_events_during_a_write_form_the_next_window(world):
    world.port.hold_work = True
    world.say(turn_start())
    world.network.advance(WINDOW)
    assert world.writes == 1
    world.say(note())
    world.network.advance(0.1)
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert world.writes == 1, "the end of a write is no reason for another"
    world.network.advance(0.11)
    assert world.writes == 2


def test_L3_a_window_that_runs_out_during_a_write_is_written_after_it(world):
    world.port.hold_work = True
    world.say(turn_start())
    world.network.advance(WINDOW)
    world.say(note("during"))
    world.network.advance(5.0)
    assert world.writes == 1
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert world.writes == 2, "its wait was over; nobody else will write it"


def test_L3_an_idle_session_is_not_written(world):
    world.say(turn_start())
    world.network.advance(60.0)
    assert world.writes == 1


# L4: flushes.


def test_L4_a_flush_skips_the_window(world):
    world.say(turn_start())
    assert isinstance(world.flush(), Appended)
    assert world.network.now == 1000.0
    assert world.writes == 1


def test_L4_a_flush_of_what_is_durable_writes_nothing(world):
    world.say(turn_start())
    world.flush()
    assert world.flush().durable_seq == 1
    assert world.writes == 1


def test_L4_flushes_of_one_batch_share_a_write(world):
    world.say(turn_start())
    rids = [world.send(Flush, "s") for _ in range(5)]
    world.network.run()
    assert world.writes == 1
    assert all(world.reply(rid).durable_seq == 1 for rid in rids)


def test_L4_flushes_that_come_during_a_write_share_the_next_one(world):
    world.port.hold_work = True
    world.say(turn_start())
    early = world.send(Flush, "s")
    world.network.run()
    world.say(note())
    late = [world.send(Flush, "s") for _ in range(3)]
    world.network.run()
    assert world.writes == 1, "one write at a time"
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert world.reply(early).durable_seq == 1
    assert [world.reply(rid) for rid in late] == [None] * 3
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert [world.reply(rid).durable_seq for rid in late] == [2, 2, 2]
    assert world.writes == 2


def test_L4_a_flush_during_a_write_that_covers_it_needs_no_other(world):
    world.port.hold_work = True
    world.say(turn_start())
    world.network.advance(WINDOW)
    rid = world.send(Flush, "s")
    world.network.run()
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert world.reply(rid).durable_seq == 1
    assert world.writes == 1


def test_L4_every_waiter_gets_a_bad_outcome_too(world):
    world.port.hold_work = True
    world.say(turn_start())
    rids = [world.send(Flush, "s") for _ in range(3)]
    world.network.run()
    world.port.jobs.popleft().fail(disk_full())
    world.network.run()
    assert [world.reply(rid).code for rid in rids] == [Code.LOG_WRITE_FAILED] * 3


def test_L4_a_flush_that_came_during_a_failing_write_is_tried_at_once(world):
    world.port.hold_work = True
    world.say(turn_start())
    world.network.advance(WINDOW)
    rid = world.send(Flush, "s")
    world.network.run()
    world.network.called(Role.WRITER, lambda: world.port.jobs.popleft().fail(disk_full()))
    world.network.run()
    assert world.writes == 2
    assert world.reply(rid) is None
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert world.reply(rid).durable_seq == 1


def test_L4_a_flush_of_one_session_does_not_write_another(world):
    world.create("other")
    world.say(turn_start(), session="other")
    world.say(turn_start())
    world.flush()
    assert world.writes == 1


def test_L4_an_append_that_flushes_is_answered_once_durable(world):
    world.port.hold_work = True
    rid = world.send(Append, "s", [turn_start()], -1, True)
    world.network.run()
    assert world.reply(rid) is None
    world.network.called(Role.WRITER, world.port.finish_job)
    world.network.run()
    assert (world.reply(rid).first_seq, world.reply(rid).durable_seq) == (1, 1)


def test_L4_an_append_that_could_not_be_flushed_says_what_was_appended(world):
    world.port.hold_work = True
    rid = world.send(Append, "s", [turn_start()], -1, True)
    world.network.run()
    world.port.jobs.popleft().fail(disk_full())
    world.network.run()
    assert world.reply(rid).details["first_seq"] == 1
    assert world.say(note()).first_seq == 2


# L5: failed background writes.


def failed_background_write(world: WriterWorld) -> None:
    world.port.hold_work = True
    world.say(turn_start())
    world.network.advance(WINDOW)
    world.network.called(Role.WRITER, lambda: world.port.jobs.popleft().fail(disk_full()))
    world.network.run()


def test_L5_F7_a_failed_background_write_is_reported_once_and_not_retried(world):
    failed_background_write(world)
    world.network.advance(600.0)
    [told] = world.host.got(WriteFailed)
    assert (told.code, told.durable_seq, told.closed) == (Code.LOG_WRITE_FAILED, -1, False)
    assert world.writes == 1


def test_L5_F7_the_next_event_opens_a_new_window_and_the_order_is_kept(world):
    failed_background_write(world)
    world.port.hold_work = False
    world.say(note())
    world.network.advance(WINDOW)
    assert world.writes == 2
    assert world.stored() == ["interlock/writer", "turn/start", "app/note"]


def test_L5_F7_the_next_flush_retries_at_once(world):
    failed_background_write(world)
    world.port.hold_work = False
    assert world.flush().durable_seq == 1
    assert world.stored() == ["interlock/writer", "turn/start"]
