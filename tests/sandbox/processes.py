"""Processes as tests see them: those that carry a tag in their arguments, and how to wait."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

#: A grandchild in a session of its own that ignores every polite signal and keeps the pipe.
STUBBORN = """
(trap '' TERM HUP INT; setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 1; : {tag}; done' &)
"""
#: The same, forked twice: its parent is gone before the command ends.
DETACHED = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        loop = "while :; do sleep 1; : " + sys.argv[1] + "; done"
        os.execvp("sh", ["sh", "-c", "trap '' TERM HUP INT; echo up; " + loop])
    os._exit(0)
os.wait()
time.sleep(600)
"""


def alive(tag: str) -> list[int]:
    """Processes that carry ``tag`` in their arguments."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            if tag.encode() in Path(f"/proc/{int(entry)}/cmdline").read_bytes():
                found.append(int(entry))
    return found


def descendants(pid: int) -> list[int]:
    """Every process below ``pid``."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [p for c in map(int, children) for p in (c, *descendants(c))]
    return []


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    """Look again and again until ``condition`` holds; whether it did in time."""
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.01)
    return True
