"""How a body ended, as the message that its process sends to the dispatcher.

Strings on the wire are UTF-8, but a body may return half of a surrogate pair. So everything that
came from a body travels as JSON *bytes* (see :mod:`.jsontext`), and messages are made readable
first.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any

import msgspec
from interlock.backends.codes import Code

from . import jsontext
from .failure import ToolFailure
from .result import ToolResult

#: An error is read by a model and a person: what does not fit here is cut in the middle.
#: Characters.
MESSAGE_LIMIT = 8 * 1024
TRACEBACK_LIMIT = 16 * 1024
#: More for programs than this belongs into the result. Bytes of JSON.
META_LIMIT = 64 * 1024


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A success with a value, or an error with a code and a message.

    ``value`` is JSON. ``content`` is a JSON array of blocks where the model is shown something else
    than the value, otherwise empty: a string is shown as it is, anything else as its JSON text.
    ``meta`` is a JSON object, or empty.
    """

    ok: bool
    code: Code | None = None
    message: str = ""
    value: bytes = b""
    content: bytes = b""
    meta: bytes = b""

    @classmethod
    def success(
        cls,
        value: Any = None,
        *,
        content: Sequence[dict[str, Any]] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> Outcome:
        """Build a success.

        :raises NotJSONError: the value, a block or the meta data is not JSON.
        """
        return cls(
            ok=True,
            value=jsontext.encode(jsontext.normalise(value)),
            content=b"" if content is None else jsontext.encode(jsontext.normalise(list(content))),
            meta=_encode_meta(meta),
        )

    @classmethod
    def failure(cls, code: Code, message: str, *, meta: dict[str, Any] | None = None) -> Outcome:
        """Build an error; the message is cut in the middle if it is very long."""
        text = shorten(jsontext.readable(message), MESSAGE_LIMIT)
        return cls(ok=False, code=code, message=text, meta=_encode_meta(meta))

    def value_object(self) -> Any:
        """Return the value as Python data; ``None`` for an error."""
        return jsontext.decode(self.value) if self.value else None

    def meta_object(self) -> dict[str, Any]:
        """Return the meta data as a dict."""
        meta: dict[str, Any] = jsontext.decode(self.meta) if self.meta else {}
        return meta

    def blocks(self) -> list[dict[str, Any]]:
        """Return what the model is shown."""
        if self.content:
            blocks: list[dict[str, Any]] = jsontext.decode(self.content)
            return blocks
        return [{"type": "text", "text": self.text() if self.ok else self.message}]

    def text(self) -> str:
        """Return the value as the model is shown it: a string as it is, the rest as JSON."""
        if self.value.startswith(b'"'):
            text: str = jsontext.decode(self.value)
            return text
        return self.value.decode()

    def event_meta(self) -> dict[str, Any]:
        """Return the ``meta`` of the ``tool/result`` event, so that the value can be read back."""
        meta = self.meta_object()
        if self.ok and "spill" not in meta:
            if self.content:
                meta["value"] = self.value_object()
            elif not self.value.startswith(b'"'):
                meta["format"] = "json"
        return meta


def returned(value: Any) -> Outcome:
    """Turn what a body returned into its outcome (P7: what is not JSON becomes a clear error).

    A :class:`ToolResult`, as :meth:`ToolContext.call` gives it, is passed on: its value or its
    error.
    """
    if isinstance(value, ToolResult):
        return _passed_on(value)
    try:
        return Outcome.success(value)
    except jsontext.NotJSONError as error:
        problem = str(error)
    except Exception as error:
        # A model's or mapping's own code ran while it was read.
        problem = f"it could not be read: {describe(error)}"
    return Outcome.failure(
        Code.TOOL_FAILED,
        f"the body ran to its end, but what it returned is not a result: {problem}. "
        "Its effects stand; return plain JSON data (dict, list, str, numbers, bool, None).",
        meta={"ran": True},
    )


def checked(outcome: Outcome) -> Outcome:
    """Return what a body's process reported, or an error where that is not readable (P7)."""
    try:
        outcome.value_object()
        outcome.meta_object()
        blocks: Any = outcome.blocks()
    except ValueError as error:
        return _unusable(str(error))
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        return _unusable("its content is no list of blocks")
    return outcome


def unrecorded(why: str) -> Outcome:
    """Return what is recorded instead of a result that the log refuses (P7)."""
    return _unusable(f"the log refuses it ({why})")


def _unusable(problem: str) -> Outcome:
    return Outcome.failure(
        Code.TOOL_FAILED,
        f"the body ran to its end, but what it reported is not a result: {problem}. "
        "Its effects stand.",
        meta={"ran": True},
    )


def raised(error: BaseException) -> Outcome:
    """Turn what a body raised into its outcome."""
    if isinstance(error, ToolFailure):
        return _reported(error)
    return Outcome.failure(
        Code.TOOL_FAILED,
        describe(error),
        meta={"traceback": shorten(_format(error), TRACEBACK_LIMIT)},
    )


def describe(error: BaseException) -> str:
    """Return ``TypeName: message`` of any exception, also of one whose ``str`` fails."""
    name = type(error).__qualname__
    try:
        text = str(error)
    except Exception:
        text = "(its message could not be read)"
    return f"{name}: {text}" if text else name


def shorten(text: str, limit: int) -> str:
    """Cut the middle out of a text over ``limit`` characters and say how much is gone."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def _passed_on(result: ToolResult) -> Outcome:
    if not result.is_error:
        return Outcome.success(
            result.value, content=result.content, meta=_without_shape(result.meta)
        )
    # The outer call failed on its own account; the inner code would claim things about this call.
    return Outcome.failure(
        Code.TOOL_FAILED,
        f"the nested call of {result.name} failed: {result.message}",
        meta={"nested": {"name": result.name, "call_id": result.call_id, "code": result.code}},
    )


def _without_shape(meta: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in meta.items() if k not in ("value", "format")}


def _reported(error: ToolFailure) -> Outcome:
    meta: dict[str, Any] = {}
    if error.code is not None:
        meta["tool_code"] = jsontext.readable(str(error.code))
    if error.meta:
        meta["tool_meta"] = _checked_meta(error.meta)
    return Outcome.failure(Code.TOOL_FAILED, error.message or "the tool failed", meta=meta)


def _checked_meta(meta: dict[str, Any]) -> Any:
    try:
        size = len(jsontext.encode(jsontext.normalise(meta)))
    except Exception as error:
        return {"left_out": f"not JSON: {describe(error)}"}
    if size > META_LIMIT:
        return {"left_out": f"{size} bytes, at most {META_LIMIT} fit"}
    return meta


def _encode_meta(meta: dict[str, Any] | None) -> bytes:
    return jsontext.encode(jsontext.normalise(meta)) if meta else b""


def _format(error: BaseException) -> str:
    """Format the traceback without the frames that led to the body: those are not the tool's."""
    frames = frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_globals.get("__name__", "").startswith("interlock.actors.bodies."):
            frames = frame.tb_next
        frame = frame.tb_next
    try:
        lines = traceback.format_exception(type(error), error, frames, limit=-30)
        return jsontext.readable("".join(lines))
    except Exception:
        return ""
