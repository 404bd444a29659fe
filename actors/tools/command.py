"""What the builder of a ``sandbox`` tool returns: one command to run confined."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

#: What a command may be limited in.
LIMITS = (
    *("cpu_seconds", "memory_bytes", "processes", "file_bytes", "open_files"),
    *("disk_bytes", "disk_files"),
)
MODES = ("read-only", "workspace-write", "danger-full-access")

if TYPE_CHECKING:
    Text = str | bytes | None
else:
    Text = bytes | None  # text is encoded at once; the wire knows bytes only


class Command(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command line for the sandbox. Nothing in it is passed through a shell.

    :param argv: the program and its arguments; paths are turned into strings.
    :param cwd: where it runs; ``None`` means the session's working directory.
    :param env: variables added to the few that a confined command gets (X5).
    :param stdin: what it reads; text is encoded as UTF-8, ``None`` means no input.
    :param timeout: seconds, if shorter than the tool's own.
    :param mode: a wider mode than the session's, which asks for an approval of its own (S4).
    :param justification: why the wider mode is needed; shown to whoever decides.
    :param network: ask for the network in a confined mode (S9).
    :param writable: paths that it may write besides those of its mode; a path in the workspace
        that is protected loses its protection.
    :param hidden: paths that it can neither read nor write.
    :param limits: brakes by name (``interlock.sandbox.Limits``): ``cpu_seconds``, ``memory_bytes``,
        ``processes``, ``file_bytes``, ``open_files``, ``disk_bytes``, ``disk_files``; those that
        are left out have the launcher's defaults, 0 takes a default away.
    :param output_limit: bytes of output to keep; the rest is cut and counted.
    :raises TypeError: a field has the wrong type; ``ValueError``: it holds what no command can
    have.
    """

    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: Text = None
    timeout: float | None = None
    mode: str | None = None
    justification: str | None = None
    network: bool = False
    writable: list[str] = []
    hidden: list[str] = []
    limits: dict[str, float] = {}
    output_limit: int | None = None

    def __post_init__(self) -> None:
        fix = msgspec.structs.force_setattr
        fix(self, "argv", _strings("argv", self.argv))
        if not self.argv or not self.argv[0]:
            raise ValueError(
                "a command needs a program: argv is empty or begins with an empty string"
            )
        fix(self, "writable", _strings("writable", self.writable))
        fix(self, "hidden", _strings("hidden", self.hidden))
        _check_limits(self.limits)
        if self.cwd is not None:
            fix(self, "cwd", _string("cwd", self.cwd))
        fix(self, "env", _environment(self.env))
        if self.stdin is not None:
            fix(self, "stdin", _input(self.stdin))
        if self.timeout is not None:
            fix(self, "timeout", _positive("timeout", self.timeout))
        if self.mode is not None and self.mode not in MODES:
            raise ValueError(f"mode is {self.mode!r}; it is one of {', '.join(MODES)}")
        if self.justification is not None:
            fix(self, "justification", _string("justification", self.justification))
        if not isinstance(self.network, bool):
            raise TypeError(f"network is {type(self.network).__name__}, not a bool")
        limit = self.output_limit
        if limit is not None and (
            not isinstance(limit, int) or isinstance(limit, bool) or limit < 1
        ):
            raise ValueError(f"output_limit is {limit!r}; it is a number of bytes, at least 1")


def _check_limits(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(f"limits is {type(value).__name__}, not a dict of numbers")
    for name, number in value.items():
        if name not in LIMITS:
            raise ValueError(f"limits has {name!r}; it takes {', '.join(LIMITS)}")
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise TypeError(f"limits[{name!r}] is {type(number).__name__}, not a number")
        if not math.isfinite(number) or number < 0:
            raise ValueError(f"limits[{name!r}] is {number!r}; it is a number, at least 0")


def _string(field: str, value: Any) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError(f"{field} holds {type(value).__name__}, not a string")
    if "\0" in value:
        raise ValueError(f"{field} holds a NUL character, which no command line can carry")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{field} is not valid Unicode at character {error.start}") from None
    return value


def _strings(field: str, value: Any) -> list[str]:
    if isinstance(value, (str, bytes)) or not isinstance(value, (list, tuple)):
        raise TypeError(f"{field} is {type(value).__name__}, not a list of strings")
    return [_string(f"{field}[{i}]", item) for i, item in enumerate(value)]


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise TypeError(f"env is {type(value).__name__}, not a dict of strings")
    result = {}
    for name, item in value.items():
        if not isinstance(name, str) or not name or "=" in name:
            raise ValueError(
                f"env has a variable named {name!r}; a name is not empty and has no '='"
            )
        result[_string("env", name)] = _string(f"env[{name!r}]", item)
    return result


def _input(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return value
    raise TypeError(f"stdin is {type(value).__name__}, not text or bytes")


def _positive(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{field} is {type(value).__name__}, not a number of seconds")
    if not math.isfinite(value) or value <= 0:
        raise ValueError(f"{field} is {value!r}; it is a positive number of seconds")
    return float(value)
