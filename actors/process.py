"""Running one owner as a process of its own: ``python -m interlock.actors.<owner>``.

The configuration and the keys come over standard input, which is closed before anything else
happens. Standard output says once that the owner is ready, then it is closed as well.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import threading
from typing import Any

import msgspec
import zmq

from .keys import Doorkeeper
from .owner import Owner, OwnerConfig, Terminate

#: Exit status of an owner whose actor failed.
FAILED = 70


def read_config(into: Any) -> Any:
    """Read the configuration of type ``into`` from standard input and put /dev/null in its
    place.
    """
    data = sys.stdin.buffer.read()
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    return msgspec.msgpack.decode(data, type=into)


def say_ready(text: str) -> None:
    """Tell the starter, once, over standard output."""
    os.write(1, text.encode() + b"\n")
    os.dup2(0, 1)


def leave_terminal() -> None:
    """Have Ctrl-C reach the supervisor alone (the owner runs in a session of its own)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_owner(actor: type[Owner]) -> None:
    """Run ``actor`` until it ends; called in the main thread of its process, never returns."""
    leave_terminal()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(message)s")
    config = read_config(OwnerConfig)
    # S6: at the end, so that nothing which a command planted there stands in for what is needed.
    sys.path += [path for path in config.sys_path if path not in sys.path]
    ended = threading.Event()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    door = Doorkeeper(context)
    status = FAILED

    def ready(incarnation: str) -> None:
        nonlocal status
        status = 0
        say_ready(incarnation)

    # What is imported stays, and what a batch makes is gone with it: look for cycles rarely.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    reference = actor.start(config, context, door, ready, ended.set)
    signal.signal(signal.SIGTERM, lambda *_: reference.tell(Terminate()))
    ended.wait()
    _leave(context, door, status)


def _leave(context: zmq.Context[zmq.Socket[bytes]], door: Doorkeeper, status: int) -> None:
    """End the process, giving last messages a moment to leave but never hanging."""

    def finish() -> None:
        door.close()
        context.term()

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    thread.join(timeout=1.0)
    logging.shutdown()
    os._exit(status)
