"""What a body may be run for, and how what it returned becomes an outcome.

A tool's function is run as a *body*; that of a ``sandbox`` tool as a *builder*, which returns the
command to show and to launch; a tool's ``reconcile`` function is run to ask what became of a call.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec
from interlock.actors.tools import jsontext
from interlock.actors.tools.command import Command
from interlock.actors.tools.context import ToolContext
from interlock.actors.tools.declare import Tool
from interlock.actors.tools.outcome import Outcome, returned
from interlock.actors.tools.result import CallRecord, Done, NotDone, Unknown
from interlock.backends.codes import Code

_read_command = msgspec.json.Decoder(Command)


class Purpose(StrEnum):
    """What a job runs a tool for."""

    BODY = "body"
    BUILD = "build"
    RECONCILE = "reconcile"


def prepare(
    purpose: Purpose, tool: Tool[..., Any], arguments: bytes, context: ToolContext
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """Return the function to run and its keyword arguments.

    :raises InvalidArgumentsError: the JSON does not fit the function's types.
    """
    if purpose is Purpose.RECONCILE:
        if tool.reconciler is None:
            raise TypeError(f"tool {tool.name} has no reconcile function")
        record = CallRecord(**jsontext.decode(arguments))
        return lambda: tool.reconciler(record), {}
    keywords = tool.coerce(arguments)
    if tool.signature.context is not None:
        keywords[tool.signature.context] = context
    return tool.fn, keywords


def conclude(purpose: Purpose, tool: Tool[..., Any], value: Any) -> Outcome:
    """Turn what the function returned into an outcome."""
    if purpose is Purpose.BUILD:
        return _built(tool, value)
    if purpose is Purpose.RECONCILE:
        return _reconciled(tool, value)
    return returned(value)


def _built(tool: Tool[..., Any], value: Any) -> Outcome:
    if isinstance(value, Command):
        return Outcome(ok=True, value=msgspec.json.encode(value))
    return Outcome.failure(
        Code.TOOL_FAILED,
        f"the sandbox tool {tool.name} returned {type(value).__name__}, not a Command; "
        "it only says what to run, nothing was run",
    )


def read_command(outcome: Outcome) -> Command:
    """Return the command that a builder's successful outcome holds."""
    return _read_command.decode(outcome.value)


def encode_record(record: CallRecord) -> bytes:
    """Return the arguments of a job that reconciles ``record``."""
    return jsontext.encode({name: getattr(record, name) for name in CallRecord.__slots__})


def _reconciled(tool: Tool[..., Any], value: Any) -> Outcome:
    if isinstance(value, Done):
        outcome = returned(value.value)
        if not outcome.ok:
            return outcome
        return msgspec.structs.replace(outcome, meta=jsontext.encode({"reconciled": "done"}))
    if isinstance(value, NotDone | Unknown):
        word = "not-done" if isinstance(value, NotDone) else "unknown"
        reason = jsontext.readable(value.reason)
        return Outcome.success(reason, meta={"reconciled": word})
    return Outcome.failure(
        Code.TOOL_FAILED,
        f"reconcile of tool {tool.name} returned {type(value).__name__}; "
        "it returns Done, NotDone or Unknown",
    )


def read_reconciliation(outcome: Outcome) -> Done | NotDone | Unknown:
    """Return what a reconcile job found out; a failing one found out nothing."""
    if not outcome.ok:
        return Unknown(outcome.message)
    word = outcome.meta_object().get("reconciled")
    if word == "done":
        return Done(outcome.value_object())
    reason = str(outcome.value_object())
    return NotDone(reason) if word == "not-done" else Unknown(reason)
