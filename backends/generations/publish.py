"""Migration to disk: the current generation appears beside the old file, whole or not at all (L12).

In order: encode a temporary file in the session's directory and sync it; have another process
verify it; see that the source is still what was read; link the file to its name, which never
overwrites; sync the directory. The link is the commit point: before it the old generation is the
log, after it the new one, and a temporary file that a dead process left is no log. The source is
never written to, renamed or removed (L13).
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import zstandard

from .. import frames
from ..codes import Code
from ..disk import Disk, write_all
from ..errors import LogError, SessionError
from ..event import encode_line
from ..files import give_name
from ..header import VERSION, encode_header
from ..passes import Dropped
from ..paths import log_name
from ..source import LogFile
from .current import MigratingReader
from .verify_copy import Expected, Verdict, Verifier, verify_elsewhere

#: Bytes gathered before they are written, and compared at a time.
_CHUNK = 1024 * 1024


class Migrated(msgspec.Struct, frozen=True):
    """A published migration: the file, and what of the source's end is not in it."""

    path: Path
    dropped: Dropped | None


def migrate(
    source: Path, session_id: str, disk: Disk, *, durable: bool, verifier: Verifier | None = None
) -> Migrated:
    """Publish the current generation of an older log. The caller holds the session's lock.

    The compression stays the source's. ``verifier`` stands in for the other process, for a disk
    that only this one can see. Raises ``SessionError``: what refuses the source as in reading;
    ``SESSION_SOURCE_CHANGED`` if the source was written to meanwhile or another file has the new
    name, and then nothing is published. ``LogError`` (``LOG_WRITE_FAILED``) if the copy does not
    verify; ``OSError`` for everything else. I/O thread.
    """
    with LogFile(source, disk) as file:
        target = source.with_name(log_name(VERSION, compressed=file.compressed))
        with _temporary(target, disk) as temporary:
            reader = MigratingReader(file, expect_id=session_id)
            expected = _encode(reader, temporary, disk, durable=durable)
            verdict = (verifier or verify_elsewhere)(temporary, expected)
            _judge(verdict, expected, source, reader.version)
            _check_source(source, session_id, file.status, disk)
            try:
                give_name(temporary, target, disk)
            except FileExistsError:
                _accept_existing(temporary, target, session_id, disk)
            if durable:
                disk.sync_directory(target.parent)
        recovered = reader.recovered
        return Migrated(target, None if recovered is None else recovered.dropped)


@contextmanager
def _temporary(target: Path, disk: Disk) -> Iterator[Path]:
    """Give the name of a file that does not outlive the migration, and is no log if it does."""
    suffixes = "".join(target.suffixes[1:])
    path = target.with_name(f"session.migration.{secrets.token_hex(8)}{suffixes}.tmp")
    try:
        yield path
    finally:
        with suppress(OSError):
            disk.unlink(path)


def _encode(reader: MigratingReader, path: Path, disk: Disk, *, durable: bool) -> Expected:
    """Write the header and, as one frame, all rows; return what the file must give back."""
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        head = encode_header(reader.header)
        digest, count = hashlib.sha256(head), 0
        write_all(disk, fd, frames.encode(head) if reader.compressed else head)
        rows = _Rows(fd, disk, compressed=reader.compressed)
        for event in reader.events():
            line = encode_line(event)
            digest.update(line)
            count += 1
            rows.add(line)
        rows.finish()
        if durable:
            disk.fsync(fd)
    finally:
        disk.close(fd)
    return Expected(reader.header.id, count, digest.hexdigest())


class _Rows:
    """Writes lines as one frame, or raw, without ever holding all of them."""

    def __init__(self, fd: int, disk: Disk, *, compressed: bool) -> None:
        self._fd = fd
        self._disk = disk
        self._frame: zstandard.ZstdCompressionObj | None = None
        self._compressed = compressed
        self._waiting: list[bytes] = []
        self._size = 0

    def add(self, line: bytes) -> None:
        """Take in one line."""
        self._waiting.append(line)
        self._size += len(line)
        if self._size >= _CHUNK:
            self._write()

    def finish(self) -> None:
        """Write what waits and end the frame; a log without rows has no second frame."""
        self._write()
        if self._frame is not None:
            write_all(self._disk, self._fd, self._frame.flush())

    def _write(self) -> None:
        data = b"".join(self._waiting)
        self._waiting, self._size = [], 0
        if not data:
            return
        if self._compressed:
            if self._frame is None:
                self._frame = zstandard.ZstdCompressor(write_checksum=True).compressobj()
            data = self._frame.compress(data)
        write_all(self._disk, self._fd, data)


def _judge(verdict: Verdict, expected: Expected, source: Path, version: int) -> None:
    if verdict.fault is None:
        return
    if verdict.refused:
        raise SessionError(
            Code.SESSION_FORMAT_UNSUPPORTED,
            f"{source}: a sound log of format v{version} that cannot be carried over to "
            f"v{VERSION}: {verdict.fault}. The file is left as it is; open it with the program "
            "that wrote it",
            file=str(source),
            version=version,
            reason=verdict.fault,
        )
    raise LogError(
        Code.LOG_WRITE_FAILED,
        f"session {expected.id!r}: the migrated copy of {source} did not verify ({verdict.fault}). "
        "Nothing was published and the file is left as it is; check the disk, then open it again",
        session=expected.id,
        closed=True,
    )


def _check_source(source: Path, session_id: str, read: os.stat_result, disk: Disk) -> None:
    try:
        now = _revision(disk.stat(source))
    except FileNotFoundError:
        now = None
    if now != _revision(read):
        _source_changed(session_id, f"{source} was changed by something else while it was migrated")


def _revision(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _accept_existing(temporary: Path, target: Path, session_id: str, disk: Disk) -> None:
    """Accept a file that has the name already if it begins with what we would have published."""
    try:
        fd = disk.open(target, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        _source_changed(session_id, f"{target} is there and cannot be read: {error.strerror}")
    try:
        same = stat.S_ISREG(disk.fstat(fd).st_mode) and _begins_with(fd, temporary, disk)
    finally:
        disk.close(fd)
    if not same:
        _source_changed(session_id, f"{target} has appeared and holds something else")


def _begins_with(fd: int, prefix: Path, disk: Disk) -> bool:
    own, offset = disk.open(prefix, os.O_RDONLY), 0
    try:
        while expected := disk.pread(own, _CHUNK, offset):
            found = b""
            while len(found) < len(expected):
                part = disk.pread(fd, len(expected) - len(found), offset + len(found))
                if not part:
                    return False
                found += part
            if found != expected:
                return False
            offset += len(expected)
        return True
    finally:
        disk.close(own)


def _source_changed(session_id: str, what: str) -> NoReturn:
    details: dict[str, Any] = {"session": session_id, "closed": True}
    raise SessionError(
        Code.SESSION_SOURCE_CHANGED,
        f"session {session_id!r}: {what}. Nothing was published; find the other program, then open "
        "the session again",
        **details,
    )
