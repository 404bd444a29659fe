"""A process that verifies logs for another one."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path


def test_a_verifying_process_ends_with_who_asked_in_the_middle_of_a_log(tmp_path: Path) -> None:
    # A log that never gets as far as its first byte: opening a FIFO waits for somebody to write.
    fifo = tmp_path / "session.v3.jsonl"
    os.mkfifo(fifo)
    worker = subprocess.Popen(
        [sys.executable, "-P", "-m", "interlock.backends.verify_pool", tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    end = os.pidfd_open(worker.pid)
    try:
        question = {"path": os.fsencode(fifo).hex(), "id": "s"}
        worker.stdin.write(json.dumps(question).encode() + b"\n")
        worker.stdin.close()
        assert select.select([end], [], [], 60)[0], "it goes on although nobody asks any more"
        assert worker.stdout.read() == b""
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()
        os.close(end)
