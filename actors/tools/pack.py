"""X2: a tool as the bytes that take it from the host to its workers, and back.

Functions of modules that a worker can import travel as names. Those of a script, a REPL, a notebook
or any other module travel by value, with the globals they use; a global that cannot travel (an open
connection, a lock) refuses the tool when it is registered, not when it is called.

Only :func:`pack` and :func:`unpack` touch pickle, and only the host and its workers call them.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import io
import pickle
import sys
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from .declare import Tool
from .failure import ToolNotPortableError
from .portable import importable, module_importable

#: A tool with its globals. More is data that belongs into a file or a database.
PACK_LIMIT = 16 * 1024 * 1024

#: How deep to look through helper functions for what cannot travel.
_SEARCH_DEPTH = 8


def pack(tool: Tool[..., Any]) -> bytes:
    """Turn a ``worker`` or ``sandbox`` tool into bytes. Runs in the host.

    :raises ToolNotPortableError: (a ``TypeError``) a global, closed-over or default value cannot
        travel, or the whole is over :data:`PACK_LIMIT`; the message names it and the remedy.
    :raises ValueError: a ``host`` tool, which never leaves its process.
    """
    if tool.place == "host":
        raise ValueError(f"tool {tool.name} runs in the host and is never packed")
    _ = tool.spec  # a tool that has no schema is refused here, by its own message
    with _by_value(tool):
        try:
            data = _dumps(tool)
        except Exception as error:
            raise _refusal(tool, error) from error
        if len(data) > PACK_LIMIT:
            raise _too_large(tool, len(data))
    return data


def unpack(data: bytes) -> Tool[..., Any]:
    """Return the tool that :func:`pack` packed. Runs in a worker, on bytes from its host only.

    :raises ToolNotPortableError: the worker lacks something that the tool refers to by name.
    """
    try:
        tool = pickle.loads(data)  # noqa: S301 - X2: these bytes come from the host that started us
    except Exception as error:
        raise ToolNotPortableError(
            "?",
            (),
            f"a tool could not be loaded in the worker: {type(error).__name__}: {error}. "
            "What it imports must be importable from the host's sys.path.",
        ) from error
    if not isinstance(tool, Tool):
        raise ToolNotPortableError(
            "?", (), f"the packed object is {type(tool).__name__}, not a tool"
        )
    return tool


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Keeps the identity of the marks by which ``dataclasses`` tells that a field has no default.

    Pydantic reads a dataclass's fields anew in the worker and would take a copied mark for a value.
    """

    dispatch_table = cloudpickle.Pickler.dispatch_table.new_child(
        {
            type(dataclasses.MISSING): lambda _: "MISSING",
            type(dataclasses.KW_ONLY): lambda _: "KW_ONLY",
        }
    )


def _dumps(value: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


@contextmanager
def _by_value(tool: Tool[..., Any]) -> Iterator[None]:
    """Let the functions of modules that no import finds travel by value."""
    registered = []
    for module in _own_modules(tool):
        name = module.__name__
        if name == "__main__" or name in cloudpickle.list_registry_pickle_by_value():
            continue  # cloudpickle does that one by itself
        if not module_importable(name, getattr(module, "__file__", None)):
            cloudpickle.register_pickle_by_value(module)
            registered.append(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _own_modules(tool: Tool[..., Any]) -> list[types.ModuleType]:
    """The modules of a tool's functions, of its arguments' types and of what the functions use."""
    found: dict[str, types.ModuleType] = {}
    things = [part for p in tool.signature.parameters for part in _type_parts(p.annotation)]
    for fn in _functions(tool):
        things += [fn, *(value for _, value in _reach(fn))]
    for thing in things:
        module = sys.modules.get(getattr(thing, "__module__", None) or "")
        if module is not None:
            found[module.__name__] = module
    return list(found.values())


def _type_parts(annotation: Any) -> list[Any]:
    """A type and the types inside it: ``list[Point]`` has ``list`` and ``Point``."""
    return [annotation, *(p for arg in typing.get_args(annotation) for p in _type_parts(arg))]


def _functions(tool: Tool[..., Any]) -> list[Callable[..., Any]]:
    return [fn for fn in (tool.fn, tool.reconciler) if fn is not None]


def _refusal(tool: Tool[..., Any], error: Exception) -> ToolNotPortableError:
    for fn in _functions(tool):
        path, value = _offender(fn, frozenset(), 0)
        if path:
            return ToolNotPortableError(
                tool.name,
                path,
                f"tool {tool.name} cannot travel to a worker: it uses {_named(path)}, "
                f"{_described(value)}. Open it inside the body, or declare the tool with "
                "place='host'.",
            )
    return ToolNotPortableError(
        tool.name,
        (),
        f"tool {tool.name} cannot travel to a worker: {type(error).__name__}: {error}. "
        "Make it a plain function, or declare the tool with place='host'.",
    )


def _named(path: tuple[str, ...]) -> str:
    *through, last = path
    return repr(last) if not through else f"{last!r} (through {' → '.join(through)})"


def _described(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}, which lives in this process only"


def _offender(fn: Any, seen: frozenset[int], depth: int) -> tuple[tuple[str, ...], Any]:
    """Return the chain of names to a value that does not pickle, and the value."""
    if depth > _SEARCH_DEPTH or id(fn) in seen:
        return (), None
    seen |= {id(fn)}
    for name, value in _reach(fn):
        if _pickles(value):
            continue
        inner = value.fn if isinstance(value, Tool) else value
        if inspect.isfunction(inner) and not importable(inner):
            path, found = _offender(inner, seen, depth + 1)
            if path:
                return (name, *path), found
        elif not inspect.isroutine(inner):
            return (name,), value
    return (), None


def _pickles(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:
        return False
    return True


def _reach(fn: Any) -> list[tuple[str, Any]]:
    """What a function takes along when it travels by value: globals, closure, defaults, self."""
    if isinstance(fn, functools.partial):
        bound = [(f"argument {i} of the partial", v) for i, v in enumerate(fn.args)]
        return [*bound, *fn.keywords.items(), *_reach(fn.func)]
    if inspect.ismethod(fn):
        return [("self", fn.__self__), *_reach(fn.__func__)]
    if not inspect.isfunction(fn):
        return [("self", fn)] if not inspect.isroutine(fn) else []
    found = [(n, fn.__globals__[n]) for n in _global_names(fn.__code__) if n in fn.__globals__]
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:
            continue  # not filled yet: nothing to send
    found += [(f"default {i}", v) for i, v in enumerate(fn.__defaults__ or ())]
    found += list((fn.__kwdefaults__ or {}).items())
    return found


def _global_names(code: types.CodeType) -> list[str]:
    names = list(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _global_names(constant)
    return list(dict.fromkeys(names))


def _too_large(tool: Tool[..., Any], size: int) -> ToolNotPortableError:
    sizes = []
    for fn in _functions(tool):
        for name, value in _reach(fn):
            if _pickles(value):
                sizes.append((len(_dumps(value)), name))
    weight, name = max(sizes, default=(size, tool.name))
    return ToolNotPortableError(
        tool.name,
        (name,),
        f"tool {tool.name} takes {size} bytes to send to a worker, at most {PACK_LIMIT} fit; the "
        f"most of it is {name!r} ({weight} bytes). Load it inside the body, or declare the "
        "tool with place='host'.",
    )
