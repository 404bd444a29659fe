"""A process that is killed at any file operation: what it acknowledged is there, and it goes on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from interlock.backends.errors import InterlockError, SessionError
from interlock.backends.event import encode_line
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.log import SessionLog
from interlock.backends.reading import read_log
from interlock.backends.repair import closers
from interlock.backends.source import find_log


class Life:
    """One process after another working on a session; remembers what was acknowledged."""

    def __init__(self, root: Path, say, compression: str, durability: str) -> None:
        self.root = root
        self.say = say
        self.compression = compression
        self.durability = durability
        self.acknowledged: dict[int, bytes] = {}
        self.spilled: set[int] = set()

    def run(self, disk) -> None:
        """Create or open the session, repair it, then work one turn."""
        backend = self.backend(disk)
        try:
            log = backend.open("s")
        except SessionError as error:
            # A journal may hold it where there is no file yet: only opening tells.
            if error.code != "SESSION_NOT_FOUND":
                raise
            log = backend.create(self.say.header())
            log.append([self.say.writer()], 1)
        else:
            log.mend()
            log.append(closers(log.fold), log.fold.last_time)
        self._flush(log, backend)
        say, turn = self.say, log.fold.last_turn + 1
        at = {"turn": turn}
        log.append([say.turn(turn), say.step(**at), say.message("c", **at)], 1)
        self._flush(log, backend)
        [call] = log.append([say.call("c", **at)], 1)
        self._flush(log, backend)
        made = say.result("c", call.seq, **at, meta={"spill": {}})
        content = b"spilled %d" % turn
        [result] = log.append(
            [type(made)(made.type, made.data, False, "append", made.sources, content)], 1
        )
        log.append([say.step_end(**at)], 1)
        self._flush(log, backend)
        self.spilled.add(result.seq)
        log.append([say.turn_end(turn)], 1)
        self._flush(log, backend)
        backend.tend()
        log.close()
        backend.close()

    def backend(self, disk) -> JsonlBackend:
        how = {"durability": self.durability, "compression": self.compression}
        return JsonlBackend(self.root, disk=disk, segment_size=16 * 1024, **how)

    def _flush(self, log: SessionLog, backend: JsonlBackend) -> None:
        batch = log.seal()
        if batch is None:
            return
        pending = log.pending_events()
        [outcome] = backend.commit([(log, batch)])
        if isinstance(outcome, InterlockError) and not outcome.details["closed"]:
            # L5, L6: the same batch again, after one failure.
            log.unseal(batch)
            batch = log.seal()
            [outcome] = backend.commit([(log, batch)])
        if isinstance(outcome, InterlockError):
            raise outcome
        log.acknowledge(outcome)
        self.acknowledged |= {e.seq: encode_line(e) for e in pending if e.seq <= log.durable_seq}

    def check(self) -> None:
        view = JsonlBackend(self.root).view()
        directory = view.find("s")
        log = None if directory is None else find_log(directory, view.disk)
        if log is None:
            assert not self.acknowledged
            return
        rows = {event.seq: encode_line(event) for event in read_log(log, disk=view.disk).events}
        assert list(rows) == list(range(len(rows)))
        assert self.acknowledged.items() <= rows.items()
        for seq in self.spilled:
            assert (log.parent / "spill" / str(seq)).read_bytes().startswith(b"spilled")


@pytest.fixture(params=["file", "journal"])
def life(request, root, say, compression) -> Life:
    return Life(root, say, compression, request.param)


def test_F8_a_kill_at_every_file_operation_loses_nothing_acknowledged(life, disk, killed):
    # The first life creates, the second opens and goes on; each is killed at every operation.
    life.run(disk)
    steps = len(disk.calls)
    assert steps > 20
    total = 0
    for step in range(1, steps + 1):
        again = Life(life.root / str(step), life.say, life.compression, life.durability)
        for later in (step, None):
            dying = type(disk)()
            if later is not None:
                dying.die_at(later)
            try:
                again.run(dying)
                assert later is None or step == steps
            except killed:
                total += 1
            dying.bury()
            again.check()
        assert again.acknowledged
    assert total == steps - 1


def test_R7_a_kill_at_every_operation_of_opening_and_mending_and_repairing(life, disk, killed):
    life.run(disk)
    log = next(life.root.glob("*/s/session.v3*"))
    # Leave an open turn with a call under way, and tear the end of the file.
    backend = JsonlBackend(life.root)
    again = backend.open("s")
    turn = {"turn": again.fold.last_turn + 1}
    say = life.say
    again.append([say.turn(**turn), say.step(**turn), say.message("k", **turn)], 1)
    life._flush(again, backend)
    again.append([say.call("k", **turn)], 1)
    again.write(again.seal())
    again.close()
    backend.close()
    os.truncate(log, log.stat().st_size - 2)
    data = log.read_bytes()

    probe = type(disk)()
    life.run(probe)
    probe.bury()
    whole = read_log(log)
    for step in range(1, len(probe.calls)):
        log.write_bytes(data)
        acknowledged = dict(life.acknowledged)
        attempt = Life(life.root, say, life.compression, life.durability)
        attempt.acknowledged = {s: r for s, r in acknowledged.items() if s <= turn_end(data, log)}
        dying = type(disk)()
        dying.die_at(step)
        with pytest.raises(killed):
            attempt.run(dying)
        dying.bury()
        attempt.check()
        attempt.run(type(disk)())
        attempt.check()
        assert read_log(log).fold.balanced
    assert whole.fold.balanced


def turn_end(data: bytes, log: Path) -> int:
    """The last seq that the torn file still holds for sure."""
    copy = log.with_name("copy")
    copy.write_bytes(data)
    reading = read_log(copy)
    copy.unlink()
    return reading.last_seq - (reading.dropped.recovered if reading.dropped else 0)


def test_L16_closing_without_flushing_loses_only_what_was_never_acknowledged(life, disk):
    life.run(disk)
    log = JsonlBackend(life.root, disk=disk).open("s")
    log.append([life.say.turn(2)], 1)
    assert [event.type for event in log.pending_events()] == ["turn/start"]
    log.close()
    with pytest.raises(InterlockError) as caught:
        log.append([life.say.note()], 1)
    assert caught.value.code == "SESSION_CLOSED"
    life.check()


def test_F7_an_io_error_at_every_file_operation_loses_nothing_and_refuses_nothing_later(life, disk):
    life.run(disk)
    life.run(type(disk)())
    failed = 0
    for step in range(1, len(disk.calls) + 1):
        again = Life(life.root / str(step), life.say, life.compression, life.durability)
        for error_at in (step, None):
            bad = type(disk)()
            bad.bad_call = error_at
            try:
                again.run(bad)
            except (InterlockError, OSError):
                failed += 1
                assert error_at is not None
            bad.bury()
            again.check()
        assert again.acknowledged
    # Most are made good by the next try, without anybody noticing.
    assert failed < len(disk.calls) / 2
