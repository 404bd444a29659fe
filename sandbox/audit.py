"""What a command left in its workspace that could run on the host later, or reach out of it.

A writable workspace is the point of ``workspace-write``, so these are reported, not refused:
whoever approves the next step decides. Take a `snapshot` before and after a command.
"""

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

#: Entries looked at before a snapshot gives up and says so.
ENTRY_LIMIT = 100_000
#: Bytes up to which a watched file is compared by content.
_DIGEST_LIMIT = 65_536

#: Files that a tool runs, or takes programs to run from, by name.
_NAMES = frozenset(
    {".envrc", ".mcp.json", ".pre-commit-config.yaml", ".gitmodules", ".gitattributes", "AGENTS.md"}
)
#: The same, by the directory that holds them.
_DIRECTORIES = frozenset({".vscode", ".idea", ".husky", ".agent", ".interlock", ".githooks"})
#: The same, below a git directory.
_GIT_PARTS = frozenset({"hooks", "config", "config.worktree", "attributes"})

Kind = Literal["runs-later", "setuid", "link-out", "hard-link", "incomplete"]


@dataclass(frozen=True)
class Finding:
    """One thing to know about a workspace.

    kind: ``runs-later``: a hook or setting that makes the host run something; ``setuid``: a program
        that runs with its owner's rights; ``link-out``: a symbolic link that leaves the workspace;
        ``hard-link``: a file that has another name somewhere; ``incomplete``: too large to look at.
    path: relative to the workspace.
    message: one sentence.
    """

    kind: Kind
    path: str
    message: str


@dataclass(frozen=True)
class Snapshot:
    """What was risky in a workspace at one moment: for each (kind, path), what it looked like."""

    workspace: Path
    marks: dict[tuple[Kind, str], str] = field(default_factory=dict)
    complete: bool = True


def snapshot(workspace: Path, limit: int = ENTRY_LIMIT) -> Snapshot:
    """Look through ``workspace``, at most ``limit`` entries of it; links are not followed.

    What cannot be read is passed over: the command had no more rights than we have.
    """
    marks: dict[tuple[Kind, str], str] = {}
    for count, entry in enumerate(_walk(workspace)):
        if count >= limit:
            return Snapshot(workspace, marks, complete=False)
        path = os.path.relpath(entry.path, workspace)
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        for kind in _kinds(entry, path, info, workspace):
            marks[kind, path] = _look(entry, info, kind)
    return Snapshot(workspace, marks)


def compare(before: Snapshot, after: Snapshot) -> list[Finding]:
    """What appeared or changed between two snapshots, in order of path."""
    findings = [
        Finding(kind, path, _words(kind, path, known=(kind, path) in before.marks))
        for (kind, path), look in after.marks.items()
        if before.marks.get((kind, path)) != look
    ]
    if not (before.complete and after.complete):
        message = "the workspace has too many entries to be looked through completely"
        findings.append(Finding("incomplete", ".", message))
    return sorted(findings, key=lambda f: (f.path, f.kind))


def _walk(directory: Path | str) -> Iterator["os.DirEntry[str]"]:
    """Every entry below ``directory``, directories before what is in them."""
    pending = [os.fspath(directory)]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)


def _kinds(
    entry: "os.DirEntry[str]", path: str, info: os.stat_result, workspace: Path
) -> Iterator[Kind]:
    if stat.S_ISREG(info.st_mode):
        if info.st_mode & (stat.S_ISUID | stat.S_ISGID):
            yield "setuid"
        if info.st_nlink > 1 and ".git" not in Path(path).parts:
            yield "hard-link"  # git links its own objects between clones
    if stat.S_ISLNK(info.st_mode) and _leaves(entry.path, workspace):
        yield "link-out"
    if not stat.S_ISDIR(info.st_mode) and _runs_later(Path(path)):
        yield "runs-later"


def _runs_later(path: Path) -> bool:
    parents = path.parts[:-1]
    if path.name in _NAMES or path.name == ".git" or _DIRECTORIES.intersection(parents):
        return True
    below_git = parents[parents.index(".git") + 1 :] + path.parts[-1:] if ".git" in parents else ()
    return bool(_GIT_PARTS.intersection(below_git)) and not path.name.endswith(".sample")


def _leaves(link: str, workspace: Path) -> bool:
    target = os.path.realpath(link)
    return os.path.commonpath([target, workspace]) != os.fspath(workspace)


def _look(entry: "os.DirEntry[str]", info: os.stat_result, kind: Kind) -> str:
    """What two looks are compared by."""
    try:
        if stat.S_ISLNK(info.st_mode):
            return "-> " + os.readlink(entry.path)
        if kind == "runs-later" and stat.S_ISREG(info.st_mode) and info.st_size <= _DIGEST_LIMIT:
            with open(entry.path, "rb") as file:
                return f"{info.st_mode:o} {hashlib.sha256(file.read()).hexdigest()}"
    except OSError:
        pass
    return f"{info.st_mode:o} {info.st_size} {info.st_mtime_ns} {info.st_ino} {info.st_nlink}"


def _words(kind: Kind, path: str, *, known: bool) -> str:
    verb = "was changed" if known else "appeared"
    meaning = {
        "runs-later": "a tool on this machine may run it",
        "setuid": "it runs with its owner's rights",
        "link-out": "it leads out of the workspace",
        "hard-link": "the same file has another name",
        "incomplete": "",
    }[kind]
    return f"{path} {verb}: {meaning}"
