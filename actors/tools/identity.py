"""Which call this is, and the key to hand to the outside world for it (I1, I2)."""

from __future__ import annotations

import hashlib

import msgspec

_DOMAIN = b"interlock idempotency key 1"


class CallIdentity(msgspec.Struct, frozen=True):
    """One advertisement of a call id in one assistant message.

    ``message_seq`` is the ``seq`` of that ``assistant/message``; the same id in a later message is
    another call.
    """

    session_id: str
    message_seq: int
    call_id: str


def idempotency_key(session_id: str, created_at: int, message_seq: int, call_id: str) -> str:
    """Return the key of a call: 64 hex digits, the same on every retry and after every resume.

    I2: no two calls share it. Every field is preceded by its length, so that no two different calls
    can run together into the same bytes, and the session's creation time (ms) tells a session apart
    from an earlier one of the same id.
    """
    digest = hashlib.sha256()
    fields = (
        _DOMAIN,
        session_id.encode("utf-8", "surrogatepass"),
        b"%d" % created_at,
        b"%d" % message_seq,
        call_id.encode("utf-8", "surrogatepass"),
    )
    for field in fields:
        digest.update(len(field).to_bytes(8, "big"))
        digest.update(field)
    return digest.hexdigest()
