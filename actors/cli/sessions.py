"""``interlock sessions …``: the commands over logs on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, Root, SessionName, Since, Until, root_of, time_of

app = typer.Typer(
    name="sessions",
    help="Look at session logs, check and complete them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command("list")
def list_sessions(
    root: Root = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, help="Show only the newest N.")
    ] = None,
    since: Since = None,
    until: Until = None,
    tool: Annotated[str | None, typer.Option(help="Only with a call of this tool.")] = None,
    code: Annotated[
        str | None, typer.Option(help="Only with a call that ended with this code (ok: a success).")
    ] = None,
    open_turn: Annotated[
        bool, typer.Option("--open", help="Only those whose last turn has no end.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the sessions under a root, newest first.

    Reads headers only, unless --tool, --code or --open ask for what is in the logs. The times are
    about the last change of a log. A damaged or foreign session is listed with its reason and hides
    no other. STATE says "open" where a running process holds the session for writing.

    \b
    Examples:
      interlock sessions list
      interlock sessions list -n 20 --root ./logs
      interlock sessions list --since 2d --code TOOL_OUTCOME_UNKNOWN
      interlock sessions list --json | jq -r '.sessions[].id'
    """
    from .choose import Choice
    from .listing import show_list

    choice = Choice(time_of(since), time_of(until), tool, code, open_turn)
    show_list(root_of(root), choice, limit=limit, as_json=as_json)


@app.command()
def show(
    session: SessionName,
    root: Root = None,
    turn: Annotated[int | None, typer.Option(help="Only this turn.")] = None,
    tool: Annotated[str | None, typer.Option(help="Only calls of this tool.")] = None,
    code: Annotated[
        str | None, typer.Option(help="Only calls that ended with this code (ok: a success).")
    ] = None,
    since: Since = None,
    until: Until = None,
    full: Annotated[bool, typer.Option("--full", help="Shorten no text.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the log's rows as they are.")] = False,
    as_json: Json = False,
) -> None:
    """Tell what a log says, and how the session stands now.

    Turns, steps, calls with their approvals and results; what nobody knows stands out. Works on a
    log that is being written. Of a damaged log it shows what comes before the damage, and fails.

    \b
    Examples:
      interlock sessions show 3f2a
      interlock sessions show 3f2a --turn 2 --full
      interlock sessions show 3f2a --code APPROVAL_REJECTED
      interlock sessions show ./logs/--work--/a1/session.v3.jsonl.zstd --raw
    """
    from .locate import locate
    from .output import CommandFailed
    from .render import Filter
    from .show import show as run

    if raw and as_json:
        raise CommandFailed("--raw and --json exclude each other", 2)
    found = locate(session, root_of(root))
    wanted = Filter(turn, tool, code, time_of(since), time_of(until))
    run(found, wanted, full=full, raw=raw, as_json=as_json)


@app.command()
def tail(
    session: SessionName,
    root: Root = None,
    count: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="How many events from the end.")
    ] = 20,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new events until Ctrl-C.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the last events of a log, one a line.

    Following takes no lock and works while another process writes. With --follow, --json prints
    one event a line, as it comes.

    \b
    Examples:
      interlock sessions tail 3f2a -n 5
      interlock sessions tail 3f2a --follow
    """
    from .locate import locate
    from .tail import tail as run

    run(locate(session, root_of(root)), count, follow=follow, as_json=as_json)


@app.command()
def verify(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            help="A root, a session's directory, a log file, or a session's id (else the root).",
        ),
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> int:
    """Check logs to their last byte.

    Says where a damaged one is damaged, and what opening it to write would do. Changes nothing.

    \b
    Status, one line a session:
      ok           whole, nothing open
      repairable   interrupted or cut at its end; says what opening it to write would do
      locked       unfinished, and open for writing in a living process
      corrupt      damaged; names frame and offset
      unsupported  of a newer format, or an older one that cannot be carried over
    Exit status: 0 all ok or repairable, 1 otherwise, 2 if PATH is neither a log nor a root.

    \b
    Examples:
      interlock sessions verify
      interlock sessions verify ./logs --json
    """
    from .verify import verify as run

    return run(path, root_of(root), as_json=as_json)


@app.command()
def repair(
    session: SessionName,
    root: Root = None,
    write: Annotated[
        bool, typer.Option("--write", help="Do it; without this only say what would be done.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Complete an interrupted log.

    Shows what would be done; --write does it. Never runs a tool and never removes an event: it cuts
    a torn end that holds no event, gives unanswered calls the result that the log can prove, and
    closes the turn. A copy of the log is kept beside it. Refuses a session that is open somewhere,
    and a damaged log.

    \b
    Examples:
      interlock sessions repair 3f2a
      interlock sessions repair 3f2a --write
    """
    from .locate import locate
    from .repair import repair as run

    run(locate(session, root_of(root)), write=write, as_json=as_json)


@app.command()
def export(
    session: SessionName,
    root: Root = None,
    kind: Annotated[str, typer.Option("--format", help="jsonl or markdown.")] = "jsonl",
    repaired: Annotated[
        bool,
        typer.Option("--repaired", help="Add what opening to write would append; changes nothing."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="A new file (else stdout)."),
    ] = None,
) -> None:
    """Write a log's events elsewhere.

    As the event stream, one event a line of JSON, or as a Markdown page to read. The export holds
    what the log holds, secrets included; FILE is made for you alone (mode 0600).

    \b
    Examples:
      interlock sessions export 3f2a > events.jsonl
      interlock sessions export 3f2a --format markdown -o story.md
    """
    from .export import FORMATS
    from .export import export as run
    from .locate import locate
    from .output import CommandFailed

    if kind not in FORMATS:
        raise CommandFailed(f"--format {kind!r} is not one of {', '.join(FORMATS)}", 2)
    run(locate(session, root_of(root)), kind, repaired=repaired, output=output)


@app.command()
def migrate(
    session: Annotated[
        str | None,
        typer.Argument(metavar="[SESSION]", help="A session as for show; all with --all."),
    ] = None,
    root: Root = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every session of an older format under the root.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Give logs of an older format a current one.

    The current log is written beside the old one, checked by another process, and published without
    overwriting anything; the old file stays byte for byte. Opening a session for writing does the
    same. A session is migrated whole or not at all: run it again to go on after an interruption.

    \b
    Examples:
      interlock sessions migrate 3f2a
      interlock sessions migrate --all --root ./logs
    """
    from .locate import locate
    from .migrate import migrate as run
    from .output import CommandFailed

    if (session is None) != every:
        raise CommandFailed("name one session, or use --all", 2)
    base = root_of(root)
    return run(None if session is None else locate(session, base), base, as_json=as_json)
