"""Declaring a tool: options, schema, description, and what is refused."""

from __future__ import annotations

import datetime
import functools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import pytest
from interlock.actors.tools import Tool, ToolContext, tool


class Address(pydantic.BaseModel):
    city: str
    zip: str = "0"


def schema(declared: Tool[..., Any]) -> dict[str, Any]:
    return json.loads(declared.spec.schema)


def test_a_tool_is_still_its_function() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    assert add.__name__ == "add"
    assert add.fn(1, b=5) == 6


def test_schema_comes_from_annotations_and_leaves_the_context_out() -> None:
    @tool
    def send(
        to: str,
        ctx: ToolContext,
        kind: Literal["mail", "sms"],
        times: Annotated[int, pydantic.Field(ge=1)] = 1,
        address: Address | None = None,
    ) -> None:
        """Send it."""

    made = schema(send)
    assert made["additionalProperties"] is False
    assert made["required"] == ["to", "kind"]
    assert list(made["properties"]) == ["to", "kind", "times", "address"]
    assert made["properties"]["to"] == {"type": "string"}
    assert made["properties"]["kind"]["enum"] == ["mail", "sms"]
    assert made["properties"]["times"] == {"type": "integer", "minimum": 1, "default": 1}
    assert made["$defs"]["Address"]["properties"]["city"] == {"type": "string"}
    assert send.signature.context == "ctx"


def test_an_optional_context_is_a_context() -> None:
    @tool
    def look(path: str, ctx: ToolContext | None = None) -> None: ...

    assert look.signature.context == "ctx"
    assert list(schema(look)["properties"]) == ["path"]


def test_two_contexts_are_refused() -> None:
    @tool
    def look(a: ToolContext, b: ToolContext) -> None: ...

    with pytest.raises(TypeError, match="one ToolContext, not a and b"):
        _ = look.spec


def test_a_tool_without_arguments_has_an_empty_object() -> None:
    @tool
    def now() -> str:
        return "now"

    assert schema(now) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_parameters_may_have_names_that_pydantic_uses() -> None:
    @tool
    def odd(schema: str, copy: int, model_config: str, _x: int, json: str = "") -> None: ...

    made = json.loads(odd.spec.schema)
    assert list(made["properties"]) == ["schema", "copy", "model_config", "_x", "json"]
    given = b'{"schema":"a","copy":1,"model_config":"b","_x":2}'
    assert odd.coerce(given) == {"schema": "a", "copy": 1, "model_config": "b", "_x": 2}


GOOGLE = """Move it.

Slowly.

Args:
    what: the thing,
        or two
    where (str): place

Returns:
    nothing
"""

NUMPY = """Move it.

Slowly.

Parameters
----------
what : str
    the thing,
    or two
where
    place

Returns
-------
None
"""

SPHINX = """Move it.

Slowly.

:param what: the thing,
    or two
:param str where: place
:returns: nothing
"""


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_docstrings_describe_tool_and_parameters(docstring: str) -> None:
    def move(what: str, where: str) -> None: ...

    move.__doc__ = docstring
    declared = tool(move)
    assert declared.spec.description == "Move it.\n\nSlowly."
    properties = schema(declared)["properties"]
    assert properties["what"]["description"] == "the thing, or two"
    assert properties["where"]["description"] == "place"


def test_a_default_that_json_cannot_show_stays_the_functions_own() -> None:
    marker = object()

    @tool
    def wait(until: Any = marker, after: datetime.date = datetime.date(2026, 1, 2)) -> None: ...

    made = schema(wait)
    assert "default" not in made["properties"]["until"]
    assert made["properties"]["after"]["default"] == "2026-01-02"
    assert wait.coerce(b"{}") == {}


def test_arguments_are_coerced_to_python_types() -> None:
    @tool
    def visit(path: Path, day: datetime.date, home: Address, tags: set[str] = set()) -> None: ...  # noqa: B006

    given = b'{"path":"/a/b","day":"2026-03-04","home":{"city":"X"},"tags":["t","t"]}'
    assert visit.coerce(given) == {
        "path": Path("/a/b"),
        "day": datetime.date(2026, 3, 4),
        "home": Address(city="X"),
        "tags": {"t"},
    }


def test_types_local_to_the_declaring_function_are_found() -> None:
    class Inner(pydantic.BaseModel):
        n: int

    @tool
    def use(inner: Inner) -> None: ...

    assert use.coerce(b'{"inner":{"n":3}}')["inner"] == Inner(n=3)


def test_an_undefined_annotation_is_named() -> None:
    @tool
    def use(x: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(TypeError, match="'Nowhere', which is not defined"):
        _ = use.spec


def test_a_type_that_json_cannot_give_is_refused_with_its_parameter() -> None:
    class Socket: ...

    @tool
    def use(fine: int, sock: Socket) -> None: ...

    with pytest.raises(TypeError, match="tool use: the type of sock"):
        _ = use.spec


def test_functions_that_json_cannot_call_are_refused() -> None:
    def star(*args: int) -> None: ...
    def stars(**options: int) -> None: ...
    def positional(x: int, /) -> None: ...
    def generator() -> Iterator[int]:
        yield 1

    async def stream() -> AsyncIterator[int]:
        yield 1

    for fn, words in [
        (star, r"\*args has no place"),
        (stars, r"\*\*options has no place"),
        (positional, "only be given by position"),
        (generator, "does not yield"),
        (stream, "does not yield"),
        (3, "not a function|no name"),
    ]:
        with pytest.raises(TypeError, match=words):
            tool(fn)  # type: ignore[call-overload]


def test_a_method_is_declared_bound() -> None:
    class Bank:
        def post(self, cents: int) -> int:
            return cents

    with pytest.raises(TypeError, match=r"tool\(object.post\)"):
        tool(Bank.post)
    assert list(schema(tool(Bank().post))["properties"]) == ["cents"]


def test_partials_and_callable_objects_take_a_name() -> None:
    def power(base: int, exponent: int) -> int:
        return base**exponent

    class Adder:
        async def __call__(self, a: int) -> int:
            return a

    square = tool(functools.partial(power, exponent=2), name="square")
    assert square(3) == 9
    assert schema(square)["required"] == ["base"]
    assert tool(Adder(), name="adder").is_async
    with pytest.raises(TypeError, match="no name that a model could call"):
        tool(functools.partial(power, 2))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"effect": "delete"},
            ValueError,
            "effect is 'delete'; it is one of write, read, idempotent",
        ),
        ({"place": "cloud"}, ValueError, "place is 'cloud'"),
        ({"approval": "always"}, ValueError, "approval is 'always'"),
        ({"timeout": 0}, ValueError, "positive number of seconds"),
        ({"timeout": float("inf")}, ValueError, "positive number of seconds"),
        ({"timeout": True}, TypeError, "number of seconds"),
        ({"timeout": "5"}, TypeError, "number of seconds"),
        ({"parallel": 1}, TypeError, "parallel is 1"),
        ({"isolate": True, "place": "host"}, ValueError, "no worker body"),
        ({"name": "a b"}, ValueError, "not a tool's name"),
        ({"name": "x" * 65}, ValueError, "not a tool's name"),
        ({"name": ""}, ValueError, "not a tool's name"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        tool(**options)(lambda: None) if "name" in options else tool(**options)(schema)


def test_the_options_are_in_the_spec() -> None:
    @tool(name="pay", effect="idempotent", parallel=True, timeout=5, approval="ask", isolate=True)
    async def _pay() -> None: ...

    spec = _pay.spec
    assert (spec.name, spec.effect, spec.place, spec.timeout) == (
        "pay",
        "idempotent",
        "worker",
        5.0,
    )
    assert (spec.parallel, spec.approval, spec.isolate, spec.is_async) == (True, "ask", True, True)


def test_R4_reconcile_is_declared_once_and_shows_in_the_spec() -> None:
    @tool
    def pay() -> None: ...

    assert not pay.spec.reconciles

    @pay.reconcile
    def look_up(call: object) -> None: ...

    assert pay.spec.reconciles
    assert pay.reconciler is look_up
    with pytest.raises(ValueError, match="already has a reconcile"):
        pay.reconcile(look_up)


def test_importing_tools_and_runner_loads_neither_pydantic_nor_pickle_nor_zmq() -> None:
    code = (
        "import sys, interlock.actors.tools, interlock.actors.bodies.validate;"
        "print([m for m in ('pydantic', 'cloudpickle', 'zmq') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
