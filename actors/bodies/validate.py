"""P1: the dispatcher's check of a call's raw argument string, before any gate."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec
from interlock.actors.tools import jsontext
from interlock.actors.tools.failure import InvalidArgumentsError
from interlock.actors.tools.outcome import shorten
from interlock.actors.tools.spec import ToolSpec

#: Problems named in one message.
_SHOWN = 5
#: The validator quotes the value that does not fit; characters of it.
_QUOTED = 300


class ValidArguments(msgspec.Struct, frozen=True):
    """Arguments that fit: ``raw`` is the JSON for the body, unchanged; ``value`` is it parsed."""

    raw: bytes
    value: dict[str, Any]


def validate(spec: ToolSpec, raw: str) -> ValidArguments:
    """Check a call's arguments against the tool's schema. Runs in the dispatcher.

    An empty string means no arguments. A key given twice is refused: which one counts would depend
    on the reader, and the log, the gates and the body must all see the same call.

    :param raw: the argument string as the model wrote it.
    :raises InvalidArgumentsError: what does not fit and where, in words for the model.
    """
    value = _parse(spec.name, raw)
    if "\\u" in raw or not raw.isascii():
        _check_text(spec.name, value)
    problems = _problems(spec, value)
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise InvalidArgumentsError(
            f"arguments of {spec.name} do not fit its schema: {'; '.join(problems[:_SHOWN])}{more}"
        )
    return ValidArguments(raw.encode() if raw.strip() else b"{}", value)


def _parse(tool: str, raw: str) -> dict[str, Any]:
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise InvalidArgumentsError(
            f"arguments of {tool} are not JSON: {error.msg} at character {error.pos}; "
            "send one JSON object"
        ) from None
    except InvalidArgumentsError as error:
        raise InvalidArgumentsError(f"arguments of {tool}: {error}") from None
    except (RecursionError, ValueError) as error:
        problem = (
            "nested too deeply" if isinstance(error, RecursionError) else str(error).split(";")[0]
        )
        raise InvalidArgumentsError(f"arguments of {tool} cannot be read: {problem}") from None
    if not isinstance(value, dict):
        raise InvalidArgumentsError(
            f"arguments of {tool} are {_kind(value)}, not a JSON object; send one JSON object"
        )
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in value if keys.count(key) > 1)
        raise InvalidArgumentsError(f"the key {_quoted(twice)} is given twice; give it once")
    return value


def _constant(name: str) -> Any:
    raise InvalidArgumentsError(f"{name} is not JSON; use a number, or null")


def _check_text(tool: str, value: dict[str, Any]) -> None:
    """Refuse half of a surrogate pair (a cut emoji), which no UTF-8 file or program can take."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        near = error.object[max(0, error.start - 20) : error.start + 1]
        raise InvalidArgumentsError(
            f"arguments of {tool} hold half of a surrogate pair after {_quoted(near)}; "
            "send the whole character or leave it out"
        ) from None
    except RecursionError:
        raise InvalidArgumentsError(f"arguments of {tool} are nested too deeply") from None


def _problems(spec: ToolSpec, value: dict[str, Any]) -> list[str]:
    validator = _validator(spec.schema)
    try:
        if validator.is_valid(value):
            return []
        return [_line(error) for error in validator.iter_errors(value)]
    except (RecursionError, ValueError, OverflowError) as error:
        return [f"they cannot be checked: {error}"]


@lru_cache(maxsize=4096)
def _validator(schema: bytes) -> Any:
    return jsonschema_rs.validator_for(json.loads(schema))


def _line(error: Any) -> str:
    path = ".".join(str(part) for part in error.instance_path)
    message = shorten(str(error.message), _QUOTED)
    return f"{path}: {message}" if path else message


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    names = {list: "an array", str: "a string", bool: "a boolean"}
    return names.get(type(value), "a number")


def _quoted(text: str) -> str:
    return repr(shorten(jsontext.readable(text), 80))
