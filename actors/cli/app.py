"""The tree of commands. Each module keeps what it needs for its work inside its functions, so that
one command does not pay for the imports of the others."""

from __future__ import annotations

from typing import Annotated

import typer

from . import approvals, bench, demo, doctor, execute, run, sessions

app = typer.Typer(
    name="interlock",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"max_content_width": 100},
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def interlock(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.")
    ] = False,
) -> None:
    """Agents' tool calls, honest: no tool body starts before its record is durable.

    \b
    Where to start:
      interlock demo                  see it work: several agents, two kills, an honest log
      interlock doctor                what this machine offers
      interlock sessions list         the logs that are there
      interlock sessions show ID      what one of them says
      interlock approvals watch       decide what running agents ask for
    """
    if version:
        from importlib.metadata import PackageNotFoundError
        from importlib.metadata import version as installed

        try:
            typer.echo(installed("interlock"))
        except PackageNotFoundError:
            typer.echo("not installed (run from its sources)")
        raise typer.Exit


app.command()(demo.demo)
app.command()(run.run)
app.add_typer(sessions.app)
app.add_typer(approvals.app)
app.command("exec", context_settings={"allow_interspersed_args": False})(execute.execute)
app.command()(doctor.doctor)
app.add_typer(bench.app, name="bench")
