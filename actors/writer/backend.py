"""Where the writer's logs live: files under a root, or what the caller named."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast

from interlock.backends.backend import LogBackend
from interlock.backends.codes import Code
from interlock.backends.errors import LogError
from interlock.backends.jsonl import Durability, JsonlBackend


def make_backend(root: Path, options: Mapping[str, Any]) -> LogBackend:
    """Return the backend that the runtime was given.

    Raises ``LogError`` (``LOG_WRITE_FAILED``) for one that does not promise to survive power loss
    where ``durability="none"`` was not asked for (K7); what a factory raises passes through.
    """
    durability = cast(Durability, options.get("durability", "journal"))
    named = str(options.get("backend", ""))
    backend: LogBackend
    if named:
        module, _, factory = named.partition(":")
        backend = getattr(importlib.import_module(module), factory)(root, dict(options))
    else:
        backend = JsonlBackend(
            root,
            durability=durability,
            allow_network=bool(options.get("allow_network_root", False)),
            allow_file=bool(options.get("allow_file_durability", False)),
            compression=cast('Literal["zstd", "none"]', options.get("compression", "zstd")),
        )
    if durability != "none" and not backend.power_loss_durable:
        raise LogError(
            Code.LOG_WRITE_FAILED,
            f"the backend {named or 'of this system'} does not promise that what it acknowledges "
            "survives power loss; ask for durability='none' to use it all the same, and every log "
            "says so",
        )
    return backend
