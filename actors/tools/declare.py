"""``@tool``: declaring that a function may be called by a model, and what it does to the world."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from .docstring import read_docstring
from .portable import importable
from .signature import Signature, check_callable, plain_function, read_signature, resolve_hints
from .spec import (
    APPROVALS,
    DEFAULT_TIMEOUT,
    EFFECTS,
    NAME,
    PLACES,
    Approval,
    Effect,
    Place,
    ToolSpec,
)

if TYPE_CHECKING:
    import pydantic

    from .coerce import Coercer

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


class Tool(Generic[P, R]):
    """A function that a model may call. Calling it in Python calls the function, nothing else.

    Made by :func:`tool`. ``fn`` is the function, ``spec`` what the dispatcher and the model see,
    ``reconciler`` the function given to :meth:`reconcile`, or ``None``.
    """

    def __init__(
        self, fn: Callable[P, R], options: dict[str, Any], names: Mapping[str, Any]
    ) -> None:
        self.fn = fn
        self.reconciler: Callable[..., Any] | None = None
        self._options = options
        functools.update_wrapper(self, fn)
        try:
            self._hints: dict[str, Any] | None = resolve_hints(fn, names)
        except NameError:
            self._hints = None  # a type that is defined further down; read when first needed

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<tool {self.name} ({self._options['effect']}, {self._options['place']})>"

    @property
    def name(self) -> str:
        """The name by which models call it."""
        name: str = self._options["name"]
        return name

    @property
    def place(self) -> Place:
        """Where its body runs."""
        place: Place = self._options["place"]
        return place

    @functools.cached_property
    def signature(self) -> Signature:
        """The function's arguments. Raises ``TypeError`` for a type that stays undefined."""
        if self._hints is None:
            try:
                self._hints = resolve_hints(self.fn)
            except NameError as error:
                raise TypeError(
                    f"tool {self.name}: an annotation uses {error.name!r}, which is not defined at "
                    "run time; import or define it where the function's module can see it"
                ) from error
        return read_signature(self.name, self.fn, self._hints)

    @functools.cached_property
    def is_async(self) -> bool:
        """Whether the body runs on an event loop."""
        return inspect.iscoroutinefunction(plain_function(self.fn))

    @property
    def reconciler_is_async(self) -> bool:
        """Whether the reconcile function runs on an event loop."""
        fn = self.reconciler
        return fn is not None and inspect.iscoroutinefunction(plain_function(fn))

    @functools.cached_property
    def arguments(self) -> type[pydantic.BaseModel]:
        """The pydantic model of the arguments object."""
        from .schema import arguments_model  # pydantic only where a tool is declared or run

        return arguments_model(self.name, self.signature)

    @functools.cached_property
    def coerce(self) -> Coercer:
        """Reads JSON into keyword arguments for ``fn``."""
        from .coerce import Coercer

        return Coercer(self.name, self.signature, self.arguments)

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """What travels to the dispatcher. Raises ``TypeError`` for types that JSON cannot give."""
        from .schema import arguments_schema

        description, parameters = read_docstring(getattr(self.fn, "__doc__", None))
        return ToolSpec(
            description=description,
            schema=arguments_schema(self.name, self.arguments, parameters),
            reconciles=self.reconciler is not None,
            is_async=self.is_async,
            **self._options,
        )

    def reconcile(self, fn: F) -> F:
        """Declare how to settle a call with an unknown outcome by asking the outside world (R4).

        The function, sync or async, takes a :class:`CallRecord` and returns :class:`Done`,
        :class:`NotDone` or :class:`Unknown`. It runs where the tool runs, and must change nothing::

            @transfer.reconcile
            def look_up(call: CallRecord) -> Done | NotDone | Unknown: ...
        """
        if not callable(fn):
            raise TypeError(
                f"tool {self.name}: reconcile takes a function, not {type(fn).__name__}"
            )
        if self.reconciler is not None:
            raise ValueError(f"tool {self.name} already has a reconcile function")
        self.reconciler = fn
        self.__dict__.pop("spec", None)
        return fn

    def __reduce_ex__(self, protocol: Any) -> Any:
        # A tool of a module that a worker can import is looked up there, as functions are.
        if importable(self):
            return self.__dict__["__qualname__"]
        return _blank, (), self._state()

    def _state(self) -> dict[str, Any]:
        """What to send: the types as they are, since text annotations would lose their globals."""
        _ = self.signature
        kept = self.__dict__.items()
        derived = ("arguments", "coerce", "spec", "__wrapped__")
        return {name: value for name, value in kept if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__wrapped__ = self.fn


def _blank() -> Tool[..., Any]:
    return Tool.__new__(Tool)


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    fn: Callable[P, R],
    /,
    *,
    name: str | None = ...,
    effect: Effect = ...,
    place: Place = ...,
    parallel: bool = ...,
    timeout: float = ...,
    approval: Approval | None = ...,
    isolate: bool = ...,
) -> Tool[P, R]: ...
@overload
def tool(
    fn: None = None,
    /,
    *,
    name: str | None = ...,
    effect: Effect = ...,
    place: Place = ...,
    parallel: bool = ...,
    timeout: float = ...,
    approval: Approval | None = ...,
    isolate: bool = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...


def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    effect: Effect = "write",
    place: Place = "worker",
    parallel: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    approval: Approval | None = None,
    isolate: bool = False,
) -> Any:
    """Declare a tool; as ``@tool``, ``@tool(effect="read")`` or ``tool(function, name="…")``.

    The arguments' JSON Schema comes from the annotations, the description from the docstring. A
    parameter annotated :class:`ToolContext` gets the call's context and is not shown to the model.

    :param name: how models call it (letters, digits, ``_`` and ``-``, at most 64); default: the
        function's name.
    :param effect: what an unknown outcome means (R4): ``"read"`` changes nothing, ``"idempotent"``
        may be repeated with the same idempotency key, ``"write"`` must be looked up or asked about.
    :param place: ``"worker"``: the body runs in a worker process and must be able to travel there;
        ``"host"``: in the embedding process; ``"sandbox"``: the function only builds a
        :class:`Command`, which runs confined.
    :param parallel: the call may overlap with others of its step (P3).
    :param timeout: seconds that the body has from its release (P5, P8).
    :param approval: ``"ask"``: somebody must allow each call (A2).
    :param isolate: the body gets a worker process of its own, which can be ended at once.
    :raises TypeError: a function that JSON arguments cannot call, or an option of the wrong type.
    :raises ValueError: an option's value.
    """
    frame = sys._getframe(1)
    # Types that are local to the function in which the tool is declared.
    names = dict(frame.f_locals) if frame.f_locals is not frame.f_globals else {}
    del frame

    def declare(function: Callable[..., Any]) -> Tool[..., Any]:
        own_name = _checked_name(name or getattr(function, "__name__", None), function)
        options = {
            "name": own_name,
            "effect": effect,
            "place": place,
            "parallel": parallel,
            "timeout": timeout,
            "approval": approval,
            "isolate": isolate,
        }
        _check_options(options)
        if isinstance(function, Tool):
            raise TypeError(f"tool {function.name} is already a tool")
        check_callable(own_name, function)
        return Tool(function, options, names)

    return declare if fn is None else declare(fn)


def _checked_name(name: Any, fn: Any) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"{fn!r} has no name that a model could call; give one: tool(..., name='…')"
        )
    if not NAME.match(name):
        raise ValueError(
            f"{name!r} is not a tool's name: letters, digits, '_' and '-', at most 64; "
            "give another: tool(..., name='…')"
        )
    return name


def _check_options(options: dict[str, Any]) -> None:
    name = options["name"]
    for option, allowed in (("effect", EFFECTS), ("place", PLACES)):
        if options[option] not in allowed:
            raise ValueError(
                f"tool {name}: {option} is {options[option]!r}; it is one of {', '.join(allowed)}"
            )
    if options["approval"] is not None and options["approval"] not in APPROVALS:
        raise ValueError(f"tool {name}: approval is {options['approval']!r}; it is 'ask' or None")
    for option in ("parallel", "isolate"):
        if not isinstance(options[option], bool):
            raise TypeError(f"tool {name}: {option} is {options[option]!r}; it is True or False")
    timeout = options["timeout"]
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"tool {name}: timeout is {timeout!r}; it is a number of seconds")
    if not math.isfinite(timeout) or timeout <= 0:
        # P5: every call has a deadline.
        raise ValueError(f"tool {name}: timeout is {timeout!r}; it is a positive number of seconds")
    options["timeout"] = float(timeout)
    if options["isolate"] and options["place"] != "worker":
        raise ValueError(
            f"tool {name}: isolate=True gives a worker body a process of its own; "
            f"place={options['place']!r} has no worker body"
        )
