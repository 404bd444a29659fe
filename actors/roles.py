"""Who a peer is. The role comes from the key of the connection, never from a message (X1)."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """What the holder of a key is. The first four own things; the rest ask them."""

    WRITER = "writer"
    DISPATCHER = "dispatcher"
    BROKER = "broker"
    LAUNCHER = "launcher"
    HOST = "host"
    WORKER = "worker"
    ANSWERER = "answerer"
    CLIENT = "client"


#: The four owners, in the order in which they are started.
OWNERS = (Role.WRITER, Role.DISPATCHER, Role.BROKER, Role.LAUNCHER)
