"""The clauses L as tests that anybody can run against a backend of their own.

Derive a class in a test module that pytest collects and say how the backend is made::

    class TestMine(LogConformance):
        def make_backend(self, place):
            return MyBackend(place)

``place`` is a directory that every backend of one test shares: a second one made there sees what
the first one wrote, if ``shares`` is true. Override :meth:`LogConformance.after_power_loss` where
the backend promises to survive it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .backend import LogBackend
from .codes import Code
from .errors import InterlockError, LogError
from .event import Draft, Event, draft, encode_line
from .header import Header
from .log import SessionLog
from .repair import closers

ODD_IDS = ("a", "A b", "..", ".", "a/b", "\\", "\0", "\U0001f600", "\ud800", "x" * 200, "~00e9")


class LogConformance:
    """One test for each promise; named after its clause."""

    #: Whether two backends made in one place are two processes' views of the same logs.
    shares = True

    def make_backend(self, place: Path) -> LogBackend:
        """Return a backend whose logs live in ``place``. Called once or more for each test."""
        raise AssertionError("say how your backend is made: override make_backend")

    def after_power_loss(self, backend: LogBackend, place: Path) -> LogBackend | None:
        """Return a backend that sees what is left when the power goes off now; None: cannot tell.

        ``backend`` is not used any more.
        """

    # What the tests say.

    def header(self, session_id: str = "s") -> Header:
        return Header(id=session_id, created_at=1, cwd="/work")

    def note(self, text: str = "x") -> Draft:
        return draft("interlock/notice", {"text": text}, ignorable=True)

    def commit(self, backend: LogBackend, *logs: SessionLog) -> list[int | InterlockError]:
        """Commit everything that waits in the logs, as the writer does."""
        items = [(log, log.seal()) for log in logs]
        outcomes = list(backend.commit(items))
        for (log, batch), outcome in zip(items, outcomes, strict=True):
            if isinstance(outcome, int):
                log.acknowledge(outcome)
            elif batch is not None:
                log.unseal(batch)
        return outcomes

    def write(self, backend: LogBackend, log: SessionLog, *texts: str) -> None:
        log.append([self.note(text) for text in texts], 1)
        [outcome] = self.commit(backend, log)
        assert outcome == log.fold.next_seq - 1, outcome

    def refused(self, code: Code, call: Callable[[], Any]) -> InterlockError:
        """Return the error with which a call is refused."""
        found: Any = None
        try:
            found = call()
        except InterlockError as error:
            found = error
        told = getattr(found, "code", f"{found!r}, no refusal")
        assert isinstance(found, InterlockError), f"{told} where {code} was due"
        assert found.code == code, f"refused with {told} where {code} was due"
        return found

    def texts(self, events: Iterable[Event]) -> list[str]:
        return [event.data["text"] for event in events if event.type == "interlock/notice"]

    # The clauses.

    def test_L1_appends_are_numbered_from_0_without_a_gap(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        first = log.append([self.note(), self.note()], 1)
        second = log.append([self.note()], 1)
        assert [event.seq for event in (*first, *second)] == [0, 1, 2]

    def test_L1_an_event_that_breaks_the_grammar_is_refused_and_changes_nothing(
        self, tmp_path: Path
    ) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        bad = [self.note(), draft("step/start", {"turn": 1, "step": 1})]
        self.refused(Code.EVENT_INVALID, lambda: log.append(bad, 1))
        assert [event.seq for event in log.append([self.note()], 1)] == [0]

    def test_L2_appended_is_not_durable_until_a_commit_says_so(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        log.append([self.note()], 1)
        assert log.durable_seq == -1
        assert [event.seq for event in log.pending_events()] == [0]
        assert self.commit(backend, log) == [0]
        assert log.durable_seq == 0

    def test_L4_one_commit_serves_many_logs(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        logs = [backend.create(self.header(name)) for name in "abc"]
        for log in logs:
            log.append([self.note(log.header.id)], 1)
        assert self.commit(backend, *logs) == [0, 0, 0]
        assert [self.texts(backend.events(name)) for name in "abc"] == [["a"], ["b"], ["c"]]

    def test_L7_creating_a_session_shows_nothing_before_its_first_commit(
        self, tmp_path: Path
    ) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        assert list(backend.list_ids()) == []
        self.refused(Code.SESSION_NOT_FOUND, lambda: backend.open("s"))
        self.refused(Code.SESSION_NOT_FOUND, lambda: list(backend.events("s")))
        self.write(backend, log, "x")
        assert list(backend.list_ids()) == ["s"]

    def test_L7_a_flush_of_an_empty_log_makes_it_appear(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        assert list(backend.commit([(log, None)])) == [-1]
        assert list(backend.events("s")) == []
        log.close()
        assert backend.open("s").fold.next_seq == 0

    def test_L7_nothing_is_created_over_a_session(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        first, second = backend.create(self.header()), backend.create(self.header())
        self.write(backend, first, "first")
        second.append([self.note("second")], 1)
        [late] = self.commit(backend, second)
        assert isinstance(late, InterlockError)
        assert late.code == Code.SESSION_EXISTS
        assert late.details["closed"] is True
        self.refused(Code.SESSION_EXISTS, lambda: backend.create(self.header()))
        assert self.texts(backend.events("s")) == ["first"]

    def test_L11_a_log_has_one_writer_until_it_is_closed(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        self.write(backend, log, "x")
        self.refused(Code.SESSION_LOCKED, lambda: backend.open("s"))
        if self.shares:
            other = self.make_backend(tmp_path)
            self.refused(Code.SESSION_LOCKED, lambda: other.open("s"))
        log.close()
        again = backend.open("s")
        assert (again.fold.next_seq, again.durable_seq) == (1, 0)
        self.write(backend, again, "y")

    def test_L11_who_reads_waits_for_nobody(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        self.write(backend, log, "one", "two")
        assert self.texts(backend.events("s")) == ["one", "two"]
        assert self.texts(backend.events("s", 1)) == ["two"]

    def test_L13_L14_every_id_has_a_log_of_its_own(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path / "root")
        before = sorted(tmp_path.iterdir())
        for name in ODD_IDS:
            self.write(backend, backend.create(self.header(name)), repr(name))
        for name in ODD_IDS:
            assert self.texts(backend.events(name)) == [repr(name)]
        assert sorted(backend.list_ids()) == sorted(ODD_IDS)
        assert set(tmp_path.iterdir()) - set(before) <= {tmp_path / "root"}
        self.refused(Code.SESSION_ID_INVALID, lambda: backend.create(self.header("")))

    def test_L16_what_was_committed_is_there_after_an_orderly_end(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        self.write(backend, log, *"abc")
        lines = [encode_line(event) for event in backend.events("s")]
        log.close()
        self.refused(Code.SESSION_CLOSED, lambda: log.append([self.note()], 1))
        if self.shares:
            backend.close()
            backend = self.make_backend(tmp_path)
        assert [encode_line(event) for event in backend.events("s")] == lines
        assert backend.open("s").fold.next_seq == 3

    def test_L17_a_batch_that_is_refused_takes_no_other_with_it(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        taken, late, good = (backend.create(self.header(name)) for name in ("a", "a", "b"))
        self.write(backend, taken, "x")
        for log in (late, good):
            log.append([self.note()], 1)
        refused, outcome = self.commit(backend, late, good)
        assert isinstance(refused, InterlockError)
        assert outcome == 0

    def test_P7_a_spilled_result_is_committed_with_its_event(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        named = draft("interlock/notice", {"meta": {"spill": {}}}, ignorable=True)
        spilled = Draft(named.type, named.data, True, None, None, b"content")
        [event] = log.append([spilled], 1)
        assert event.data["meta"]["spill"]["file"] == "spill/0"
        assert self.commit(backend, log) == [0]

    def test_R2_R7_a_repair_completes_a_log_once(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        log.append([draft("turn/start", {"turn": 1})], 1)
        self.commit(backend, log)
        log.close()
        again = backend.open("s")
        again.append(closers(again.fold), again.fold.last_time)
        self.commit(backend, again)
        again.close()
        assert [event.type for event in backend.events("s")] == ["turn/start", "turn/end"]
        assert closers(backend.open("s").fold) == []

    def test_F8_K7_what_was_acknowledged_survives_a_power_cut(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        log = backend.create(self.header())
        self.write(backend, log, *"ab")
        self.write(backend, log, "c")
        log.append([self.note("never told")], 1)
        left = self.after_power_loss(backend, tmp_path)
        if left is None:
            assert not backend.power_loss_durable or type(self).after_power_loss is (
                LogConformance.after_power_loss
            )
            return
        assert self.texts(left.events("s"))[:3] == ["a", "b", "c"]
        assert left.open("s").fold.next_seq >= 3

    def test_K7_a_backend_says_what_it_promises(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        assert isinstance(backend.durability, str)
        assert backend.durability
        assert isinstance(backend.power_loss_durable, bool)
        assert isinstance(backend.group_commit, bool)

    def test_an_error_says_whether_its_log_is_over(self, tmp_path: Path) -> None:
        backend = self.make_backend(tmp_path)
        first, second = backend.create(self.header()), backend.create(self.header())
        self.write(backend, first, "x")
        second.append([self.note()], 1)
        [error] = self.commit(backend, second)
        assert isinstance(error, InterlockError)
        assert error.details.get("closed") is True or isinstance(error, LogError)
        assert second.failed is not None
