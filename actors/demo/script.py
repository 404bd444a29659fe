"""What the demo's agents do: chapters derived from the tree, the same for the same tree."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..agent.scripted import Say
from .tree import Tree

#: How long a scripted model thinks (s): long enough to be watched.
PAUSE = 0.25
#: Seconds that a call which is to be killed would take.
SLOW = 2.4


@dataclass(frozen=True)
class Setting:
    """What a chapter is written from: the tree, the agent's number, a place outside its reach."""

    tree: Tree
    number: int
    outside: Path

    def file(self, place: int) -> str:
        """One of the tree's files, another for each agent and place."""
        names = self.tree.files
        return names[(self.number * 7 + place * 3) % len(names)]


Chapter = Callable[[Setting], list[Say]]


@dataclass(frozen=True)
class Part:
    """One agent: its name and its script."""

    name: str
    script: tuple[Say, ...]
    needs_history: bool = False


def parts(tree: Tree, agents: int, outside: Sequence[Path]) -> list[Part]:
    """Return the agents: every chapter is told, by few agents or by many.

    With fewer agents than chapters each tells several; with more, chapters are told again.
    """
    chapters = list(_CHAPTERS.items())
    told: list[Part] = []
    for number in range(agents):
        mine = chapters[number % len(chapters) :: agents] if agents < len(chapters) else None
        mine = mine or [chapters[number % len(chapters)]]
        setting = Setting(tree, number, outside[number])
        script = [say for _, chapter in mine for say in chapter(setting)]
        history = any(chapter is _history for _, chapter in mine) and tree.history == "copied"
        name = (
            mine[0][0] if number < len(chapters) else f"{mine[0][0]}-{number // len(chapters) + 1}"
        )
        told.append(Part(name, tuple(script), history))
    return told


def _say(text: str, *calls: tuple[str, dict[str, Any]]) -> Say:
    return Say(text=text, calls=calls, pause=PAUSE)


def _survey(s: Setting) -> list[Say]:
    reads = [("read_file", {"path": s.file(place)}) for place in range(3)]
    return [
        _say("What is there?", ("list_files", {"pattern": "*"})),
        _say("Reading three of them at once.", *reads),
        _note(
            "survey", f"{len(s.tree.files)} files; read {', '.join(r[1]['path'] for r in reads)}"
        ),
    ]


def _searching(s: Setting) -> list[Say]:
    patterns = (r"^\s*(def|class|fn|func) ", r"import|include|require", r"TODO|FIXME|XXX")
    searches = [("search", {"pattern": pattern}) for pattern in patterns]
    return [
        _say("Searching for three things at once.", *searches),
        _say("Reading around a match.", ("read_file", {"path": s.file(1)})),
        _note("search", "Definitions, imports and open ends were looked up."),
    ]


def _compile(s: Setting) -> list[Say]:
    python = _python()
    return [
        _say(
            "Does it compile?",
            ("run_command", {"argv": [python, "-m", "compileall", "-q", "."], "timeout": 30}),
        ),
        _say("How long is it?", ("run_command", {"argv": ["wc", "-l", s.file(0), s.file(1)]})),
        _note("compile", "Compiled and counted, inside the sandbox."),
    ]


def _history(s: Setting) -> list[Say]:
    if s.tree.history == "none":
        look = _say("No history here; what is new?", ("run_command", {"argv": ["ls", "-lt"]}))
    else:
        where = ["-C", str(s.tree.path)] if s.tree.history == "in-place" else []
        log = ["git", *where, "log", "--oneline", "-n", "12"]
        look = _say("What happened lately?", ("run_command", {"argv": log}))
    return [
        look,
        _say("Reading what changed.", ("read_file", {"path": s.file(2)})),
        _note("history", "The latest changes were read."),
    ]


def _publishing(s: Setting) -> list[Say]:
    name = f"release-{s.number}"
    return [
        _note(name, "What is new, for everybody to read."),
        _say("This needs an approval.", ("publish", {"note": name})),
        _say("And this too.", ("purge", {"note": name})),
        _say("The second one was rejected, so the note stays published."),
    ]


def _escape(s: Setting) -> list[Say]:
    return [
        _say(
            "Writing outside the workspace.", ("run_command", {"argv": ["touch", str(s.outside)]})
        ),
        _say("Refused. Inside, then.", ("run_command", {"argv": ["touch", "inside"]})),
        _note("escape", "A write outside was refused by the sandbox, one inside was not."),
    ]


def _crash(s: Setting) -> list[Say]:
    return [
        _say("A long conversion.", ("convert", {"name": s.file(0), "seconds": 6.0})),
        _say(
            "Its process was killed: its outcome is unknown. Looking before doing it again.",
            ("list_files", {"pattern": "*.converted"}),
        ),
        _note(
            "conversion", "Killed in the middle; nothing of it was found, so it is to be redone."
        ),
    ]


def _mistakes(s: Setting) -> list[Say]:
    return [
        _say("Reading.", ("read_file", {"file": s.file(0)})),
        _say("The argument is called path.", ("read_files", {"path": s.file(0)})),
        _say("And the tool read_file.", ("read_file", {"path": s.file(0)})),
        _note("lesson", "Two calls were refused before they could start; the third one ran."),
    ]


def _note(title: str, text: str) -> Say:
    return _say("Writing that down.", ("write_note", {"title": title, "text": text + "\n"}))


_CHAPTERS: dict[str, Chapter] = {
    "surveyor": _survey,
    "crasher": _crash,
    "publisher": _publishing,
    "escapee": _escape,
    "compiler": _compile,
    "historian": _history,
    "searcher": _searching,
    "novice": _mistakes,
}

#: The agent in a process of its own.
LONE = "lone"
SYSTEM = "You look after a source tree. Say what you do, and do only what you say."
#: What the agent does whose process is killed; and, resumed in another process, what it goes on to.
LONE_PROMPT = "Read a file, upload it, and note that you did."
RESUMED_PROMPT = (
    "Your process was killed while a call was running. The log holds what became of it; go on from "
    "there."
)


def lone_script(name: str) -> list[Say]:
    """The script of the agent in a process of its own, before and after the kill."""
    return [
        _say("Reading first.", ("read_file", {"path": name})),
        _say("Uploading it now.", ("upload", {"name": name, "seconds": SLOW})),
        _say(
            "The log has the upload's result, so it is not repeated.",
            ("write_note", {"title": "upload", "text": f"{name} was uploaded once.\n"}),
        ),
        _say("Finished, in another process than the one I began in."),
    ]


def _python() -> str:
    """An interpreter that the sandbox shows: not one below a directory that it replaces."""
    real = os.path.realpath(sys.executable)
    return "python3" if real.startswith("/tmp/") else real  # noqa: S108 - compared, not used
