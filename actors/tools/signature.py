"""Reading a tool function: its parameters, their types, and where the context goes."""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .context import ToolContext

_NO_MORE_THAN_ONE = "a tool takes one ToolContext"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument that the model gives. ``default`` is ``inspect.Parameter.empty`` if it must."""

    name: str
    annotation: Any
    default: Any

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Signature:
    """The arguments of a tool, and the name of the parameter that takes its context."""

    parameters: tuple[Parameter, ...]
    context: str | None


def plain_function(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function behind a partial or a callable object, to look at its code."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = inspect.unwrap(fn)
    if not inspect.isroutine(fn) and not inspect.isclass(fn):
        return type(fn).__call__
    return fn


def check_callable(name: str, fn: Callable[..., Any]) -> None:
    """Refuse a function that a model's JSON object cannot call.

    :raises TypeError: saying which parameter, and how to write it instead.
    """
    if not callable(fn):
        raise TypeError(f"tool {name}: {type(fn).__name__} is not a function")
    plain = plain_function(fn)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise TypeError(
            f"tool {name}: a tool returns one value, it does not yield; use ctx.progress"
        )
    for index, parameter in enumerate(inspect.signature(fn).parameters.values()):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise TypeError(
                f"tool {name}: {star}{parameter.name} has no place in a JSON Schema; "
                f"name each argument, or take one list or dict"
            )
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(
                f"tool {name}: {parameter.name} can only be given by position, but a model gives "
                "arguments by name; remove the '/'"
            )
        if index == 0 and parameter.name in ("self", "cls") and _bare(parameter):
            raise TypeError(
                f"tool {name}: decorated in a class body there is no {parameter.name} to call it "
                f"with; declare the bound method: tool(object.{name})"
            )


def _bare(parameter: inspect.Parameter) -> bool:
    return parameter.annotation is parameter.empty


def resolve_hints(fn: Callable[..., Any], names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the types of a function's parameters with annotations given as text resolved.

    :param names: further names that the annotations may use (the locals of an enclosing function).
    :raises NameError: a name that is not defined (yet).
    """
    plain = plain_function(fn)
    hints = typing.get_type_hints(plain, localns=dict(names or {}), include_extras=True)
    hints.pop("return", None)
    return hints


def read_signature(name: str, fn: Callable[..., Any], hints: Mapping[str, Any]) -> Signature:
    """Return a function's arguments by its resolved types; the context parameter is left out.

    :raises TypeError: more than one context parameter.
    """
    context: str | None = None
    parameters = []
    for parameter in inspect.signature(fn).parameters.values():
        annotation = hints.get(parameter.name, Any)
        if _is_context(annotation):
            if context is not None:
                raise TypeError(
                    f"tool {name}: {_NO_MORE_THAN_ONE}, not {context} and {parameter.name}"
                )
            context = parameter.name
        else:
            parameters.append(Parameter(parameter.name, annotation, parameter.default))
    return Signature(tuple(parameters), context)


def _is_context(annotation: Any) -> bool:
    if annotation is ToolContext:
        return True
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return ToolContext in typing.get_args(annotation)
    return False
