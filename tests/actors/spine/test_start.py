"""A runtime that cannot start says why and leaves nothing behind."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest
from interlock.actors import Runtime, RuntimeFailureError
from interlock.actors.keys import KeyPair
from interlock.actors.owner import OwnerConfig
from interlock.actors.roles import Role
from interlock.backends.codes import Code


def test_an_interpreter_that_cannot_be_started(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-such-python"))
    with pytest.raises(RuntimeFailureError, match="no-such-python") as failed:
        Runtime(root)
    assert failed.value.code == Code.ACTOR_LOST


def test_an_owner_whose_start_fails_ends_its_process(tmp_path: Path) -> None:
    import subprocess

    config = OwnerConfig(
        role=Role.BROKER,
        endpoints=[f"ipc://{tmp_path}/no-such-directory/broker"],
        keys=KeyPair.generate(),
        admitted={},
        peers={},
        host_pid=os.getpid(),
        root=str(tmp_path),
        runtime_dir=str(tmp_path),
    )
    done = subprocess.run(
        [sys.executable, "-m", "interlock.actors.broker"],
        input=msgspec.msgpack.encode(config),
        capture_output=True,
        timeout=60,
    )
    assert done.returncode == 70
    assert done.stdout == b"", "it said that it was ready"
