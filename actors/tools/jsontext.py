"""JSON as this package writes and checks it: what every reader of a log can read back.

Three things that Python's encoder lets through would break a log: NaN and infinities, negative zero
(the harness refuses it) and half of a surrogate pair in a string (not UTF-8). The first is refused,
the second becomes zero, the third is kept as the escape ``\\udXXX``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from interlock.backends.jsontext import dumps, loads

#: Nesting that every JSON reader in use can follow (Python's own stops near 1,000).
MAX_DEPTH = 200


#: Reading and writing is the log's own (it keeps lone surrogates and refuses what is no number).
encode = dumps
decode = loads


class NotJSONError(TypeError):
    """A value that JSON cannot hold; the message names the type and the path to it."""


def readable(text: str) -> str:
    """Make text safe to encode as UTF-8, for messages: a lone surrogate becomes ``\\udXXX``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def normalise(value: Any) -> Any:
    """Turn what a body returned into plain JSON data, or raise :class:`NotJSONError`.

    Accepted besides JSON's own types: tuples (arrays), any ``Mapping`` with string keys (objects),
    dataclasses and pydantic models (objects of their fields), and subclasses of ``str``, ``int``
    and ``float``, enums among them. A path, a date, bytes or a set is not guessed at: the tool says
    how it wants to be read.
    """
    return _normalise(value, "$", 0)


def _normalise(value: Any, path: str, depth: int) -> Any:
    if value is None or value is True or value is False:
        return value
    if depth > MAX_DEPTH:
        raise NotJSONError(f"nested more than {MAX_DEPTH} levels deep (or within itself) at {path}")
    scalar = _scalar(value, path)
    if scalar is not None:
        return scalar
    if isinstance(value, (list, tuple)):
        return [_normalise(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(k, path): _normalise(v, f"{path}.{k}", depth + 1) for k, v in value.items()}
    fields = _fields(value)
    if fields is not None:
        return _normalise(fields, path, depth + 1)
    raise NotJSONError(f"a value of type {_type_name(value)} at {path} is not JSON")


def _scalar(value: Any, path: str) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NotJSONError(f"the number {value!r} at {path} is not JSON")
        return float(value) or 0.0  # -0.0 is false, so this also drops its sign
    return None


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    raise NotJSONError(f"an object at {path} has a key of type {_type_name(key)}; keys are strings")


def _fields(value: Any) -> Mapping[str, Any] | None:
    """The fields of a dataclass or pydantic model; pydantic is recognised without importing it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    dump: Callable[..., Any] | None = getattr(type(value), "model_dump", None)
    if dump is not None and hasattr(type(value), "__pydantic_serializer__"):
        dumped = dump(value, mode="json")
        return dumped if isinstance(dumped, Mapping) else {"root": dumped}
    return None


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )
