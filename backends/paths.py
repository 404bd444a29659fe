"""Names on disk: which directory a session lives in, and which file in it is the log."""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

from .codes import Code
from .errors import SessionError

#: What common file systems allow for one name, in bytes (ext4, XFS, btrfs, APFS, NTFS).
NAME_LIMIT = 255

#: The harness cuts the readable part of a project directory so that the whole fits the limit.
_PROJECT_LIMIT = 251

_SAFE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_SEPARATORS = re.compile(r"[/\\:]+")
_LOG_NAME = re.compile(r"session(?:\.v([1-9][0-9]*))?\.jsonl(\.zstd)?")


def session_dir_name(session_id: str) -> str:
    """Return the directory name of a session: injective, and never a way out of the root (L14).

    Raises ``SessionError`` (``SESSION_ID_INVALID``) for an empty id or one whose escaped form is
    over the file system's limit.
    """
    if not session_id:
        raise SessionError(
            Code.SESSION_ID_INVALID, "a session id must not be empty", session=session_id
        )
    name = "~002E" * len(session_id) if session_id in (".", "..") else _escape(session_id)
    if len(name) > NAME_LIMIT:
        raise SessionError(
            Code.SESSION_ID_INVALID,
            f"the session id {session_id[:40]!r}… takes {len(name)} bytes as a directory name, and "
            f"a name may take {NAME_LIMIT}; choose a shorter id (a character outside "
            "A-Z a-z 0-9 . _ - takes 5 bytes)",
            session=session_id,
            limit=NAME_LIMIT,
            length=len(name),
        )
    return name


@lru_cache(maxsize=256)
def project_dir_name(cwd: str | None) -> str:
    """Return the directory name for a working directory; two of them may share one."""
    if cwd is None:
        return "_no-cwd"
    readable = "-".join(_escape(part) for part in _SEPARATORS.split(cwd)).lstrip("-")
    return f"--{(readable or 'root')[:_PROJECT_LIMIT]}--"


def log_name(version: int, *, compressed: bool) -> str:
    """Return the canonical file name of a generation."""
    generation = f".v{version}" if version else ""
    return f"session{generation}.jsonl{'.zstd' if compressed else ''}"


def parse_log_name(name: str) -> tuple[int, bool] | None:
    """Return (generation, compressed) of a canonical log name, or None for any other name."""
    match = _LOG_NAME.fullmatch(name)
    if match is None:
        return None
    return int(match[1] or 0), match[2] is not None


def default_root() -> Path:
    """Return where sessions live unless the caller says otherwise: the user's state directory."""
    state = os.environ.get("XDG_STATE_HOME") or ""
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "interlock" / "sessions"


def _escape(text: str) -> str:
    """Escape over UTF-16 code units, so that every string, lone surrogates included, has a name."""
    if _SAFE.issuperset(text):
        return text
    parts: list[str] = []
    for char in text:
        if char in _SAFE:
            parts.append(char)
            continue
        units = char.encode("utf-16-be", "surrogatepass")
        parts.extend(f"~{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
    return "".join(parts)
