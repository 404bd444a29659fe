"""Brief jobs: which of them may keep a thread that others wait for."""

from __future__ import annotations

import threading
import time

import pytest
from interlock.actors.pace import Pace


def compute(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def test_a_job_that_waits_is_followed_by_ones_that_are_not_brief_until_one_is():
    pace = Pace(limit=0.05)
    assert not pace.is_slow
    pace.run(lambda: wait(0.2))
    assert pace.is_slow
    pace.run(lambda: None)
    assert not pace.is_slow


def test_what_a_job_computes_is_no_waiting():
    pace = Pace(limit=0.5)
    pace.run(lambda: compute(0.7))
    assert not pace.is_slow


def test_a_job_that_fails_counts_and_its_error_is_passed_on():
    def job() -> None:
        wait(0.2)
        raise OSError("disk")

    pace = Pace(limit=0.05)
    with pytest.raises(OSError, match="disk"):
        pace.run(job)
    assert pace.is_slow
