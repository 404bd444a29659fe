"""``sessions migrate``: older logs get a current one beside them, and stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interlock.backends.errors import InterlockError
from interlock.backends.header import VERSION
from interlock.backends.jsonl import JsonlBackend, Listing

from .locate import Found
from .output import console, emit, one_line


def migrate(found: Found | None, root: Path, *, as_json: bool) -> int:
    """Migrate one session, or every older one under ``root``; returns the exit status.

    Each session is migrated whole or not at all, so that an interrupted run is gone on with by
    running it again.
    """
    root = found.root if found is not None else root
    backend = JsonlBackend(root)
    waiting = [listing for listing in backend.list() if _is_meant(listing, found)]
    done: list[dict[str, Any]] = []
    with _progress(len(waiting), shown=not as_json) as advance:
        for listing in waiting:
            done.append(_migrate(backend, listing))
            advance()
    if as_json:
        emit({"root": str(root), "sessions": done})
    else:
        _tell(done)
    return 1 if any(entry["status"] == "failed" for entry in done) else 0


def _is_meant(listing: Listing, found: Found | None) -> bool:
    if listing.header is None or listing.version is None or listing.version >= VERSION:
        return False
    return found is None or listing.directory == found.path.parent


def _migrate(backend: JsonlBackend, listing: Listing) -> dict[str, Any]:
    assert listing.header is not None  # noqa: S101 - only such are meant
    entry: dict[str, Any] = {
        "id": listing.header.id,
        "from": listing.version,
        "source": str(listing.path),
    }
    try:
        log = backend.open(listing.header.id)
    except InterlockError as error:
        return entry | {"status": "failed", "code": error.code, "message": error.message}
    path = str(log.path)
    log.close()
    return entry | {"status": "migrated", "code": None, "message": None, "path": path}


@contextmanager
def _progress(total: int, *, shown: bool) -> Iterator[Any]:
    """A bar on stderr where somebody watches."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(
        console=Console(stderr=True), disable=not shown or total < 2, transient=True
    ) as bar:
        task = bar.add_task("migrating", total=total)
        yield lambda: bar.advance(task)


def _tell(done: list[dict[str, Any]]) -> None:
    out = console()
    for entry in done:
        name = one_line(entry["id"])
        if entry["status"] == "migrated":
            out.print(f"migrated  {name}  v{entry['from']} → v{VERSION}: {entry['path']}")
        else:
            words = f"failed    {name}  {entry['code']} {one_line(entry['message'])}"
            out.print(words, style="bold red", soft_wrap=True)
    if not done:
        out.print("nothing to migrate: every session is of the current format")
