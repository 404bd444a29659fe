"""``interlock approvals …``: an answerer in a terminal for running runtimes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json

if TYPE_CHECKING:
    from ..answering.connection import Broker
    from ..messages import ApprovalAsked
    from ..runtime_dir import RuntimeInfo

app = typer.Typer(
    name="approvals",
    help="See and decide what running agents ask for.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Id = Annotated[
    str, typer.Argument(metavar="ID", help="A request's id or a unique beginning of it.")
]
NoteText = Annotated[str, typer.Option("--note", help="A word for the log and the model.")]
ToolPatterns = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="PATTERN", help="Only this tool's requests (* and ?); repeat."),
]
SessionPatterns = Annotated[
    list[str] | None,
    typer.Option("--session", metavar="PATTERN", help="Only this session's requests; repeat."),
]

NONE_RUNS = (
    "no runtime of this user is running (inside a sandbox none can be seen); nothing waits for a "
    "decision"
)


@app.command("list")
def list_approvals(as_json: Json = False) -> int:
    """List the requests that wait for a decision, of every runtime of this user.

    The arguments of a call are read from its session's log.
    """
    from .answerer import Brokers
    from .output import console, emit, explain

    with Brokers() as brokers:
        waiting, silent = brokers.open_requests()
        entries = [_entry(broker, asked) for broker, asked in waiting]
        runtimes = [_runtime(b.info, b not in silent) for b in brokers.all.values()]
        runtimes += [_runtime(info, False) for info in brokers.unreachable]
    for info in brokers.unreachable:
        explain(
            f"nobody listens at {info.broker}, the broker of the runtime in process {info.pid}: it "
            "is ending, or its broker was restarted elsewhere"
        )
    for broker in silent:
        explain(f"the runtime in process {broker.info.pid} does not answer")
    if as_json:
        emit({"runtimes": runtimes, "approvals": entries})
    elif not runtimes:
        explain(NONE_RUNS)
    elif not entries:
        console().print("Nothing waits for a decision.")
    else:
        _print_list(entries)
    return 1 if silent else 0


@app.command()
def allow(request: Id, note: NoteText = "", as_json: Json = False) -> int:
    """Allow one call, once.

    \b
    Exit status: 0 done, 1 not settled by this (unknown, or settled already), 2 ambiguous.
    \b
    Example:
      interlock approvals allow 3f2a --note 'checked with finance'
    """
    return _answer(request, "allow", note, as_json)


@app.command()
def reject(request: Id, note: NoteText = "", as_json: Json = False) -> int:
    """Reject one call. The note is what the model is told.

    \b
    Exit status: 0 done, 1 not settled by this (unknown, or settled already), 2 ambiguous.
    """
    return _answer(request, "reject", note, as_json)


@app.command()
def watch(tool: ToolPatterns = None, session: SessionPatterns = None) -> int:
    """Show requests as they come, and decide each with one key.

    \b
    Keys: a allow, r reject, s skip (it stays open for others), q quit.
    \b
    Example:
      interlock approvals watch --tool 'deploy*' --tool rollback
    """
    from .output import CommandFailed

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise CommandFailed(
            "`approvals watch` needs a terminal; use `approvals list`, `allow` and `reject`", 2
        )
    from .watch import Watch

    return Watch(session or (), tool or ()).run()


def _answer(request: str, answer: str, note: str, as_json: bool) -> int:
    from ..answering.connection import user
    from .answerer import Brokers
    from .output import CommandFailed, emit

    with Brokers() as brokers:
        if not brokers.all:
            raise CommandFailed(NONE_RUNS)
        waiting, silent = brokers.open_requests()
        broker, asked = _one(request, waiting, silent)
        taken = broker.answer(asked, answer, note)
    if taken is None:
        raise CommandFailed(
            f"the runtime in process {broker.info.pid} did not confirm the answer to "
            f"{asked.request}; `interlock approvals list` says whether it is still open"
        )
    if as_json:
        emit(
            {
                "id": asked.request,
                "answer": answer,
                "settled": taken.taken,
                "message": taken.message,
                "by": user(),
                "session": asked.session,
                "call_id": asked.call_id,
                "tool": asked.tool,
            }
        )
    elif taken.taken:
        word = "allowed once" if answer == "allow" else "rejected"
        typer.echo(f"{asked.request}: {_words(asked)} {word}")
    if not taken.taken:
        raise CommandFailed(f"{asked.request} was not settled by this: {taken.message}")
    return 0


def _one(
    request: str, waiting: list[tuple[Broker, ApprovalAsked]], silent: list[Broker]
) -> tuple[Broker, ApprovalAsked]:
    from .output import CommandFailed

    matches = [pair for pair in waiting if request and pair[1].request.startswith(request)]
    exact = [pair for pair in matches if pair[1].request == request]
    matches = exact or matches
    if len(matches) > 1:
        names = ", ".join(asked.request for _, asked in matches)
        raise CommandFailed(f"{request!r} is the beginning of several requests: {names}", 2)
    if not matches:
        deaf = f"; {len(silent)} runtimes did not answer" if silent else ""
        raise CommandFailed(
            f"no open request begins with {request!r}; it may have been settled already{deaf}"
        )
    return matches[0]


def _words(asked: ApprovalAsked) -> str:
    from .output import one_line

    return one_line(f"call {asked.call_id} of {asked.tool} in session {asked.session}")


def _runtime(info: RuntimeInfo, answers: bool) -> dict[str, Any]:
    return {
        "pid": info.pid,
        "root": info.root,
        "started_at": info.started_ms,
        "answers": answers,
    }


def _entry(broker: Broker, asked: ApprovalAsked) -> dict[str, Any]:
    from ..answering.background import background

    known = background(broker.info.root, asked)
    age = None if known.asked_at is None else max(0.0, time.time() - known.asked_at / 1000)
    return {
        "id": asked.request,
        "session": asked.session,
        "tool": asked.tool,
        "call_id": asked.call_id,
        "nested": asked.nested,
        "message_seq": asked.message_seq,
        "reason": asked.reason,
        "arguments": known.arguments,
        "digest": asked.digest,
        "sandbox": _wider(asked),
        "age_s": None if age is None else round(age, 1),
        "remaining_s": round(asked.remaining, 1),
        "runtime_pid": broker.info.pid,
    }


def _wider(asked: ApprovalAsked) -> dict[str, str] | None:
    """S4: the wider mode that the request is for."""
    if asked.widening is None:
        return None
    wide = asked.widening
    return {"from": wide.mode_from, "to": wide.mode_to, "justification": wide.justification}


def _print_list(entries: list[dict[str, Any]]) -> None:
    from .output import clean, console, duration, one_line

    out = console()
    for entry in entries:
        age = "" if entry["age_s"] is None else f"asked {duration(entry['age_s'] * 1000)} ago, "
        left = f"{duration(entry['remaining_s'] * 1000)} left"
        out.print(f"{entry['id']}  {one_line(entry['tool'])}", style="bold")
        call = one_line(entry["call_id"] + entry["nested"])
        out.print(f"  session {one_line(entry['session'])}, call {call}")
        out.print(f"  {age}{left}")
        out.print(f"  {one_line(entry['reason'])}")
        if entry["arguments"] is not None:
            out.print(f"  {clean(entry['arguments'])}", style="cyan")
