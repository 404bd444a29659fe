"""What the end of a body means for its call: the result that is recorded, in words.

Never guesses (I3): where a body may have acted and no result is known, the text says so and says
what to do next, by the tool's declared effect (R4).
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from interlock.backends.codes import Code
from interlock.backends.event import Draft, draft

from ..messages import CommandEnded
from ..tools.outcome import Outcome
from .call import CallRun


@dataclass(frozen=True)
class End:
    """How a body ended: exactly one of a result, a command's end, a death, or not at all."""

    outcome: Outcome | None = None
    cancelled: bool = False
    command: CommandEnded | None = None
    #: What the process that ran it died of.
    lost: str | None = None
    #: It ignored the request to stop and cannot be ended.
    left_running: bool = False


def meaning(call: CallRun, asked: str | None, timeout: float, end: End) -> Outcome:
    """Return the outcome to record for ``call``.

    :param asked: why the body was asked to stop ("timeout", "cancelled"), if it was.
    :param timeout: the seconds it was given.
    """
    if end.command is not None:
        return _command(call, asked, timeout, end.command)
    place = call.spec.place if call.spec else "worker"
    outcome = _body(call, asked, timeout, end)
    return with_meta(outcome, {"place": place, "confined": False})


def _body(call: CallRun, asked: str | None, timeout: float, end: End) -> Outcome:
    if asked == "timeout":
        return _timed_out(call, timeout, end)
    if end.lost is not None or end.left_running:
        return _unknown(call, asked, end)
    outcome = end.outcome
    assert outcome is not None  # noqa: S101 - the only case left
    if asked == "cancelled" and (outcome.ok or end.cancelled):
        return _aborted(call, outcome, interrupted=end.cancelled)
    if end.cancelled and not outcome.ok:
        return outcome
    return outcome


def _timed_out(call: CallRun, timeout: float, end: End) -> Outcome:
    if end.outcome is not None and not end.cancelled:
        how = "it ended by itself shortly after it was asked to stop"
        known = _said(end.outcome)
        return Outcome.failure(
            Code.TOOL_TIMEOUT,
            f"The call did not end within {timeout:g} s; {how}: {known}",
            meta={"timeout": timeout, "ended": "late", "late_value": end.outcome.value_object()},
        )
    how = "it was asked to stop and then ended"
    if end.left_running:
        how = "it ignored the request to stop and may still be running"
    return Outcome.failure(
        Code.TOOL_TIMEOUT,
        f"The call did not end within {timeout:g} s; {how}. {advice(call)}",
        meta={"timeout": timeout, "ended": "left-running" if end.left_running else "stopped"},
    )


def _unknown(call: CallRun, asked: str | None, end: End) -> Outcome:
    """P6: the process died under it, or it was left behind when the runtime closed."""
    how = end.lost or "it ignored the request to stop and was left behind"
    if asked == "cancelled" and _effect(call) == "read":
        return Outcome.failure(Code.ABORTED, f"The call was cancelled and ended ({how}).")
    return Outcome.failure(
        Code.TOOL_OUTCOME_UNKNOWN,
        f"The call was started, but how it ended is not known: {how}. {advice(call)}",
        meta={"how": how},
    )


def _aborted(call: CallRun, outcome: Outcome, *, interrupted: bool) -> Outcome:
    """P4: a cancellation replaces a success, and says what is known of it."""
    if outcome.ok:
        return Outcome.failure(
            Code.ABORTED,
            "The call was cancelled while it ran, but it had ended with a result all the same: "
            f"{_said(outcome)} Its effects stand.",
            meta={"completed": True},
        )
    rest = "" if _effect(call) == "read" else f" {advice(call)}"
    return Outcome.failure(
        Code.ABORTED,
        f"The call was cancelled while it ran and stopped before its end.{rest}",
        meta={"completed": False},
    )


def _said(outcome: Outcome) -> str:
    text = outcome.text() if outcome.ok else outcome.message
    return text if len(text) <= 2000 else text[:2000] + " …"


def _effect(call: CallRun) -> str:
    return call.spec.effect if call.spec else "write"


def advice(call: CallRun) -> str:
    """R4: what to do about an unknown outcome."""
    effect = _effect(call)
    if effect == "read":
        return "It only reads, so it can be called again."
    if effect == "idempotent":
        return (
            "Whether it had its effect is unknown. It is declared idempotent, so it can be called "
            "again with the same arguments."
        )
    return (
        "Whether it had its effect is unknown. Do not repeat it blindly: look up the outside state "
        "first, or ask the user."
    )


def _command(call: CallRun, asked: str | None, timeout: float, ended: CommandEnded) -> Outcome:
    """S5: what the status channel said, not what the output looks like."""
    output = {
        "exit_code": ended.exit_code,
        "stdout": ended.stdout,
        "stderr": ended.stderr,
    }
    meta: dict[str, object] = {
        "place": "sandbox",
        "confined": ended.backend not in ("none", ""),
        "sandbox": {
            "backend": ended.backend,
            "enforcement": ended.enforcement,
            "gaps": ended.gaps,
            "mode": call.mode,
            "widened_from": call.widened_from,
        },
        "status": ended.status,
        "duration": round(ended.duration, 3),
    }
    if ended.signal is not None:
        meta["signal"] = ended.signal
    if ended.cut_bytes:
        meta["cut_bytes"] = ended.cut_bytes
    if ended.risks:
        meta["risks"] = ended.risks
    if ended.evidence:
        meta["evidence"] = ended.evidence
    if ended.refused:
        meta["refused"] = ended.refused
    if ended.hint:
        meta["hint"] = ended.hint
    if ended.status == "exited" and ended.exit_code == 0 and asked is None:
        return Outcome.success(output, content=[_text(_shown(ended))], meta=meta)
    code, words = _command_error(call, asked, timeout, ended)
    shown = _shown(ended)
    message = f"{words}\n{shown}" if shown else words
    return Outcome.failure(code, message, meta=meta | {"output": output})


def risks(call: CallRun, found: list[str]) -> Draft:
    """The event that tells of what a command left in its workspace that could run later."""
    data = {"kind": "workspace-risk", "callId": call.shown_id, "name": call.name, "risks": found}
    text = f"{call.name} left {len(found)} thing{'s' * (len(found) != 1)} that may run or lead out"
    return draft("interlock/notice", data | {"text": text}, ignorable=True)


def _command_error(
    call: CallRun, asked: str | None, timeout: float, ended: CommandEnded
) -> tuple[Code, str]:
    match ended.status:
        case "timeout":
            return Code.TOOL_TIMEOUT, (
                f"The command did not end within {timeout:g} s and was ended with all it had "
                f"started. {advice(call)}"
            )
        case "denied":
            return Code.SANDBOX_DENIED, (
                f"The command failed with exit status {ended.exit_code}, and the sandbox "
                f"({ended.backend}, {call.mode}) refused {ended.evidence or ended.message}."
            )
        case "exceeded":
            return Code.TOOL_FAILED, f"{ended.message}. {advice(call)}"
        case "lost":  # F5
            return Code.TOOL_OUTCOME_UNKNOWN, f"{ended.message}. {advice(call)}"
        case "sandbox-failed":
            return Code.SANDBOX_UNAVAILABLE, f"The command did not run: {ended.message}"
        case "not-found" | "not-executable":
            return Code.TOOL_FAILED, f"The command did not run: {ended.message}"
        case _ if asked == "cancelled" and (ended.status == "cancelled" or ended.exit_code == 0):
            return Code.ABORTED, f"The command was cancelled and ended. {advice(call)}"
        case "signalled":
            return Code.TOOL_FAILED, f"The command was ended by signal {ended.signal}."
        case "cancelled":
            return Code.ABORTED, f"The command was ended. {advice(call)}"
        case _:
            return Code.TOOL_FAILED, f"The command failed with exit status {ended.exit_code}."


def _shown(ended: CommandEnded) -> str:
    parts = [ended.stdout.rstrip("\n")]
    if ended.stderr.strip():
        parts.append("[stderr]\n" + ended.stderr.rstrip("\n"))
    return "\n".join(part for part in parts if part)


def _text(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def dispatcher_lost(call: CallRun) -> Outcome:
    """F3, R6: what is known of a call whose dispatcher has ended."""
    meta: dict[str, object] = {"how": "the tool dispatcher has ended"}
    if call.never_released:
        return Outcome.failure(
            Code.TOOL_NOT_STARTED,
            "The call was not started: the dispatcher that led it has ended before its approval "
            "was granted. Nothing of it ran; it can be called again.",
            meta=meta,
        )
    return Outcome.failure(
        Code.TOOL_OUTCOME_UNKNOWN,
        "The call was recorded, but the dispatcher that led it has ended, and what of it ran was "
        f"ended too. {advice(call)}",
        meta=meta,
    )


def with_meta(outcome: Outcome, extra: dict[str, object]) -> Outcome:
    """Return ``outcome`` with ``extra`` in its meta data; what it had stays."""
    if not outcome.meta:
        return msgspec.structs.replace(outcome, meta=msgspec.json.encode(extra))
    return msgspec.structs.replace(
        outcome, meta=Outcome.success(extra | outcome.meta_object()).value
    )


def with_note(outcome: Outcome, note: str) -> Outcome:
    """Return ``outcome`` with what a post hook adds for the model."""
    if not outcome.ok:
        return msgspec.structs.replace(outcome, message=f"{outcome.message}\n{note}")
    blocks = [*outcome.blocks(), _text(note)]
    return msgspec.structs.replace(outcome, content=Outcome.success(blocks).value)
