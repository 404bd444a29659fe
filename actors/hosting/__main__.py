"""``python -m interlock.actors.hosting``: the command ``interlock run`` by itself."""

import sys

import typer

from ..cli.run import run

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command()(run)

if __name__ == "__main__":
    try:
        app(prog_name="interlock run")
    except KeyboardInterrupt:
        sys.exit(130)
