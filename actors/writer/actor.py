"""The shell of the session writer."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..owner import Core, Owner
from .backend import make_backend
from .core import WriterCore


class WriterActor(Owner):
    """Owns the logs under one root; see :class:`~interlock.actors.writer.core.WriterCore`."""

    def make_core(self) -> Core:
        _raise_descriptor_limit()
        backend = make_backend(Path(self.config.root), self.config.options)
        return WriterCore(self, backend, self.incarnation, self.end)


def _raise_descriptor_limit() -> None:
    """Every session open for writing holds a lock descriptor: take what the system allows."""
    if os.name != "posix":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
