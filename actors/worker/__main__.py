"""``python -m interlock.actors.worker``: one worker process."""

from __future__ import annotations

import os
import sys
import threading

import zmq

from ..process import leave_terminal, read_config
from .actor import WorkerActor
from .config import WorkerConfig


def main() -> None:
    leave_terminal()
    config: WorkerConfig = read_config(WorkerConfig)
    # Tools find what the host finds; what this process itself needs is loaded already.
    sys.path[:] = config.sys_path
    os.chdir(config.cwd)
    ended = threading.Event()
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    WorkerActor.start(config, context, ended.set)
    ended.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
