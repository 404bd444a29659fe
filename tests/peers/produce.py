"""A program that uses a runtime as people do, and is killed at the end: ``produce.py ROOT``.

It leaves logs with approvals granted and rejected, nested calls, cancellations, a spilled result,
overlapping calls, failures, and one turn in the middle of a call.
"""

import os
import signal
import sys
import threading
import time

from interlock.actors import Runtime, ToolCall, ToolContext, tool


@tool(effect="read", parallel=True)
def leaf(ctx: ToolContext, text: str) -> str:
    "Say it louder."
    return text.upper()


@tool(effect="write", approval="ask")
def pay(ctx: ToolContext, cents: int) -> dict:
    "Pay."
    return {"cents": cents}


@tool(effect="write")
def outer(ctx: ToolContext) -> str:
    "Use another tool."
    return ctx.call("leaf", {"text": "inner"}).value


@tool(effect="read")
def big(ctx: ToolContext) -> str:
    "Return more than fits into the log."
    return "0123456789abcdef" * 40_000


@tool(effect="write")
def boom(ctx: ToolContext) -> None:
    "Fail."
    raise RuntimeError("boom")


@tool(effect="write")
def slow(ctx: ToolContext, mark: str) -> str:
    "Wait until somebody cancels."
    open(mark, "w").close()
    ctx.wait_cancelled(2)
    return "cancelled"


def step(turn, *calls):
    with turn.step() as one:
        one.assistant("", [ToolCall(i, name, arguments) for i, name, arguments in calls])
        return one.execute()


root = sys.argv[1]
mark = os.path.join(sys.argv[2], "mark")
runtime = Runtime(
    root,
    tools=[leaf, pay, outer, big, boom, slow],
    answerer=lambda request: request.call_id != "no",
    compression=sys.argv[3],
)
session = runtime.create("everything", cwd=sys.argv[2])
with session.turn("Do a lot") as turn:
    step(turn, ("a", "leaf", {"text": "x"}), ("b", "leaf", {"text": "y"}), ("o", "outer", {}))
    step(turn, ("yes", "pay", {"cents": 1}), ("no", "pay", {"cents": 2}), ("what", "nothing", {}))
    step(turn, ("big", "big", {}), ("boom", "boom", {}), ("bad", "pay", {"cents": "many"}))
    session.set_approval_policy("never")
    step(turn, ("never", "pay", {"cents": 3}))
with session.turn("Stop that") as turn, turn.step() as one:
    one.assistant(
        "", [ToolCall("s1", "slow", {"mark": mark}), ToolCall("s2", "leaf", {"text": ""})]
    )

    def cancel() -> None:
        while not os.path.exists(mark):
            time.sleep(0.01)
        one.cancel("enough")

    threading.Thread(target=cancel).start()
    one.execute()
killed = runtime.create("killed", cwd=sys.argv[2])
turn = killed.turn("Never ends").__enter__()
one = turn.step().__enter__()
calls = [ToolCall("k1", "slow", {"mark": mark + "2"}), ToolCall("k2", "pay", {"cents": 1})]
one.assistant("", calls)
threading.Thread(target=one.execute, daemon=True).start()
while not os.path.exists(mark + "2"):
    time.sleep(0.01)
print(*runtime.processes.values(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
