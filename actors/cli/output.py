"""What commands print: one JSON document, text for a person, one line for an error."""

from __future__ import annotations

import json
import os
import sys
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: Columns where neither a terminal nor COLUMNS says how wide the output is.
WIDTH = 100


class CommandFailed(Exception):  # noqa: N818 - it ends a command with a status, of whatever kind
    """Ends the command: ``message`` in one line on stderr (if any), ``status`` to the shell."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


def emit(document: Any) -> None:
    """Print the one JSON document of a command, in ASCII: every terminal and pipe takes it."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")


def explain(message: str) -> None:
    """Print one line on stderr, whatever ``message`` holds."""
    sys.stderr.write(f"interlock: {one_line(message)}\n")


def one_line(text: str, limit: int | None = None) -> str:
    """Return ``text`` harmless and on one line, cut to ``limit`` characters with an ellipsis."""
    flat = " ".join(clean(text).split())
    return flat if limit is None or len(flat) <= limit else flat[: limit - 1] + "…"


def clean(text: str) -> str:
    """Return ``text`` without what a terminal would obey: it comes from models and tools.

    Newlines and tabs stay; every other control or formatting character is shown as its escape.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in _OBEYED else _escape(char)
        for char in text.replace("\r\n", "\n")
    )


#: Control, format (bidirectional overrides among them), surrogate and line-separating characters.
_OBEYED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def _escape(char: str) -> str:
    # The joiners inside emoji are format characters too, and harmless.
    return char if char in "\u200d\ufe0f" else char.encode("unicode_escape").decode()


def console() -> Console:
    """Return where text for a person goes: plain when piped, never obeying what logs contain."""
    from rich.console import Console

    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
    return Console(
        width=None if known else WIDTH, highlight=False, markup=False, emoji=False, soft_wrap=False
    )


@dataclass(frozen=True)
class Line:
    """One paragraph: how far it is indented (columns), its text and its style.

    ``whole`` keeps it on one line whatever the width: a path is for copying.
    """

    indent: int
    text: str
    style: str = ""
    whole: bool = False


def put(out: Console, line: Line) -> None:
    """Print a paragraph, every line of it indented, none with trailing blanks."""
    if line.whole and "\n" not in line.text and not out.is_terminal:
        # What comes below comes to the same; a list of thousands should not take as long.
        out.file.write(f"{' ' * line.indent}{line.text.expandtabs(4)}".rstrip() + "\n")
        return
    from rich.text import Text

    width = 1 << 30 if line.whole else max(20, out.width - line.indent)
    for wrapped in Text(line.text.expandtabs(4), style=line.style).wrap(out, width):
        wrapped.rstrip()
        out.print(Text(" " * line.indent if wrapped else "") + wrapped, soft_wrap=True)


def size(count: int) -> str:
    """Return a number of bytes as a person reads it."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def moment(ms: int, *, date: bool = False) -> str:
    """Return a wall clock time (ms since the epoch) in local time; what cannot be one, as it is."""
    from datetime import UTC, datetime

    try:
        local = datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"
    return local.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")


def duration(ms: float) -> str:
    """Return a duration (ms) as a person reads it."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"
