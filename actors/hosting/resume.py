"""What an agent has still to do, read from its log; pure.

Each prompt of an agent is a turn. A prompt is done when its turn completed; one whose turn ended
in any other way is told to the model again, in a new turn, with what is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class LoggedEvent(Protocol):
    """What is read of an event (``interlock.backends.event.Event`` has it)."""

    @property
    def type(self) -> str: ...
    @property
    def data(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True)
class Left:
    """What is left: the prompts to give, worded for the model, and the settings in force.

    ``done`` counts prompts whose turns completed; ``resumed`` says that the first of ``prompts``
    was begun before; ``open`` that its turn has not been completed by repair yet.
    """

    prompts: tuple[str, ...]
    done: int = 0
    resumed: bool = False
    open: bool = False
    sandbox: str | None = None
    approval: str | None = None


def what_is_left(events: Iterable[LoggedEvent], prompts: Sequence[str]) -> Left:
    """Read what remains of ``prompts`` from a session's events."""
    done, last, open_turn, asked = 0, "completed", False, False
    sandbox: str | None = None
    approval: str | None = None
    for event in events:
        if event.type == "turn/start":
            open_turn, asked = True, False
        elif event.type == "user/message":
            asked = asked or event.data["source"]["kind"] == "user"
        elif event.type == "turn/end":
            open_turn = False
            if asked:  # one without a prompt only tells what is known of earlier calls
                last = event.data["reason"]["kind"]
                done += last == "completed"
        elif event.type == "sandbox/mode":
            sandbox = event.data["mode"]
        elif event.type == "approval/policy":
            approval = event.data["policy"]
    left = list(prompts[done:])
    resumed = bool(left) and (open_turn or last != "completed")
    if resumed:
        how = "interrupted" if open_turn else last
        left[0] = resumption(left[0], how)
    return Left(tuple(left), min(done, len(prompts)), resumed, open_turn, sandbox, approval)


_HOW = {
    "interrupted": "was interrupted: its process ended in the middle of it",
    "aborted": "was stopped by the user",
    "error": "ended with an error of the model",
    "max-tokens": "ended because the model's answer became too long",
}


def resumption(prompt: str, how: str) -> str:
    """Say to the model that a prompt's earlier turn did not end well, and what to do about it."""
    return (
        f"Your earlier turn {_HOW.get(how, f'ended ({how})')}. The results above say what is known "
        "of each call: do not repeat one whose outcome is unknown before you have looked. Go on "
        f"with what you were asked:\n\n{prompt}"
    )
