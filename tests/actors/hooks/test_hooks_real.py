"""The shipped pieces in a real runtime, beside functions, and after a restart of everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from interlock.actors import (
    Ask,
    Budget,
    Decision,
    Deny,
    LoopDetector,
    ResultLimit,
    Runtime,
    ToolCall,
    tool,
)
from interlock.backends.codes import Code

pytestmark = pytest.mark.slow


@tool(effect="write")
def pay(cents: int, to: str = "shop") -> int:
    """Pay."""
    return cents


@tool(effect="read")
def noise(length: int) -> str:
    """Return a text."""
    return "x" * length


def call(session: Any, name: str, **arguments: Any) -> Any:
    with session.turn("work") as turn, turn.step() as step:
        step.assistant("", [ToolCall("c1", name, arguments)])
        [result] = step.execute()
    return result


def test_pieces_and_functions_judge_together_and_a_budget_outlives_the_runtime(
    tmp_path: Path,
) -> None:
    def mine(judged: Any) -> Decision | None:
        return Decision.deny("mine") if judged.arguments.get("to") == "me" else None

    options: dict[str, Any] = {
        "tools": [pay, noise],
        "gates": [
            mine,
            Deny("pay", where={"to": "*casino*"}, reason="no gambling"),
            Ask("pay", above={"cents": 50}),
            Budget(100, "pay", amount="cents"),
            LoopDetector(3),
        ],
        "hooks": [ResultLimit(2000)],
        "answerer": lambda request: request.tool == "pay",
        "workers": 1,
    }
    with Runtime(tmp_path / "root", **options) as runtime:
        session = runtime.create("s")
        assert call(session, "pay", cents=40).value == 40
        assert "no gambling" in call(session, "pay", cents=1, to="the casino").message
        assert "mine" in call(session, "pay", cents=1, to="me").message
        assert call(session, "pay", cents=60).value == 60, "asked, and allowed"
        over = call(session, "pay", cents=1)
        assert over.code == Code.TOOL_DENIED
        assert "100 cents of 100 are used up" in over.message
        large = call(session, "noise", length=5000)
        file = next(
            e.data["meta"]["spill"]["file"]
            for e in session.events
            if e.type == "tool/result" and "spill" in e.data.get("meta", {})
        )
        session.flush()
        assert (session.path.parent / file).read_text() == "x" * 5000
        assert "the first 2000 of 5000 bytes" in large.text
        asked = [e for e in session.events if e.type == "approval/asked"]
        assert len(asked) == 1
    with Runtime(tmp_path / "root", **options) as runtime:
        session = runtime.open("s")
        assert call(session, "pay", cents=1).code == Code.TOOL_DENIED, "the log has what was spent"
        assert call(runtime.create("t"), "pay", cents=1).value == 1
