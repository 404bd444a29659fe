"""R4: what becomes of calls with an unknown outcome when a session is opened again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interlock.actors import Runtime, Session, ToolCall
from interlock.backends.codes import Code
from interlock.backends.event import Event
from ledger_tools import LEDGER_TOOLS, charges
from spine_support import ended, until

Start = Callable[..., Runtime]
Script = Callable[..., subprocess.Popen[str]]

AGENT = """
import json, sys
sys.path.insert(0, {here!r})
from ledger_tools import LEDGER_TOOLS
from interlock.actors import Runtime, ToolCall

runtime = Runtime({root!r}, tools=LEDGER_TOOLS, workers=1, answerer=lambda request: "allow")
session = runtime.create("s", cwd={tmp!r})
print(json.dumps(runtime.processes), flush=True)
with session.turn("go") as turn, turn.step() as step:
    step.assistant("", [ToolCall(*call) for call in json.loads({calls!r})])
    step.execute()
"""


class Crash:
    """Runs calls in another process until the last of them hangs, and kills all of it."""

    def __init__(self, script: Script, root: Path, tmp: Path) -> None:
        self._script, self._root, self.tmp = script, root, tmp
        self.ledger = str(tmp / "ledger")

    def call(self, name: str, call_id: str = "c1", **arguments: Any) -> tuple[str, str, dict]:
        arguments |= {"mark": str(self.tmp / f"mark-{call_id}")}
        if name in ("charge", "blind", "put"):
            arguments |= {"ledger": self.ledger}
        return call_id, name, arguments

    def during(self, *calls: tuple[str, str, dict]) -> None:
        source = AGENT.format(
            here=str(Path(__file__).parent),
            root=str(self._root),
            tmp=str(self.tmp),
            calls=json.dumps(calls),
        )
        agent = self._script(source)
        assert agent.stdout is not None
        owners = json.loads(agent.stdout.readline())
        until(Path(calls[-1][2]["mark"]).exists)
        os.kill(owners["dispatcher"], signal.SIGKILL)  # with its workers, before it could record
        agent.kill()
        agent.wait()
        assert all(ended(pid, 10.0) for pid in owners.values())


@pytest.fixture
def crash(script: Script, root: Path, tmp_path: Path) -> Crash:
    return Crash(script, root, tmp_path)


@pytest.fixture
def begin(start: Start) -> Start:
    def make(**options: Any) -> Runtime:
        return start(**({"tools": LEDGER_TOOLS} | options))

    return make


def results(session: Session) -> dict[str, Event]:
    found = [event for event in session.events if event.type == "tool/result"]
    by_call = {event.data["message"]["source"]["callId"]: event for event in found}
    assert len(by_call) == len(found), "a call has more than one result"
    return by_call


def text(result: Event) -> str:
    return result.data["message"]["content"][0]["content"][0]["text"]


def code(result: Event) -> str | None:
    return result.data.get("error", {}).get("code")


def settled(session: Session) -> list[dict[str, Any]]:
    return [event.data for event in session.events if event.type == "interlock/settled"]


def told(session: Session) -> list[str]:
    return [
        event.data["content"][0]["text"]
        for event in session.events
        if event.type == "user/message" and event.data["source"]["kind"] == "plugin"
    ]


def test_R4_a_charge_that_reached_the_ledger_is_done(crash: Crash, begin: Start) -> None:
    crash.during(crash.call("charge", cents=5, hang="after"))
    session = begin().open("s", on_unknown="reconcile")
    result = results(session)["c1"]
    assert code(result) is None
    assert json.loads(text(result)) == {"charged": 5, "attempts": 1}
    assert session.resolved == {"c1": "done"}
    kinds = [event.type for event in session.events]
    assert kinds.index("interlock/settled") < kinds.index("tool/result")
    assert kinds[-2:] == ["step/end", "turn/end"], "in the step that was still open"
    assert sum(charges(crash.ledger).values()) == 5


def test_R4_a_charge_that_never_reached_the_ledger_is_not_done(crash: Crash, begin: Start) -> None:
    crash.during(crash.call("charge", cents=5, hang="before"))
    session = begin().open("s", on_unknown="reconcile")
    assert code(results(session)["c1"]) == Code.TOOL_NOT_STARTED
    assert "no such charge" in text(results(session)["c1"])
    assert session.resolved == {"c1": "not-done"}
    assert charges(crash.ledger) == {}


def test_R4_where_the_outside_does_not_say_the_outcome_stays_unknown(
    crash: Crash, begin: Start
) -> None:
    crash.during(crash.call("charge", cents=13, hang="after"))
    session = begin().open("s", on_unknown="reconcile")
    assert code(results(session)["c1"]) == Code.TOOL_OUTCOME_UNKNOWN
    assert "does not talk about 13" in text(results(session)["c1"])
    assert session.resolved == {"c1": "unknown"}


@pytest.mark.parametrize("how", ["report", "retry"])
def test_R4_a_write_is_never_run_again(crash: Crash, begin: Start, how: Any) -> None:
    crash.during(crash.call("charge", cents=5, hang="after"))
    session = begin().open("s", on_unknown=how)
    assert code(results(session)["c1"]) == Code.TOOL_OUTCOME_UNKNOWN
    assert session.resolved == {}
    assert settled(session) == []
    assert list(charges(crash.ledger).values()) == [5]


@pytest.mark.parametrize("name", ["fetch", "put"])
def test_R4_a_read_and_an_idempotent_call_run_again_as_the_same_call(
    crash: Crash, begin: Start, name: str
) -> None:
    crash.during(crash.call(name))
    session = begin().open("s", on_unknown="retry")
    result = results(session)["c1"]
    assert code(result) is None
    if name == "put":
        assert charges(crash.ledger) == {text(result): 1}, "the same key, and once"
    else:
        assert json.loads(text(result)) == {"attempt": 2}
    [decided] = settled(session)
    assert (decided["how"], decided["attempt"], decided["callId"]) == ("retry", 2, "c1")


def test_R4_a_tool_without_reconcile_is_reported(crash: Crash, begin: Start) -> None:
    crash.during(crash.call("blind"))
    session = begin().open("s", on_unknown="reconcile")
    assert code(results(session)["c1"]) == Code.TOOL_OUTCOME_UNKNOWN
    assert session.resolved == {}


def test_R4_what_was_allowed_is_not_asked_again_for_a_retry(crash: Crash, begin: Start) -> None:
    crash.during(crash.call("asked"))
    session = begin().open("s", on_unknown="retry")  # nobody is there to answer
    assert text(results(session)["c1"]) == "2"
    assert [e.type for e in session.events].count("approval/asked") == 1


def test_R4_an_outcome_that_was_recorded_as_unknown_is_told_in_a_turn_of_its_own(
    crash: Crash, begin: Start
) -> None:
    crash.during(crash.call("charge", cents=5, hang="after"))
    runtime = begin()
    session = runtime.open("s")
    before = [event.type for event in session.events]
    session.close()
    session = runtime.open("s", on_unknown="reconcile")
    assert code(results(session)["c1"]) == Code.TOOL_OUTCOME_UNKNOWN, "the past is not rewritten"
    added = [event.type for event in session.events][len(before) :]
    assert added[1:] == ["interlock/settled", "turn/start", "user/message", "turn/end"]
    [words] = told(session)
    assert "'c1'" in words
    assert '"charged":5' in words.replace(" ", "")
    session.close()
    again = runtime.open("s", on_unknown="reconcile")
    assert again.resolved == {}, "it is asked once"
    assert len(told(again)) == 1
    with again.turn("go on") as turn, turn.step() as step:
        step.assistant("done")


def test_R4_a_retry_that_was_killed_is_counted_and_can_be_retried(
    crash: Crash, begin: Start, root: Path
) -> None:
    crash.during(crash.call("put"))
    runtime = begin()
    key_before = charges(crash.ledger)
    session = runtime.open("s", on_unknown="retry")
    assert session.resolved == {"c1": "done"}
    assert charges(crash.ledger) == key_before


def test_R4_several_calls_are_settled_in_model_order(crash: Crash, begin: Start) -> None:
    """Also those whose bodies had not begun: they have no record, and are not started."""
    crash.during(
        crash.call("charge", "c1", cents=1, hang="no"),
        crash.call("charge", "c2", cents=2, hang="after"),
    )
    session = begin().open("s", on_unknown="reconcile")
    found = results(session)
    assert list(found) == ["c1", "c2"]
    assert text(found["c1"]) == "charged 1"
    assert session.resolved == {"c2": "done"}
    assert sorted(charges(crash.ledger).values()) == [1, 2]


def test_R4_a_live_session_whose_dispatcher_died_is_settled_when_it_is_opened_again(
    begin: Start, tmp_path: Path
) -> None:
    runtime = begin()
    ledger, mark = tmp_path / "ledger", tmp_path / "mark"
    session = runtime.create("s", cwd=tmp_path)
    arguments = {"ledger": str(ledger), "cents": 9, "hang": "after", "mark": str(mark)}
    with session.turn("go") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", "charge", arguments)])
        from spine_support import InThread

        running = InThread(step.execute)
        until(mark.exists)
        os.kill(runtime.processes["dispatcher"], signal.SIGKILL)
        [result] = running.result()
    assert result.code == Code.TOOL_OUTCOME_UNKNOWN
    session.close()
    session = runtime.open("s", on_unknown="reconcile")
    assert session.resolved == {"c1": "done"}
    assert len(told(session)) == 1


def test_a_wrong_word_is_refused_before_anything_is_opened(begin: Start, crash: Crash) -> None:
    runtime = begin()
    runtime.create("s").close()
    with pytest.raises(ValueError, match="'report', 'retry', 'reconcile'"):
        runtime.open("s", on_unknown="guess")  # type: ignore[arg-type]
