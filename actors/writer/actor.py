"""The shell of the session writer."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal, cast

from interlock.backends.jsonl import Durability, JsonlBackend

from ..owner import Core, Owner
from .core import WriterCore


class WriterActor(Owner):
    """Owns the logs under one root; see :class:`~interlock.actors.writer.core.WriterCore`."""

    def make_core(self) -> Core:
        _raise_descriptor_limit()
        options = self.config.options
        backend = JsonlBackend(
            Path(self.config.root),
            durability=cast(Durability, options.get("durability", "journal")),
            allow_file=bool(options.get("allow_file_durability", False)),
            compression=cast('Literal["zstd", "none"]', options.get("compression", "zstd")),
        )
        return WriterCore(self, backend, self.incarnation, self.end)


def _raise_descriptor_limit() -> None:
    """Every session open for writing holds a lock descriptor: take what the system allows."""
    if os.name != "posix":
        return
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
