"""Identity, commands, environments and the thread pool."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interlock.actors.tools import CallIdentity, Command, idempotency_key
from interlock.actors.tools.environment import worker_environment
from interlock.actors.tools.threads import Threads


def test_I2_the_key_is_stable_across_versions() -> None:
    # Written down once: a resumed call must get the key that its first run got.
    key = idempotency_key("session-1", 1786000000000, 31, "call_1")
    assert key == "0272fba51f367ec3687afce3391b0c94f1e7e0bd6487c1d2894fe97434530eca"


def test_I2_no_two_calls_share_a_key() -> None:
    fields: list[Any] = [["a", "ab", ""], [1, 11], [1, 11], ["1", "b1", "", "1b"]]
    calls = list(itertools.product(*fields))
    assert len({idempotency_key(*call) for call in calls}) == len(calls)


@given(st.text(st.characters()), st.text(st.characters()))
def test_I2_any_text_has_a_key(session: str, call: str) -> None:
    assert len(idempotency_key(session, 0, 0, call)) == 64
    assert (session == call) or (
        idempotency_key(session, 0, 0, call) != idempotency_key(call, 0, 0, session)
    )


def test_I1_an_identity_travels() -> None:
    identity = CallIdentity("s", 4, "c")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(identity), type=CallIdentity) == identity


def test_a_command_takes_text_and_paths_and_travels() -> None:
    command = Command(["cat", Path("/a")], stdin="é", cwd=Path("/w"), timeout=5)  # type: ignore[list-item, arg-type]
    assert (command.argv, command.stdin, command.cwd) == (["cat", "/a"], "é".encode(), "/w")
    for encode, decode in [
        (msgspec.json.encode, msgspec.json.decode),
        (msgspec.msgpack.encode, msgspec.msgpack.decode),
    ]:
        assert decode(encode(command), type=Command) == command  # type: ignore[operator]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"argv": []}, "needs a program"),
        ({"argv": [""]}, "needs a program"),
        ({"argv": "ls -l"}, "argv is str, not a list"),
        ({"argv": ["ls", 3]}, r"argv\[1\] holds int"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"argv": ["\ud83d"]}, "not valid Unicode"),
        ({"argv": ["x"], "env": {"A=B": "c"}}, "no '='"),
        ({"argv": ["x"], "env": {"A": 3}}, "env"),
        ({"argv": ["x"], "mode": "root"}, "mode is 'root'"),
        ({"argv": ["x"], "timeout": 0}, "positive number of seconds"),
        ({"argv": ["x"], "timeout": float("nan")}, "positive number of seconds"),
        ({"argv": ["x"], "stdin": 3}, "stdin is int"),
        ({"argv": ["x"], "output_limit": 0}, "output_limit is 0"),
        ({"argv": ["x"], "network": 1}, "network is int"),
        ({"argv": ["x"], "writable": "/tmp"}, "writable is str"),
    ],
)
def test_a_command_that_cannot_run_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Command(**fields)


def test_a_command_is_checked_again_when_it_arrives() -> None:
    with pytest.raises(msgspec.ValidationError, match="mode is 'root'"):
        msgspec.json.decode(b'{"argv":["x"],"mode":"root"}', type=Command)


def test_X5_only_listed_and_named_variables_reach_a_worker() -> None:
    source = {
        "PATH": "/bin",
        "LC_ALL": "C",
        "HOME": "/h",
        "AWS_SECRET_ACCESS_KEY": "s",
        "GITHUB_TOKEN": "t",
        "HTTPS_PROXY": "http://user:pass@proxy",
        "SSH_AUTH_SOCK": "/s",
        "BANK_KEY": "k",
    }
    assert worker_environment(source) == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/h"}
    named = worker_environment(source, ["BANK_KEY", "UNSET"])
    assert named == {"PATH": "/bin", "LC_ALL": "C", "HOME": "/h", "BANK_KEY": "k"}


@pytest.mark.parametrize("name", ["", "AWS_*", "A=B", "A\0"])
def test_X5_secrets_are_named_one_by_one(name: str) -> None:
    with pytest.raises(ValueError, match="name each one"):
        worker_environment({}, [name])


def test_threads_are_reused_and_grow_with_the_work() -> None:
    pool = Threads("t")
    release = threading.Event()
    inside = threading.Barrier(9)
    names: list[str] = []

    def work() -> None:
        names.append(threading.current_thread().name)
        inside.wait(30)
        release.wait(30)

    for _ in range(8):
        pool.submit(work)
    inside.wait(30)  # all eight run at once
    assert pool.count == len(set(names)) == 8
    release.set()
    later = threading.Event()
    pool.submit(later.set)
    assert later.wait(30)
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        pool.submit(later.set)


def test_threads_keep_to_their_limit_and_end_when_idle() -> None:
    pool = Threads("t", limit=2, idle=0.01)
    lock = threading.Lock()
    most = now = 0
    left = threading.Semaphore(0)

    def work() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        with lock:
            now -= 1
        left.release()

    for _ in range(50):
        pool.submit(work)
    assert all(left.acquire(timeout=30) for _ in range(50))
    assert most <= 2
    for thread in threading.enumerate():
        if thread.name.startswith("t-"):
            thread.join(30)
    assert pool.count == 0


def test_work_that_raises_does_not_cost_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    pool = Threads("t", limit=1)
    pool.submit(lambda: 1 // 0)
    done = threading.Event()
    pool.submit(done.set)
    assert done.wait(30)
    assert "raised" in caplog.text
    pool.close()
