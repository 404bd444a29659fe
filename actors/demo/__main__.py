"""``python -m interlock.actors.demo``: the command ``interlock demo`` by itself."""

import sys

import typer

from ..cli.demo import demo

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command()(demo)

if __name__ == "__main__":
    try:
        app(prog_name="interlock demo")
    except KeyboardInterrupt:
        sys.exit(130)
