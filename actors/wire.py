"""Messages as bytes and back, and who may say what (X3)."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any, cast

import msgspec

from . import messages
from .messages import Message
from .roles import Role

#: Room for a result of the spill limit (64 MiB) as escaped JSON with its preview.
LARGE = 160 * 1024 * 1024
#: The largest message a peer of each role may send, in bytes, checked before it is parsed.
LIMITS: dict[Role, int] = {
    Role.WRITER: LARGE,
    Role.DISPATCHER: LARGE,
    Role.BROKER: 1024 * 1024,
    Role.LAUNCHER: 16 * 1024 * 1024,
    Role.HOST: LARGE,
    Role.WORKER: LARGE,
    Role.CLIENT: LARGE,
    Role.ANSWERER: 64 * 1024,
}


def _message_types() -> tuple[type[Message], ...]:
    found = [
        value
        for value in vars(messages).values()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    ]
    return tuple(found)


MESSAGE_TYPES = _message_types()
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    reduce(or_, cast(Any, MESSAGE_TYPES))
)


class BadMessageError(ValueError):
    """Bytes that are no message, or one that its sender may not send."""


def encode(message: Message) -> bytes:
    """Return ``message`` as bytes."""
    return _encoder.encode(message)


def decode(payload: bytes | memoryview, sender: Role) -> Message:
    """Return the message in ``payload`` as said by a peer of role ``sender``.

    Raises :class:`BadMessageError` where it is too large for that role, is no message, or is one
    that the role may not send. Nothing of it has had any effect then.
    """
    if len(payload) > LIMITS[sender]:
        raise BadMessageError(f"{len(payload)} bytes from a peer of role {sender}: too large")
    try:
        message = _decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadMessageError(f"no message: {error}") from None
    if sender not in message.SENDERS:
        raise BadMessageError(f"{type(message).__name__} from a peer of role {sender}: not allowed")
    return cast(Message, message)
