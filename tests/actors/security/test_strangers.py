"""X1, X3: whoever connects without a known key, or says what its role may not say, changes nothing.

Each test ends with the runtime doing its work: the actors live on.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from interlock.actors import Runtime, ToolCall
from interlock.actors.keys import KeyPair
from interlock.actors.messages import (
    Admit,
    AnswerApproval,
    Append,
    AskApproval,
    Attach,
    Attached,
    BecomeAnswerer,
    BodyFinished,
    CancelBody,
    CloseSession,
    CreateSession,
    Dismiss,
    ExecuteStep,
    Hello,
    JudgeCall,
    Launch,
    ListApprovals,
    LoadTools,
    Message,
    PeerChanged,
    Refused,
    RegisterTools,
    Release,
    Shutdown,
    Stats,
    StatsRequest,
    Welcome,
    WireCall,
)
from interlock.actors.roles import OWNERS, Role
from interlock.actors.tools import Command
from interlock.actors.tools.outcome import Outcome
from interlock.actors.wire import LIMITS, encode
from interlock.backends.codes import Code
from interlock.backends.event import draft
from security_support import Stranger, client_keys, counted, keys_of
from spine_support import until

Start = Callable[..., Runtime]
Connect = Callable[..., Stranger]


def works(runtime: Runtime, place: Path) -> None:
    """The runtime still runs a call from end to end, with the owners it was started with."""
    session = runtime.create(cwd=place)
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "add", {"a": 20, "b": 22})])
        [result] = step.execute()
    assert result.value == 42
    assert runtime.stats()["restarts"] == [], "an owner did not live on"


@pytest.mark.parametrize("transport", ["ipc", "tcp"])
@pytest.mark.parametrize("role", [*OWNERS, Role.HOST])
def test_X1_a_key_of_its_own_making_is_not_let_in(
    role: Role, transport: str, start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start(transport=transport)
    refused = counted(runtime, role, "refused_keys")
    one = stranger(runtime, role, KeyPair.generate())
    one.say(Hello(1))
    one.say(Shutdown(2, 0.0))
    until(lambda: refused() > 0)
    assert not one.socket.poll(200), "a stranger was answered"
    works(runtime, tmp_path)


def test_X1_without_any_key_nobody_gets_in(start: Start, stranger: Connect, tmp_path: Path) -> None:
    runtime = start()
    for role in [*OWNERS, Role.HOST]:
        unproven = counted(runtime, role, "unproven_connections")
        # "host#1" is what a connection inside the owner's own process would be called.
        one = stranger(runtime, role, None, identity=b"host#1")
        one.say(Shutdown(1, 0.0))
        until(lambda: unproven() > 0)  # noqa: B023 - called at once
    works(runtime, tmp_path)


def test_X1_without_a_doorkeeper_nobody_gets_in(tmp_path: Path) -> None:
    import zmq
    from interlock.actors.keys import Keyring, guard_client
    from interlock.actors.mailbox import Mailbox

    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    mailbox, keys, known = Mailbox(), KeyPair.generate(), KeyPair.generate()
    endpoint = f"ipc://{tmp_path}/s"
    mailbox.open(context, [endpoint], keys, Keyring({known.public: Role.HOST}), Role.WRITER)
    dealer = context.socket(zmq.DEALER)
    dealer.routing_id = b"host#1"
    guard_client(dealer, KeyPair.generate(), keys.public)
    dealer.connect(endpoint)
    dealer.send(encode(Hello(1)))
    poller = zmq.Poller()
    poller.register(mailbox._router, zmq.POLLIN)
    assert not poller.poll(500), "what a stranger said reached the mailbox"
    dealer.close(linger=0)
    mailbox.close()
    context.destroy(linger=0)


@pytest.mark.parametrize(
    "noise",
    [
        os.urandom(4096),
        b"\xff" * 4096,
        bytes(4096),
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x01\x00\x05",
        b"",
    ],
    ids=["random", "ones", "zeros", "http", "old-zmq", "nothing"],
)
def test_X3_random_bytes_are_counted_and_change_nothing(
    noise: bytes, start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start()
    for role in [*OWNERS, Role.HOST]:
        unproven = counted(runtime, role, "unproven_connections")
        path = stranger(runtime, role, None).endpoint.removeprefix("ipc://")
        with socket.socket(socket.AF_UNIX) as wire:
            wire.connect(path)
            with contextlib.suppress(BrokenPipeError):
                wire.sendall(noise)
        until(lambda: unproven() > 0)  # noqa: B023 - called at once
    works(runtime, tmp_path)


def test_X3_ten_thousand_garbage_frames_of_a_known_key_are_dropped_and_counted(
    start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start()
    one = stranger(runtime, Role.BROKER, keys_of(runtime).answerer)
    for number in range(10_000):
        one.say(number.to_bytes(2, "big") + b"\xc1garbage")
    welcome = one.ask(Hello(1))  # what comes after them is heard
    assert isinstance(welcome, Welcome)
    assert counted(runtime, Role.BROKER, "dropped_messages")() == 10_000
    works(runtime, tmp_path)


def test_X3_a_multipart_or_truncated_message_is_dropped_and_counted(
    start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start()
    one = stranger(runtime, Role.BROKER, keys_of(runtime).answerer)
    hello = encode(Hello(1))
    wrong: list[tuple[bytes, ...]] = [
        (hello, b""),
        (b"", hello),
        (hello, hello, hello),
        (b"",),
        *((hello[:length],) for length in range(1, len(hello))),
        (hello + b"\0",),
        (encode(Hello(1)).replace(b"Hello", b"Nobod"),),
    ]
    for frames in wrong:
        one.say(*frames)
    assert isinstance(one.ask(Hello(7)), Welcome)
    assert counted(runtime, Role.BROKER, "dropped_messages")() == len(wrong)
    works(runtime, tmp_path)


def test_X3_a_message_too_large_for_its_role_is_dropped_unparsed(
    start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start()
    one = stranger(runtime, Role.BROKER, keys_of(runtime).answerer)
    one.say(AnswerApproval(1, "r", "allow", "me", "x" * LIMITS[Role.ANSWERER]))
    answer = one.ask(AnswerApproval(2, "r", "allow", "me", "x" * 1000))
    assert answer.rid == 2
    assert counted(runtime, Role.BROKER, "dropped_messages")() == 1
    works(runtime, tmp_path)


def test_X1_a_self_chosen_identity_is_not_taken(
    start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start()
    one = stranger(runtime, Role.BROKER, keys_of(runtime).answerer, identity=b"dispatcher#1")
    one.say(Hello(1))
    until(lambda: counted(runtime, Role.BROKER, "dropped_messages")() == 1)
    assert not one.socket.poll(200), "it was answered under a name of its own choice"
    works(runtime, tmp_path)


def test_X1_who_has_ended_leaves_no_identity_behind() -> None:
    from interlock.actors.mailbox import Mailbox, Peer

    mailbox = Mailbox()
    gone, here = Peer(b"\0a", Role.DISPATCHER, b"gone"), Peer(b"\0b", Role.HOST, b"here")
    mailbox._peers = {gone.identity: gone, here.identity: here}
    mailbox.forget(b"gone")
    assert mailbox._peers == {here.identity: here}
    mailbox.close()


def forbidden(who: Role) -> list[tuple[Role, Message]]:
    """What neither an answerer nor a client may say, to each owner."""
    release = Release(10**9, "s", 3, "c", "touch", b"{}", "k", 9.0, "i", 3, "t")
    launch = Launch(10**9, "s", 3, "c", Command(["true"]), "read-only", "/", "k", 9.0, "i", 3)
    event = draft("turn/start", {"turn": 1})
    both: list[tuple[Role, Message]] = [
        *((role, Shutdown(1, 0.0)) for role in (*OWNERS, Role.HOST)),
        *((role, Admit(1, b"x" * 40)) for role in (*OWNERS, Role.HOST)),
        *((role, Dismiss(1, b"x" * 40)) for role in OWNERS),
        (Role.HOST, Stats(1, {})),
        (Role.HOST, BecomeAnswerer(1, "me")),
        (Role.HOST, Welcome(1, "writer", "i", 1)),
        *((role, PeerChanged("writer", "ipc:///x", b"x" * 40, "i", 1)) for role in OWNERS),
        (Role.DISPATCHER, RegisterTools(1, [], False, False, False, ["SECRET"], [])),
        (Role.DISPATCHER, release),
        (Role.DISPATCHER, LoadTools({"touch": b"pickle"})),
        (Role.DISPATCHER, BodyFinished(1, Outcome.failure("TOOL_FAILED", "no"), False)),
        (Role.LAUNCHER, launch),
        (Role.LAUNCHER, CancelBody(1, "no", kill=True)),
        (Role.LAUNCHER, release),
        (Role.BROKER, AskApproval(1, "r", "s", 3, "c", "touch", "", "d", 9.0)),
        (Role.WRITER, JudgeCall(1, "gate", "s", 3, "c", "touch", b"")),
    ]
    if who is Role.CLIENT:
        return [
            *both,
            (Role.BROKER, AnswerApproval(1, "r", "allow", "me")),
            (Role.BROKER, ListApprovals(1)),
        ]
    return [
        *both,
        (Role.WRITER, CreateSession(1, "s", None)),
        (Role.WRITER, Append(1, "s", [event])),
        (Role.WRITER, CloseSession(1, "s")),
        (Role.DISPATCHER, ExecuteStep(1, "s", 0, "/", 1, 1, 3, [WireCall("c", "add", b"{}")])),
        (Role.BROKER, StatsRequest(1)),
    ]


@pytest.mark.parametrize("who", [Role.ANSWERER, Role.CLIENT])
def test_X3_X4_what_a_role_may_not_say_is_dropped_and_counted(
    who: Role, start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start()
    client = who is Role.CLIENT
    keys = client_keys(stranger, runtime) if client else keys_of(runtime).answerer
    said = forbidden(who)
    for role in [*OWNERS, Role.HOST] if client else OWNERS:
        if not client and who not in keys_of(runtime).admitted(role).values():
            continue  # it is not even let in there
        one = stranger(runtime, role, keys_of(runtime).client if role is Role.HOST else keys)
        wrong = [message for to, message in said if to is role]
        before = counted(runtime, role, "dropped_messages")()
        for message in wrong:
            one.say(message)
        probe, answer = (Attach(9), Attached) if role is Role.HOST else (Hello(9), Welcome)
        assert isinstance(one.ask(probe), answer), "something else was answered"
        assert counted(runtime, role, "dropped_messages")() - before == len(wrong)
    works(runtime, tmp_path)


def test_X4_an_answerer_is_let_in_where_it_answers_and_reads_only(start: Start) -> None:
    keys = keys_of(start())
    into = [role for role in OWNERS if Role.ANSWERER in keys.admitted(role).values()]
    assert into == [Role.WRITER, Role.BROKER]


def test_X3_an_allowed_message_with_impossible_content_ends_no_actor(
    start: Start, stranger: Connect, tmp_path: Path
) -> None:
    runtime = start()
    client = client_keys(stranger, runtime)
    writer = stranger(runtime, Role.WRITER, client)
    for rid, cwd in enumerate(["\0", "relative", "", "/" + "x" * 5000]):
        assert writer.ask(CreateSession(rid, "s", cwd)).rid == rid
        writer.ask(CloseSession(99, "s"))
    dispatcher = stranger(runtime, Role.DISPATCHER, client)
    no_text = dispatcher.ask(
        ExecuteStep(1, "s", 0, "/", 1, 1, 3, [WireCall("c", "add", b"\xff\xfe")])
    )
    assert isinstance(no_text, Refused)
    assert no_text.code == Code.EVENT_INVALID
    assert isinstance(dispatcher.ask(Hello(2)), Welcome)
    works(runtime, tmp_path)


def test_X4_a_client_touches_no_session_that_somebody_else_has_open(
    start: Start, stranger: Connect, tmp_path: Path
) -> None:
    from interlock.actors.messages import CancelCalls, RepairSession, SettleSession
    from spine_support import InThread

    runtime = start()
    client = client_keys(stranger, runtime)
    writer = stranger(runtime, Role.WRITER, client)
    dispatcher = stranger(runtime, Role.DISPATCHER, client)
    mark, go = tmp_path / "mark", tmp_path / "go"
    session = runtime.create("mine", cwd=tmp_path)
    with session.turn("work") as turn, turn.step() as step:
        where = {"path": str(mark), "until": str(go)}
        calls = [ToolCall("c1", "touch_and_wait", where), ToolCall("c2", "add", {"a": 1, "b": 2})]
        step.assistant("", calls)
        wire = [WireCall(c.id, c.name, c.raw.encode()) for c in calls]
        execute = ExecuteStep(
            1, "mine", session._core.created_at, str(tmp_path), 1, 1, step._core.message_seq, wire
        )
        # Before the calls run: the events of its call are not let into the log.
        executed = dispatcher.ask(execute)
        assert [r.seq for r in executed.results] == [-1, -1]
        assert not mark.exists(), "a client had the calls of another session run"
        for message in (
            Append(2, "mine", [draft("user/message", {})]),
            RepairSession(3, "mine"),
            CloseSession(4, "mine"),
        ):
            assert isinstance(writer.ask(message), Refused), message
        # While they run: it neither stops them nor takes their place.
        running = InThread(step.execute)
        until(lambda: mark.exists() and mark.read_text())
        dispatcher.say(CancelCalls("mine", step._core.message_seq, "no"))
        assert isinstance(dispatcher.ask(SettleSession(5, "mine", [])), Refused)
        assert isinstance(dispatcher.ask(execute), Refused)
        go.touch()
        results = running.result()
    assert [r.value for r in results] == ["waited", 3]
    assert mark.read_text() == "c1\n"
    assert counted(runtime, Role.DISPATCHER, "held_results")() == 0
