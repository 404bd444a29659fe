"""Mutation of the commit path: each send, condition and append taken away in turn.

``python -m tests.simulation --mutate``. A mutant that no run notices survives; docs/simulation.md
explains those that do.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

#: Where a call becomes durable, is released, and its result recorded.
MODULES = (
    "interlock.actors.writer.commits",
    "interlock.actors.dispatcher.log",
    "interlock.actors.dispatcher.approvals",
    "interlock.actors.dispatcher.step",
    "interlock.actors.dispatcher.pipeline",
    "interlock.actors.dispatcher.bodies",
    "interlock.actors.dispatcher.reopening",
    "interlock.actors.dispatcher.resolving",
    "interlock.actors.release",
)


class Mutant(NamedTuple):
    """One change to one function: where, and the line that is changed."""

    owner: str
    function: str
    line: int
    what: str
    made: AbstractContextManager[Any]


def mutants() -> Iterator[Mutant]:
    """Every mutant of the commit path."""
    for name in MODULES:
        module = importlib.import_module(name)
        for _, owner in inspect.getmembers(module, inspect.isclass):
            if owner.__module__ == name and not getattr(owner, "_is_protocol", False):
                for attribute, value in list(vars(owner).items()):
                    if inspect.isfunction(value) and value.__module__ == name:
                        yield from _of(module, owner, attribute, value)


def _of(module: Any, owner: type, attribute: str, function: Any) -> Iterator[Mutant]:
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return
    tree = ast.parse(textwrap.dedent("".join(lines)))
    count = sum(1 for _ in _sites(tree))
    for index in range(count):
        changed = copy.deepcopy(tree)
        site = list(_sites(changed))[index]
        what = _change(site)
        if what is None:
            continue
        definition = changed.body[0]
        assert isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef)
        definition.decorator_list = []
        ast.fix_missing_locations(changed)
        names: dict[str, Any] = {}
        exec(compile(changed, module.__file__, "exec"), vars(module), names)
        made = mock.patch.object(owner, attribute, names[definition.name])
        line = first + getattr(site, "lineno", 1) - 1
        yield Mutant(f"{module.__name__}.{owner.__name__}", attribute, line, what, made)


def _sites(tree: ast.AST) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
        if said or isinstance(node, ast.If):
            assert isinstance(node, ast.stmt)
            yield node


def _change(site: ast.stmt) -> str | None:
    if isinstance(site, ast.If):
        text = ast.unparse(site.test)
        site.test = ast.Constant(False)
        return f"never: if {text}"
    assert isinstance(site, ast.Expr)
    text = ast.unparse(site.value)
    site.value = ast.Constant(None)
    return f"without: {text}"
