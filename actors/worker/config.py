"""What a worker is started with."""

from __future__ import annotations

import msgspec

from ..keys import KeyPair


class WorkerConfig(msgspec.Struct, frozen=True):
    """Sent over the pipe that is the worker's standard input, which is closed before user code
    runs.
    """

    endpoint: str
    keys: KeyPair
    server_public: bytes
    parent_pid: int
    sys_path: list[str]
    cwd: str
