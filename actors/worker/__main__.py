"""``python -m interlock.actors.worker``: one worker process."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

import zmq

from ..process import leave_terminal, read_config
from ..search_path import Pinned, standard_library_first
from .actor import WorkerActor
from .config import WorkerConfig

#: prctl's option of that name (Linux).
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Have the kernel end this process with the dispatcher, whatever a body does meanwhile.

    The dispatcher's own thread starts workers and lives as long as its process.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    leave_terminal()
    end_with_parent()
    config: WorkerConfig = read_config(WorkerConfig)
    # Tools find what the host finds; this process itself goes on with what it started with (S6).
    sys.meta_path.insert(0, Pinned(sys.path))
    sys.path[:] = standard_library_first(config.sys_path)
    os.chdir(config.cwd)
    ended = threading.Event()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    WorkerActor.start(config, context, ended.set)
    ended.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
