"""P7: making any result fit the log.

Up to :data:`INLINE_LIMIT` a result stands in its event. A larger one goes to a file beside the log
and the event keeps the beginning, the size and the digest. Over :data:`SPILL_LIMIT` that file keeps
the beginning and the end, and both the file and the event say what was cut.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from . import jsontext
from .outcome import Outcome

#: Bytes of text that a result may take in its event.
INLINE_LIMIT = 256 * 1024
#: Bytes that a spill file may take.
SPILL_LIMIT = 64 * 1024 * 1024
#: Bytes of a spilled result that the model is shown at once.
PREVIEW = 8 * 1024


class Fitted(msgspec.Struct, frozen=True):
    """An outcome that fits its event, and the bytes to store before the event is appended.

    ``outcome`` goes into the event. ``spill`` is ``None`` for a result that stands there whole,
    otherwise the file's content; ``digest`` is the hex SHA-256 of ``spill``, ``size`` the bytes of
    the whole result before any cut.
    """

    outcome: Outcome
    spill: bytes | None = None
    digest: str = ""
    size: int = 0


def fit(outcome: Outcome, where: str = "", *, limit: int = INLINE_LIMIT) -> Fitted:
    """Fit an outcome into an event.

    :param where: how to name the spill file to the model and in ``meta["spill"]["file"]``.
    :param limit: bytes of text that a result may take there; never more than the usual.
    """
    limit = min(limit, INLINE_LIMIT)
    if not outcome.ok:
        return _fit_failure(outcome, where, limit)
    # The value and the blocks may both be stored in the event.
    if len(outcome.value) + len(outcome.content) <= limit:
        return Fitted(outcome)
    data = _payload(outcome)
    spill, cut = _spill(data)
    digest = hashlib.sha256(spill).hexdigest()
    note = {"file": where, "bytes": len(spill), "sha256": digest, "size": len(data), "cut": cut}
    meta = outcome.meta_object() | {"spill": note}
    shown = _head(data, min(PREVIEW, limit)).decode("utf-8", "replace")
    block = {"type": "text", "text": shown + _statement(note, len(shown.encode()), where)}
    fitted = Outcome(
        ok=True, value=b"null", content=jsontext.encode([block]), meta=jsontext.encode(meta)
    )
    return Fitted(fitted, spill, digest, len(data))


def _fit_failure(outcome: Outcome, where: str, limit: int) -> Fitted:
    """Messages are bounded where they are made; what programs get (a command's output) is not."""
    if len(outcome.meta) <= limit:
        return Fitted(outcome)
    spill, cut = _spill(outcome.meta)
    digest, size = hashlib.sha256(spill).hexdigest(), len(outcome.meta)
    note = {"file": where, "bytes": len(spill), "sha256": digest, "size": size, "cut": cut}
    parts = outcome.meta_object().items()
    kept = {name: part for name, part in parts if len(jsontext.encode(part)) <= PREVIEW}
    meta = jsontext.encode(kept | {"spill": note})
    return Fitted(msgspec.structs.replace(outcome, meta=meta), spill, digest, size)


def preview(outcome: Outcome, *, limit: int = INLINE_LIMIT) -> list[dict[str, Any]]:
    """Return the blocks of an outcome for an event that cannot have a file beside it."""
    limit = min(limit, INLINE_LIMIT)
    if len(outcome.value) + len(outcome.content) <= limit:
        return outcome.blocks()
    data = _payload(outcome)
    shown = _head(data, min(PREVIEW, limit)).decode("utf-8", "replace")
    told = f"\n[interlock: the first {len(shown.encode())} of {len(data)} bytes]"
    return [{"type": "text", "text": shown + told}]


def _payload(outcome: Outcome) -> bytes:
    """The bytes of the whole result: a string's text, anything else's JSON."""
    return outcome.text().encode("utf-8", "backslashreplace")


def _spill(data: bytes) -> tuple[bytes, int]:
    """Return what the file holds and how many bytes were cut out of the middle."""
    if len(data) <= SPILL_LIMIT:
        return data, 0
    marker_room = 128
    half = (SPILL_LIMIT - marker_room) // 2
    head, tail = _head(data, half), _tail(data, half)
    cut = len(data) - len(head) - len(tail)
    return head + f"\n[interlock: {cut} bytes of the result were cut here]\n".encode() + tail, cut


def _head(data: bytes, limit: int) -> bytes:
    """The first bytes, not ending inside a UTF-8 character."""
    end = min(limit, len(data))
    while 0 < end < len(data) and data[end] & 0xC0 == 0x80:
        end -= 1
    return data[:end]


def _tail(data: bytes, limit: int) -> bytes:
    """The last bytes, not beginning inside a UTF-8 character."""
    start = max(0, len(data) - limit)
    while start < len(data) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:]


def _statement(note: dict[str, object], shown: int, where: str) -> str:
    place = f"the file {where}" if where else "a file beside the log"
    kept = f"{place} (SHA-256 {note['sha256']})"
    if note["cut"]:
        kept += f", without {note['cut']} bytes that were cut out of its middle"
    return f"\n[interlock: the first {shown} of {note['size']} bytes; the rest is in {kept}]"
