"""A1, A7, S4: the policy changes while agents run, and one call asks for a wider sandbox."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Answering, ApprovalRequest, Command, Runtime, ToolCall, tool
from interlock.backends.codes import Code
from interlock.sandbox import best
from spine_support import InThread

Start = Callable[..., Runtime]


@tool(place="sandbox", effect="write")
def leave(name: str, mode: str) -> Command:
    """Leave a file in the workspace."""
    return Command(["touch", name], mode=mode or None, justification="to leave a file")


def pay(step: Any, call_id: str, number: int = 1) -> list[Any]:
    calls = [ToolCall(f"{call_id}{n}", "pay", {"cents": n}) for n in range(number)]
    step.assistant("", calls)
    return list(step.execute())


def decided(session: Any) -> list[tuple[str, str]]:
    return [
        (e.data["outcome"], e.data["by"])
        for e in session.events
        if e.type == "interlock/approval" and e.data["state"] == "decided"
    ]


def test_A1_the_policy_is_switched_and_holds_for_the_very_next_request(start: Start) -> None:
    asked: list[str] = []
    runtime = start(answerer=lambda request: bool(asked.append(request.call_id)) or True)
    session = runtime.create()
    with session.turn("work") as turn:
        for number, policy in enumerate(["", "never", "ask", "never"]):
            if policy:
                session.set_approval_policy(policy)
            with turn.step() as step:
                [result] = pay(step, f"c{number}-")
            wanted = Code.APPROVAL_REJECTED if policy == "never" else None
            assert result.code == wanted, policy
    assert asked == ["c0-0", "c2-0"], "under 'never' nobody is asked"
    by = ("allowed-once", "host:callback"), ("rejected", "policy")
    assert decided(session) == [by[0], by[1], by[0], by[1]]
    recorded = [e.data["policy"] for e in session.events if e.type == "approval/policy"]
    assert recorded == ["never", "ask", "never"]


def test_A1_a_switch_in_the_middle_of_a_step_leaves_open_requests_and_holds_for_the_next(
    start: Start,
) -> None:
    runtime = start(answerer="external")
    session = runtime.create()

    def work() -> list[Any]:
        with session.turn("work") as turn, turn.step() as step:
            return pay(step, "c", 3)

    running = InThread(work)
    with Answering.connect(runtime.directory, name="ada") as desk:
        first = desk.next(60)
        session.set_approval_policy("never")
        assert desk.allow(first).settled
        results = running.result()
        assert desk.next(0) is None
    assert [r.code for r in results] == [None, Code.APPROVAL_REJECTED, Code.APPROVAL_REJECTED]
    assert decided(session)[0] == ("allowed-once", "answerer:ada")


def statements(session: Any) -> list[tuple[int, str]]:
    """Where the model was told about the policy, and what."""
    return [
        (e.seq, e.data["content"][0]["text"])
        for e in session.events
        if e.type == "user/message" and e.data["source"].get("plugin") == "interlock"
    ]


def test_A1_A7_after_a_resume_the_last_policy_holds_and_the_model_is_told_once_a_change(
    start: Start,
) -> None:
    runtime = start(answerer=lambda _: True)
    session = runtime.create("s")
    with session.turn("work") as turn:
        with turn.step() as step:
            pay(step, "a")
        assert statements(session) == [], "nothing changed"
        session.set_approval_policy("never")
        for name in "bc":
            with turn.step() as step:
                pay(step, name)
        [(seq, text)] = statements(session)
        assert "never" in text or "rejected" in text
        earlier = [e for e in session.events if e.seq < seq]
    session.set_approval_policy("ask")  # the model has not been told of this one
    session.close()
    session = runtime.open("s")
    with session.turn("more") as turn:
        for name in "de":
            with turn.step() as step:
                [result] = pay(step, name)
            assert result.value == "paid 0"
    told = statements(session)
    assert len(told) == 2, "it is told at the next step after the change, once"
    assert [e for e in session.events if e.seq < seq] == earlier, "history is not rewritten"
    session.set_approval_policy("never")
    session.close()
    session = runtime.open("s")
    with session.turn("again") as turn, turn.step() as step:
        [result] = pay(step, "f")
    assert result.code == Code.APPROVAL_REJECTED


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory outside of /tmp, which bubblewrap replaces."""
    base = Path(tempfile.mkdtemp(prefix="interlock-test-", dir="/var/tmp"))
    yield base
    shutil.rmtree(base, ignore_errors=True)


def test_S4_a_wider_mode_is_shown_with_its_reason_and_holds_for_that_one_call(
    start: Start, place: Path
) -> None:
    if best() is None:
        pytest.skip("no sandbox can be used here")
    shown: list[ApprovalRequest] = []
    runtime = start(
        tools=[leave],
        sandbox="read-only",
        answerer=lambda request: bool(shown.append(request)) or request.call_id != "c3",
    )
    session = runtime.create(cwd=place)
    codes = {}
    with session.turn("work") as turn, turn.step() as step:
        modes = {"c1": "", "c2": "workspace-write", "c3": "workspace-write", "c4": "read-only"}
        step.assistant(
            "", [ToolCall(c, "leave", {"name": c, "mode": mode}) for c, mode in modes.items()]
        )
        codes = {r.call_id: r for r in step.execute()}
    assert sorted(p.name for p in place.iterdir()) == ["c2"]
    assert codes["c3"].code == Code.APPROVAL_REJECTED
    assert codes["c1"].meta["sandbox"]["mode"] == codes["c4"].meta["sandbox"]["mode"] == "read-only"
    assert codes["c2"].meta["sandbox"]["widened_from"] == "read-only"
    assert [r.call_id for r in shown] == ["c2", "c3"]
    assert (shown[0].mode_from, shown[0].mode_to) == ("read-only", "workspace-write")
    assert shown[0].justification == "to leave a file"
    asked = [
        e.data["sandbox"]
        for e in session.events
        if e.type == "interlock/approval" and e.data["state"] == "asked"
    ]
    wide = {"from": "read-only", "to": "workspace-write", "justification": "to leave a file"}
    assert asked == [wide, wide]
