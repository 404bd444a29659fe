"""What a row of v0, v1 or v2 does to the surface, in current terms."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from ..event import Replace, SurfaceOp
from ..schema import SchemaError
from .rows import Row


def surface_operation(row: Row) -> SurfaceOp | None:
    """Return a row's surface operation in current terms, None where it has none.

    Raises ``SchemaError`` where it is neither ``append`` nor an exact replacement of earlier
    events.
    """
    value = row.surfaceOp
    if value is UNSET:
        return None
    if value == "append":
        return "append"
    try:
        stored = msgspec.convert(value, _StoredReplace)
    except msgspec.ValidationError as error:
        raise SchemaError(
            f"surfaceOp is neither append nor an exact replacement: {error}"
        ) from error
    if not (0 <= stored.start < row.seq and 0 <= stored.end < row.seq):
        raise SchemaError("a replacement names events that are not earlier")
    return Replace(stored.start, stored.end)


class _StoredReplace(msgspec.Struct, forbid_unknown_fields=True, tag_field="op", tag="replace"):
    start: int
    end: int
