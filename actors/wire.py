"""Messages as bytes and back, and who may say what (X3)."""

from __future__ import annotations

from collections.abc import Sequence
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
_any_message: Any = reduce(or_, cast(Any, MESSAGE_TYPES))
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(_any_message)
_bundle_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    list.__class_getitem__(_any_message)
)
#: What a bundle begins with: a byte that MessagePack never uses.
_BUNDLE = b"\xc1"


class BadMessageError(ValueError):
    """Bytes that are no message, or one that its sender may not send."""


def encode(message: Message) -> bytes:
    """Return ``message`` as bytes."""
    return _encoder.encode(message)


def bundle(messages: Sequence[bytes]) -> bytes:
    """Return encoded messages to one receiver as one payload: one send, one receive."""
    if len(messages) == 1:
        return messages[0]
    return b"".join((_BUNDLE, b"\xdd", len(messages).to_bytes(4, "big"), *messages))


def decode(payload: bytes | memoryview, sender: Role) -> Message:
    """Return the message in ``payload`` as said by a peer of role ``sender``.

    Raises :class:`BadMessageError` where it is too large for that role, is no message, or is one
    that the role may not send. Nothing of it has had any effect then.
    """
    message = _decoded(_decoder, payload, sender)
    _check_sender(message, sender)
    return cast(Message, message)


def decode_all(payload: bytes | memoryview, sender: Role) -> list[Message]:
    """Return the messages in ``payload``, one or a bundle, in the order in which they were sent.

    Raises :class:`BadMessageError` as :func:`decode` does: a bundle counts as a whole.
    """
    if payload[:1] != _BUNDLE:
        return [decode(payload, sender)]
    messages: list[Message] = _decoded(_bundle_decoder, payload, sender, 1)
    for message in messages:
        _check_sender(message, sender)
    return messages


def _decoded(
    decoder: msgspec.msgpack.Decoder[Any], payload: bytes | memoryview, sender: Role, start: int = 0
) -> Any:
    if len(payload) > LIMITS[sender]:
        raise BadMessageError(f"{len(payload)} bytes from a peer of role {sender}: too large")
    try:
        return decoder.decode(memoryview(payload)[start:] if start else payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadMessageError(f"no message: {error}") from None


def _check_sender(message: Message, sender: Role) -> None:
    if sender not in message.SENDERS:
        raise BadMessageError(f"{type(message).__name__} from a peer of role {sender}: not allowed")
