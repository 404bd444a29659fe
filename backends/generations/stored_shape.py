"""What the first harness asked of messages and requests when it loaded a log of its own (v0).

Later generations leave this to the audit at the edge to v3, which says more; what fails here is
damage, and what fails there is not carried over.
"""

from __future__ import annotations

from typing import Any

from ..schema import SchemaError

_DEFAULTS = frozenset({"reasoningEffort", "maxTokens"})


def check_shape(kind: str, data: dict[str, Any]) -> None:
    """Check a payload whose message or header object is known to be there.

    Raises ``SchemaError`` with the broken rule.
    """
    if kind == "assistant/message" and not _names_a_model(data["message"]["source"]):
        raise SchemaError("the assistant message's source names no provider and model")
    if kind == "tool/result" and type(data["message"]["content"][0].get("content")) is not list:
        raise SchemaError("a tool-result block's content is no list")
    if kind == "request/header":
        _check_request(data["header"])


def _check_request(header: dict[str, Any]) -> None:
    config = header.get("config")
    if not isinstance(config, dict) or not _names_a_model(config):
        raise SchemaError("request/header names no provider and model")
    effort = config.get("reasoningEffort", "-")
    if not isinstance(effort, str) or not effort:
        raise SchemaError("request/header has a malformed reasoningEffort")
    defaults = header.get("adapterDefaults", {})
    if (
        not isinstance(defaults, dict)
        or not defaults.keys() <= _DEFAULTS
        or any(marked is not True or name not in config for name, marked in defaults.items())
    ):
        raise SchemaError("request/header has malformed adapterDefaults")


def _names_a_model(value: dict[str, Any]) -> bool:
    names = (value.get("provider"), value.get("model"))
    return all(type(name) is str and name for name in names)
