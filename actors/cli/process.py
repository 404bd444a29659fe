"""One run of the command line: arguments in, exit status out, never a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .output import CommandFailed, explain

#: The shell's word for "ended by SIGINT".
INTERRUPTED = 130


def run(argv: Sequence[str] | None) -> int:
    """Run the command that ``argv`` names and return the process's exit status."""
    for stream in (sys.stdout, sys.stderr):
        # Logs hold any text, lone surrogates included; a terminal's encoding must not end us.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    try:
        status = _command(argv)
        sys.stdout.flush()
    except KeyboardInterrupt:
        explain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # The reader had enough (`interlock … | head`): nothing more to say, to nobody.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except CommandFailed as failed:
        if failed.message:
            explain(failed.message)
        return failed.status
    except OSError as error:
        explain(_os_error(error))
        return 1
    except Exception as error:
        status = _status_of(error)
    return status


def _command(argv: Sequence[str] | None) -> int:
    from .app import app

    result = app(
        args=None if argv is None else list(argv), prog_name="interlock", standalone_mode=False
    )
    return result if isinstance(result, int) else 0


def _status_of(error: Exception) -> int:
    """Say what went wrong and return the status for it; an unforeseen error is raised again."""
    from interlock.backends.errors import InterlockError

    if isinstance(error, InterlockError):
        explain(str(error))
        return 1
    if type(error).__name__ == "Abort":
        explain("interrupted")
        return INTERRUPTED
    # The option parser's own errors: told by their shape, since typer carries its parser inside
    # from some version on.
    words = getattr(error, "format_message", None)
    status = getattr(error, "exit_code", None)
    if callable(words) and isinstance(status, int):
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            sys.stderr.write(f"{error}\n")
            return status
        where = context.command_path if context is not None else "interlock"
        explain(f"{words()} (see `{where} --help`)")
        return status
    explain(
        f"a fault in Interlock itself: {type(error).__name__}: {error}; please report it "
        "(INTERLOCK_TRACEBACK=1 shows where)"
    )
    if os.environ.get("INTERLOCK_TRACEBACK"):
        raise error
    return 1


def _os_error(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason
