"""A runtime for the tests: one session whose calls ask for approval; told what to do by lines.

``python live_session.py ROOT``: prints ``ready``, then for each line on stdin runs a call with that
line as its argument and prints ``call <code> <text>``. Ends at the end of stdin.
"""

from __future__ import annotations

import sys

from interlock.actors import Runtime, ToolCall, tool


@tool(effect="write", approval="ask")
def send(text: str) -> str:
    """Send a text."""
    return f"sent {text}"


def main() -> None:
    with Runtime(sys.argv[1], tools=[send], answerer="external", workers=1) as runtime:
        session = runtime.create("live-1", cwd="/")
        print("ready", flush=True)
        for number, line in enumerate(sys.stdin, 1):
            with session.turn("go") as turn, turn.step() as step:
                call = ToolCall(f"c{number}", "send", {"text": line.strip()})
                step.assistant("", calls=[call])
                [result] = step.execute()
            print(f"call {result.code} {result.text}", flush=True)


if __name__ == "__main__":
    main()
