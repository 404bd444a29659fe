"""Where logs may be written: not on a network, unless the caller insists (storage.md)."""

from __future__ import annotations

import pytest
from interlock.backends import jsonl
from interlock.backends.codes import Code
from interlock.backends.errors import LogError
from interlock.backends.header import Header
from interlock.backends.jsonl import JsonlBackend
from interlock.backends.mounts import Mount

HEADER = Header(id="s", created_at=1, cwd="/work")


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs"])
def test_a_root_on_a_network_is_not_written_to_unless_the_caller_insists(monkeypatch, root, kind):
    monkeypatch.setattr(jsonl, "mount_of", lambda path: Mount(kind, "server:/x", "/x", "rw"))
    with pytest.raises(LogError, match=kind) as caught:
        JsonlBackend(root).create(HEADER)
    assert caught.value.code == Code.LOG_WRITE_FAILED
    assert not root.exists()
    with pytest.raises(LogError):
        JsonlBackend(root).open("s")
    assert list(JsonlBackend(root).list()) == []
    insisting = JsonlBackend(root, allow_network=True)
    log = insisting.create(HEADER)
    log.publish_empty()
    log.close()
