"""The first line of a log: whose session it is, and which format follows."""

from __future__ import annotations

import posixpath
import re
from typing import Any, Literal, NoReturn

import msgspec

from . import jsontext
from .codes import Code
from .errors import SessionError

VERSION = 3

_COMMON = ("type", "version", "id", "createdAt", "delegationDepth")
_OPTIONAL = ("cwd", "parentSession", "origin", "agentPreset")
#: The first generation whose header says only that the session was seeded, and not how far.
_SEEDED_BY_MARKER = 2
_RETIRED = ("sandboxMode", "approvalPolicy")
_WINDOWS_ABSOLUTE = re.compile(r"(?:[A-Za-z]:[\\/]|\\\\|//)")
_MAX_SAFE_INTEGER = 2**53 - 1


class Header(msgspec.Struct, frozen=True):
    """What a log says about its session before its first event.

    ``created_at`` is in milliseconds since the epoch; ``cwd``, where given, is an absolute path.
    """

    id: str
    created_at: int
    cwd: str | None = None
    parent_session: str | None = None
    is_seeded: bool = False
    origin: Literal["subagent"] | None = None
    delegation_depth: int = 0
    agent_preset: str | None = None


class StoredHeader(msgspec.Struct, frozen=True):
    """A header as its own generation means it.

    ``inherited`` is how many events a v0 or v1 session got from its parent, or None; later
    generations mark the place among the events. ``unexpected`` names members that the first
    harness let pass in a v0 header and none of its successors does.
    """

    version: int
    header: Header
    inherited: int | None = None
    unexpected: tuple[str, ...] = ()


def encode_header(header: Header) -> bytes:
    """Return the header line, with its newline, in the order in which the harness writes it."""
    row: dict[str, Any] = {
        "type": "session",
        "version": VERSION,
        "id": header.id,
        "createdAt": header.created_at,
    }
    if header.cwd is not None:
        row["cwd"] = header.cwd
    if header.parent_session is not None:
        row["parentSession"] = header.parent_session
    row["isSeeded"] = header.is_seeded
    if header.origin is not None:
        row["origin"] = header.origin
    row["delegationDepth"] = header.delegation_depth
    if header.agent_preset is not None:
        row["agentPreset"] = header.agent_preset
    return jsontext.dumps(row) + b"\n"


def decode_header(
    line: bytes, *, file_version: int | None = VERSION, source: str = "the log"
) -> Header:
    """Decode and check a header line as :func:`decode_stored_header` does; keep what is common."""
    return decode_stored_header(line, file_version=file_version, source=source).header


def decode_stored_header(
    line: bytes, *, file_version: int | None, source: str = "the log"
) -> StoredHeader:
    """Decode and check a header line of any generation; ``source`` names the file in errors.

    ``file_version`` is the generation that the file's name gives, None where it gives none. The
    version is looked at first, so that a log of a later generation is called unsupported and not
    damaged, whatever else is new in it. Raises ``SessionError``: ``SESSION_FORMAT_UNSUPPORTED`` or
    ``SESSION_CORRUPT``.
    """
    row = _decode_object(line, source)
    version = row.get("version")
    if isinstance(version, bool) or not isinstance(version, int | float):
        _corrupt(source, "the header has no version")
    if version > VERSION:
        raise newer_format(version, source)
    if file_version is not None and version != file_version:
        # Also where the older of the two is one that we read: nothing says which of them lies.
        _corrupt(source, f"the header says v{version}, the file name says v{file_version}")
    if version not in range(VERSION + 1):
        _corrupt(source, f"there is no format v{version}")
    for key in _RETIRED:
        if key in row:
            _corrupt(source, f"the header has the retired member {key!r}")
    return _shaped(row, int(version), source)


def newer_format(version: float, source: str) -> SessionError:
    """Return the refusal of a log from after the current generation."""
    return SessionError(
        Code.SESSION_FORMAT_UNSUPPORTED,
        f"{source}: written by a newer version (format v{version}, this one reads up to "
        f"v{VERSION}); open it with that version",
        file=source,
        version=version,
    )


def _decode_object(line: bytes, source: str) -> dict[str, Any]:
    try:
        # -0 is refused for every integer, and only the text still shows it.
        row = jsontext.loads(line)
    except ValueError as error:
        _corrupt(source, f"the header line is {error}")
    if not isinstance(row, dict) or row.get("type") != "session":
        _corrupt(source, "the first line is no session header")
    if re.search(rb'"(?:createdAt|delegationDepth|seedLength)"\s*:\s*-0(?![.\d])', line):
        _corrupt(source, "the header holds -0")
    return row


def _shaped(row: dict[str, Any], version: int, source: str) -> StoredHeader:
    by_marker = version >= _SEEDED_BY_MARKER
    required = (*_COMMON, "isSeeded") if by_marker else _COMMON
    optional = _OPTIONAL if by_marker else (*_OPTIONAL, "seedLength")
    for key in required:
        if key not in row:
            _corrupt(source, f"the header lacks {key!r}")
    unexpected = tuple(key for key in row if key not in required and key not in optional)
    if unexpected and version > 0:
        _corrupt(source, f"the header has the unexpected member {unexpected[0]!r}")
    _check_values(row, source)
    inherited = row.get("seedLength")
    header = Header(
        id=row["id"],
        created_at=row["createdAt"],
        cwd=row.get("cwd"),
        parent_session=row.get("parentSession"),
        is_seeded=row["isSeeded"] if by_marker else inherited is not None,
        origin=row.get("origin"),
        delegation_depth=row["delegationDepth"],
        agent_preset=row.get("agentPreset"),
    )
    return StoredHeader(version, header, inherited, unexpected)


def _check_values(row: dict[str, Any], source: str) -> None:
    for key in ("id", "cwd", "parentSession", "agentPreset"):
        if key in row and not isinstance(row[key], str):
            _corrupt(source, f"the header's {key!r} is no string")
    for key in ("createdAt", "delegationDepth", "seedLength"):
        value = row.get(key, 0)
        if type(value) is not int or not 0 <= value <= _MAX_SAFE_INTEGER:
            _corrupt(source, f"the header's {key!r} is no count")
    if type(row.get("isSeeded", False)) is not bool:
        _corrupt(source, "the header's 'isSeeded' is no boolean")
    if row.get("origin", "subagent") != "subagent":
        _corrupt(source, "the header's 'origin' is not 'subagent'")
    if not row["id"]:
        _corrupt(source, "the header's 'id' is empty")
    if "cwd" in row and not _is_absolute(row["cwd"]):
        _corrupt(source, "the header's 'cwd' is no absolute path")


def _is_absolute(path: str) -> bool:
    # On either family of systems: logs travel between them.
    return posixpath.isabs(path) or _WINDOWS_ABSOLUTE.match(path) is not None


def _corrupt(source: str, reason: str) -> NoReturn:
    raise SessionError(
        Code.SESSION_CORRUPT,
        f"{source}: {reason} (frame 0, offset 0, no good seq)",
        file=source,
        frame=0,
        offset=0,
        last_good_seq=-1,
    )
