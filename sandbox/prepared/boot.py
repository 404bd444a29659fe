"""Where the launcher's processes begin: what to do is on the descriptor that the argument names."""

from __future__ import annotations

import marshal
import os
import sys

from .confining import confine, execute
from .nursery import guard
from .supervisor import SETUP_FAILED, Supervisor, command

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

    from .kernel import Spec


def main() -> None:
    """Guard a nursery, or run one command, supervised or not."""
    with open(int(sys.argv[1]), "rb") as file:
        # The bytes come from the parent, by a descriptor that nobody else holds.
        spec: Spec = marshal.loads(file.read())  # noqa: S302 our own parent wrote them
    if "control" in spec:
        os._exit(guard(spec["control"], spec["host"], spec["groups"]))
    if not spec["supervise"]:
        confine(spec)
        execute(spec["argv"], spec["env"])
    os._exit(_supervise(spec))


def _supervise(spec: Spec) -> int:
    supervisor = Supervisor(spec["host"])

    def child(parent: int, told: _socket.socket) -> None:
        command(spec, parent, told)

    if not supervisor.start(child):
        return SETUP_FAILED
    return supervisor.run(spec, spec["status"], spec["alive"])
