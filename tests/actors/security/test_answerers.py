"""A: answerers that come from outside, with the answerer's key, over the socket."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Runtime, ToolCall
from interlock.actors.keys import KeyPair
from interlock.actors.messages import (
    AnswerApproval,
    AnswererJoined,
    AnswerTaken,
    ApprovalAsked,
    ApprovalGone,
    ApprovalList,
    BecomeAnswerer,
    ListApprovals,
    ReadPending,
)
from interlock.actors.roles import Role
from interlock.actors.runtime_dir import answerer_key, running
from interlock.backends.codes import Code
from security_support import Stranger, client_keys, counted, keys_of
from spine_support import InThread, until

Start = Callable[..., Runtime]
Connect = Callable[..., Stranger]

ANSWERER = """
import os, sys
sys.path[:0] = sys.argv[3].split(os.pathsep)
import zmq
from interlock.actors.keys import KeyPair, guard_client
from interlock.actors.messages import BecomeAnswerer
from interlock.actors.runtime_dir import answerer_key
from interlock.actors.wire import decode, encode
from pathlib import Path
key = answerer_key(Path(sys.argv[1]))
socket = zmq.Context().socket(zmq.DEALER)
keys = KeyPair(key.public.encode(), key.secret.encode())
guard_client(socket, keys, sys.argv[4].encode())
socket.connect(sys.argv[2])
socket.send(encode(BecomeAnswerer(1, "doomed")))
while True:
    print(type(decode(socket.recv(), "broker")).__name__, flush=True)
"""


class Asking:
    """A session whose call waits for an approval."""

    def __init__(self, runtime: Runtime, place: Path, arguments: dict[str, Any]) -> None:
        self.session = runtime.create(cwd=place)
        before = counted(runtime, Role.BROKER, "open_approvals")()
        self.running = InThread(lambda: self._call(arguments))
        until(lambda: counted(runtime, Role.BROKER, "open_approvals")() == before + 1)

    def _call(self, arguments: dict[str, Any]) -> Any:
        with self.session.turn("work") as turn, turn.step() as step:
            step.assistant("", [ToolCall("c1", "pay", arguments)])
            [result] = step.execute()
        return result

    @property
    def request(self) -> str:
        [asked] = [e.data["id"] for e in self.session.events if e.type == "approval/asked"]
        return str(asked)

    @property
    def decisions(self) -> list[tuple[str, str]]:
        return [
            (e.data["outcome"], e.data["by"])
            for e in self.session.events
            if e.type == "interlock/approval" and e.data["state"] == "decided"
        ]


@pytest.fixture
def runtime(start: Start) -> Runtime:
    return start(answerer="external")


@pytest.fixture
def answerer(runtime: Runtime, stranger: Connect) -> Stranger:
    """As ``interlock approvals`` does it: by what the runtime directory says."""
    found = [path for path, info in running() if info.pid == os.getpid()]
    assert runtime._core.directory in found
    key = answerer_key(runtime._core.directory)
    keys = KeyPair(key.public.encode(), key.secret.encode())
    return stranger(runtime, Role.BROKER, keys)


def test_A4_A6_an_answerer_is_shown_what_is_open_and_reads_the_arguments_in_the_log(
    runtime: Runtime, answerer: Stranger, stranger: Connect, place: Path
) -> None:
    asking = Asking(runtime, place, {"cents": 1234567})
    assert isinstance(answerer.ask(BecomeAnswerer(1, "me")), AnswererJoined)
    shown = answerer.hear()
    assert isinstance(shown, ApprovalAsked)
    assert (shown.request, shown.tool, shown.call_id) == (asking.request, "pay", "c1")
    assert "1234567" not in str(shown), "A6: the request carries the arguments"
    reader = stranger(runtime, Role.WRITER, keys_of(runtime).answerer)
    pending = reader.ask(ReadPending(1, asking.session.id, 0))
    stored = [e for e in asking.session.events if e.type == "tool/call"]
    assert stored, pending
    assert "1234567" in stored[0].data["arguments"]
    answerer.say(AnswerApproval(2, shown.request, "reject", "me", "too much"))
    heard = {type(m) for m in (answerer.hear(), answerer.hear())}
    assert heard == {AnswerTaken, ApprovalGone}
    result = asking.running.result()
    assert result.code == Code.APPROVAL_REJECTED
    assert "too much" in result.message
    assert asking.decisions == [("rejected", "answerer:me")]


def test_A2_A8_late_and_duplicate_answers_change_nothing(
    runtime: Runtime, answerer: Stranger, stranger: Connect, place: Path
) -> None:
    asking = Asking(runtime, place, {"cents": 1})
    request = asking.request
    second = stranger(runtime, Role.BROKER, keys_of(runtime).answerer)
    assert answerer.ask(AnswerApproval(1, request, "reject", "first")).taken
    for one, rid in ((answerer, 2), (second, 3)):
        late = one.ask(AnswerApproval(rid, request, "allow", "late"))
        assert isinstance(late, AnswerTaken)
        assert (late.rid, late.taken) == (rid, False)
    assert asking.running.result().code == Code.APPROVAL_REJECTED
    assert asking.decisions == [("rejected", "answerer:first")]
    assert counted(runtime, Role.BROKER, "late_answers")() == 2
    assert counted(runtime, Role.DISPATCHER, "releases")() == 0


def test_A2_A9_an_answer_settles_the_one_request_that_it_names(
    runtime: Runtime, answerer: Stranger, place: Path
) -> None:
    """The same call id, tool and session do not share a grant, nor does a guess make one."""
    one, other = Asking(runtime, place, {"cents": 1}), Asking(runtime, place, {"cents": 2})
    for wrong in ("", "c1", one.session.id, one.request[:-1], one.request.upper() + "x"):
        assert not answerer.ask(AnswerApproval(1, wrong, "allow", "me")).taken, wrong
    for answer in ("", "ALLOW", "allowed-once", "cancelled", "yes"):
        assert not answerer.ask(AnswerApproval(1, one.request, answer, "me")).taken, answer
    assert answerer.ask(AnswerApproval(2, one.request, "allow", "me")).taken
    assert one.running.result().value == "paid 1"
    assert other.running.running, "one answer settled two requests"
    left = answerer.ask(ListApprovals(3))
    assert isinstance(left, ApprovalList)
    assert [asked.request for asked in left.requests] == [other.request]
    assert answerer.ask(AnswerApproval(4, other.request, "reject", "me")).taken
    assert other.running.result().code == Code.APPROVAL_REJECTED


def test_A10_a_killed_answerer_has_not_answered(
    runtime: Runtime, answerer: Stranger, place: Path, tmp_path: Path
) -> None:
    script = tmp_path / "answerer.py"
    script.write_text(ANSWERER)
    address = runtime._core._starter.addresses[Role.BROKER]
    directory = str(runtime._core.directory)
    search = os.pathsep.join(filter(None, sys.path))
    arguments = [directory, address.endpoint, search, address.public.decode()]
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True
    ) as doomed:
        assert doomed.stdout is not None
        assert doomed.stdout.readline() == "AnswererJoined\n"
        asking = Asking(runtime, place, {"cents": 3})
        assert doomed.stdout.readline() == "ApprovalAsked\n"
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
    assert asking.running.running
    assert asking.decisions == [], "its end was taken for an answer"
    other = answerer.ask(ListApprovals(1))
    assert [asked.request for asked in other.requests] == [asking.request]
    assert answerer.ask(AnswerApproval(2, asking.request, "allow", "somebody else")).taken
    assert asking.running.result().value == "paid 3"
    assert asking.decisions == [("allowed-once", "answerer:somebody else")]


def test_A3_nobody_answers_until_the_deadline(start: Start, place: Path) -> None:
    runtime = start(answerer="external", approval_timeout=0.5)
    session = runtime.create(cwd=place)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "pay", {"cents": 1})])
        [result] = step.execute()
    assert result.code == Code.APPROVAL_UNAVAILABLE


def test_A4_X4_neither_a_client_nor_a_stranger_answers(
    runtime: Runtime, answerer: Stranger, stranger: Connect, place: Path
) -> None:
    asking = Asking(runtime, place, {"cents": 4})
    client = stranger(runtime, Role.BROKER, client_keys(stranger, runtime))
    client.say(AnswerApproval(1, asking.request, "allow", "me"))
    client.say(BecomeAnswerer(2, "me"))
    until(lambda: counted(runtime, Role.BROKER, "dropped_messages")() == 2)
    own = stranger(runtime, Role.BROKER, KeyPair.generate())
    own.say(AnswerApproval(1, asking.request, "allow", "me"))
    until(lambda: counted(runtime, Role.BROKER, "refused_keys")() > 0)
    assert asking.running.running
    assert counted(runtime, Role.BROKER, "answerers")() == 0
    assert answerer.ask(AnswerApproval(1, asking.request, "reject", "me")).taken
    assert asking.running.result().code == Code.APPROVAL_REJECTED


def test_F4_an_answerer_finds_the_next_life_of_the_broker(
    runtime: Runtime, stranger: Connect, place: Path
) -> None:
    asking = Asking(runtime, place, {"cents": 5})
    [before] = [info for path, info in running() if path == runtime._core.directory]
    os.kill(runtime.processes["broker"], signal.SIGKILL)
    assert asking.running.result().code == Code.APPROVAL_UNAVAILABLE

    def moved() -> bool:
        [info] = [info for path, info in running() if path == runtime._core.directory]
        return info.broker != before.broker and info.started_ms == before.started_ms

    until(moved)
    again = Asking(runtime, place, {"cents": 6})
    one = stranger(runtime, Role.BROKER, keys_of(runtime).answerer)
    assert one.ask(AnswerApproval(1, again.request, "allow", "me")).taken
    assert again.running.result().value == "paid 6"
