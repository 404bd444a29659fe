"""Replies between threads: done once, heard by everybody, waited for within bounds."""

from __future__ import annotations

import asyncio
import threading

import pytest
from interlock.actors.runtime.flow import run_async, run_sync
from interlock.actors.runtime.reply import Reply


def later(reply: Reply[int], value: int | Exception) -> threading.Thread:
    give = reply.set_exception if isinstance(value, Exception) else reply.set_result
    thread = threading.Thread(target=lambda: give(value))  # type: ignore[arg-type]
    thread.start()
    return thread


def test_it_is_done_once():
    reply: Reply[int] = Reply()
    assert reply.set_result(1)
    assert not reply.set_result(2)
    assert not reply.set_exception(OSError())
    assert reply.result() == 1
    assert reply.exception() is None


@pytest.mark.parametrize("waiters", [1, 3])
def test_whoever_waits_gets_it(waiters):
    reply: Reply[int] = Reply()
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(reply.result())) for _ in range(waiters)]
    for thread in threads:
        thread.start()
    later(reply, 7).join()
    for thread in threads:
        thread.join(20)
    assert got == [7] * waiters


def test_an_error_is_raised_where_it_is_awaited():
    reply: Reply[int] = Reply()
    later(reply, OSError("gone")).join()
    with pytest.raises(OSError, match="gone"):
        reply.result()


def test_a_wait_is_bounded():
    reply: Reply[int] = Reply()
    with pytest.raises(TimeoutError):
        reply.result(0.01)
    assert not reply.wait(0.0)
    reply.set_result(3)
    assert reply.wait(0.0)
    assert reply.result(0.0) == 3


def test_callbacks_are_called_once_also_afterwards():
    reply: Reply[int] = Reply()
    heard: list[Reply[int]] = []
    reply.add_done_callback(heard.append)
    reply.set_result(1)
    reply.set_result(2)
    reply.add_done_callback(heard.append)
    assert heard == [reply, reply]


def test_a_flow_waits_for_it_in_a_thread_and_in_a_loop():
    def flow(reply):
        value = yield reply
        return value + 1

    for run in (run_sync, lambda f: asyncio.run(run_async(f))):
        reply: Reply[int] = Reply()
        thread = later(reply, 4)
        assert run(flow(reply)) == 5
        thread.join()
