"""JSON text as the log holds it: compact, UTF-8, lone surrogates kept, real numbers only."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

import msgspec

#: Where a value, and not some text, may be null or -0 (or, seldom, a text that looks so).
_SUSPECT = re.compile(rb"(?:^|[:\[,])(?:null|-0)")

_encode = msgspec.json.Encoder(decimal_format="number").encode
_decode = msgspec.json.Decoder().decode


def dumps(value: Any) -> bytes:
    r"""Encode ``value`` as one line of compact JSON.

    Non-ASCII stays unescaped, as in the harness's logs; a lone surrogate becomes ``\udXXX``, so
    that any Python string survives. ``-0.0`` becomes ``0`` (as JavaScript writes it).

    Raises ``ValueError`` for NaN, an infinity, or anything that JSON cannot hold, naming the value.
    """
    try:
        text = _encode(value)
    except UnicodeEncodeError:
        return _dumps_surrogates(value)
    except (TypeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise ValueError(f"not JSON: {error}") from error
    # msgspec writes NaN and the infinities as null, and -0.0 as it is; both are rare enough that
    # a look at the finished text is cheaper than a walk through every value.
    if (b"null" in text or b"-0" in text) and _SUSPECT.search(text) is not None:
        canonical = _canonical(value)
        return text if canonical is value else _encode(canonical)
    return text


def loads(data: bytes | str) -> Any:
    r"""Decode one JSON value; ``\udXXX`` without its pair survives as a lone surrogate.

    Raises ``ValueError`` with the reason for anything that is not exactly one JSON value.
    """
    try:
        return _decode(data)
    except RecursionError as error:
        raise ValueError("not JSON: nested too deeply") from error
    except msgspec.MsgspecError as error:
        if not _has_surrogate_escape(data):
            raise ValueError(f"not JSON: {error}") from error
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        return json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("not JSON: nested too deeply") from error


def loads_anyhow(data: bytes) -> Any:
    """Decode one JSON value as :func:`loads` does, or with its bad UTF-8 replaced.

    For looking at lines that are damage already: the harness's reader replaces it everywhere.
    Raises ``ValueError``.
    """
    try:
        return loads(data)
    except ValueError:
        return loads(data.decode("utf-8", "replace"))


def _has_surrogate_escape(data: bytes | str) -> bool:
    text = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
    return b"\\ud" in text or b"\\uD" in text


def _dumps_surrogates(value: Any) -> bytes:
    plain = _canonical(msgspec.to_builtins(value))
    try:
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    # Only a lone surrogate fails to encode here, and it can only stand inside a JSON string.
    return text.encode("utf-8", "backslashreplace")


def _canonical(value: Any) -> Any:
    """Return ``value`` itself, or a copy with -0.0 as 0; refuse numbers that JSON cannot hold."""
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"not JSON: {value} is no JSON number")
        return 0 if value == 0 and math.copysign(1.0, value) < 0 else value
    if isinstance(value, dict):
        pairs = [(key, item, _canonical(item)) for key, item in value.items()]
        if all(new is old for _, old, new in pairs):
            return value
        return {key: new for key, _, new in pairs}
    if isinstance(value, (list, tuple)):
        items = [_canonical(item) for item in value]
        if all(new is old for old, new in zip(value, items, strict=True)):
            return value
        return items
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"not JSON: {name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"not JSON: {text} is out of range")
    return number
