"""What an agent has still to do, read from its log."""

from dataclasses import dataclass
from typing import Any

from interlock.actors.hosting.resume import what_is_left

PROMPTS = ["one", "two"]


@dataclass
class Row:
    type: str
    data: dict[str, Any]


def turn(kind: str | None) -> list[Row]:
    start = [Row("turn/start", {"turn": 1}), Row("user/message", {"source": {"kind": "user"}})]
    return start if kind is None else [*start, Row("turn/end", {"reason": {"kind": kind}})]


def news() -> list[Row]:
    """A turn that tells what is known of earlier calls."""
    message = Row("user/message", {"source": {"kind": "plugin", "plugin": "interlock"}})
    end = Row("turn/end", {"reason": {"kind": "completed"}})
    return [Row("turn/start", {"turn": 1}), message, end]


def test_R2_prompts_whose_turns_completed_are_not_given_again() -> None:
    left = what_is_left(turn("completed"), PROMPTS)
    assert (left.prompts, left.done, left.resumed) == (("two",), 1, False)


def test_R2_nothing_is_left_when_all_completed() -> None:
    left = what_is_left(turn("completed") * 2, PROMPTS)
    assert (left.prompts, left.done, left.open) == ((), 2, False)


def test_R4_an_interrupted_prompt_is_told_with_what_happened() -> None:
    left = what_is_left(turn("completed") + turn("interrupted"), PROMPTS)
    [told] = left.prompts
    assert left.resumed
    assert "was interrupted" in told
    assert "do not repeat one whose outcome is unknown" in told
    assert told.endswith("two")


def test_R2_a_turn_that_is_still_open_counts_as_interrupted() -> None:
    left = what_is_left(turn(None), PROMPTS)
    assert left.open
    assert left.resumed
    assert left.prompts[1:] == ("two",)


def test_a_resumed_turn_that_completed_finishes_its_prompt() -> None:
    left = what_is_left(turn("error") + turn("completed"), PROMPTS)
    assert (left.prompts, left.done) == (("two",), 1)


def test_A1_the_settings_in_the_log_are_those_said_last() -> None:
    rows = [Row("sandbox/mode", {"mode": m}) for m in ("read-only", "workspace-write")]
    rows.append(Row("approval/policy", {"policy": "never"}))
    left = what_is_left(rows, PROMPTS)
    assert (left.sandbox, left.approval) == ("workspace-write", "never")


def test_R4_a_turn_that_only_tells_what_became_of_calls_is_no_prompt() -> None:
    left = what_is_left(turn("interrupted") + news(), PROMPTS)
    assert (left.done, left.resumed, left.open) == (0, True, False)
    assert what_is_left(turn("completed") + news(), PROMPTS).done == 1
