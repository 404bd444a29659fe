"""From a tool's parameters to the pydantic model that describes and coerces its arguments."""

from __future__ import annotations

import re
from typing import Any

import pydantic
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from . import jsontext
from .signature import Signature


class _Schema(GenerateJsonSchema):
    # A default that JSON cannot show is left out of the schema; the function still has it.
    ignored_warning_kinds = {"non-serializable-default", "skipped-choice"}  # noqa: RUF012 - pydantic's form


def arguments_model(tool: str, signature: Signature) -> type[pydantic.BaseModel]:
    """Build the model of the arguments object.

    Its fields are named ``a0``, ``a1``, … with the parameters' names as aliases, so that a
    parameter may have any name (``schema``, ``copy``, ``_x``).

    :raises TypeError: an annotation that pydantic cannot read from JSON, naming the parameter.
    """
    fields: dict[str, Any] = {}
    for index, parameter in enumerate(signature.parameters):
        if isinstance(parameter.default, FieldInfo):
            raise TypeError(
                f"tool {tool}: {parameter.name} has a Field as its default, which a plain call of "
                f"the function would get; write {parameter.name}: Annotated[type, Field(...)]"
            )
        default = ... if parameter.required else parameter.default
        fields[f"a{index}"] = (parameter.annotation, pydantic.Field(default, alias=parameter.name))
    # In the schema this says additionalProperties: false.
    config = pydantic.ConfigDict(extra="forbid", protected_namespaces=())
    try:
        return pydantic.create_model(f"{tool} arguments", __config__=config, **fields)
    except PydanticUserError as error:
        raise TypeError(
            f"tool {tool}: {_guilty(tool, signature)} cannot be read from JSON: "
            f"{error.message.splitlines()[0]}"
        ) from error


def _guilty(tool: str, signature: Signature) -> str:
    if len(signature.parameters) > 1:
        for parameter in signature.parameters:
            try:
                arguments_model(tool, Signature((parameter,), None))
            except TypeError:
                return f"the type of {parameter.name}"
    return (
        f"the type of {signature.parameters[0].name}" if signature.parameters else "its signature"
    )


def arguments_schema(
    tool: str, model: type[pydantic.BaseModel], descriptions: dict[str, str]
) -> bytes:
    """Return the JSON Schema of the arguments object, as JSON bytes.

    :param descriptions: what the docstring says about parameters that have no description yet.
    :raises TypeError: a type that has no JSON Schema.
    """
    try:
        schema = model.model_json_schema(schema_generator=_Schema)
    except PydanticInvalidForJsonSchema as error:
        raise TypeError(f"tool {tool}: a parameter has no JSON Schema: {error.message}") from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    for name, part in schema["properties"].items():
        if name in descriptions:
            part.setdefault("description", descriptions[name])
    for name, part in schema.get("$defs", {}).items():
        _drop_titles(part)
        if part.get("title") == name:
            del part["title"]
    _drop_titles(schema)
    return jsontext.encode(jsontext.normalise(schema))


def _drop_titles(part: dict[str, Any]) -> None:
    """Pydantic derives titles from names; they say nothing new and cost the model's context."""
    for name, field in part.get("properties", {}).items():
        if field.get("title") == re.sub(r"_+", " ", name).title().strip():
            del field["title"]
