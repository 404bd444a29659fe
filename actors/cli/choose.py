"""Which sessions of a root are asked for: by time from their files, by the rest from their logs."""

from __future__ import annotations

from dataclasses import dataclass

from interlock.backends.errors import SessionError
from interlock.backends.journal.overlay import OverlayDisk
from interlock.backends.jsonl import Listing
from interlock.backends.reading import open_reader
from interlock.backends.source import LogFile


@dataclass(frozen=True)
class Choice:
    """What a session must have been; None: anything. Times are in ms since the epoch.

    ``since`` and ``until`` are about the last change of its log. ``tool`` and ``code`` must be one
    call's; ``open_turn``: its last turn has no end.
    """

    since: int | None = None
    until: int | None = None
    tool: str | None = None
    code: str | None = None
    open_turn: bool = False

    @property
    def reads_logs(self) -> bool:
        """Whether headers do not tell."""
        return self.tool is not None or self.code is not None or self.open_turn

    def in_time(self, modified_ms: int | None) -> bool:
        """Tell whether a log that was last changed then is asked for."""
        if modified_ms is None:
            return self.since is None and self.until is None
        after = self.since is None or modified_ms >= self.since
        return after and (self.until is None or modified_ms <= self.until)

    def in_log(self, listing: Listing, disk: OverlayDisk) -> bool:
        """Tell by a log's events. A damaged one counts by what comes before the damage."""
        if not self.reads_logs or listing.path is None:
            return not self.reads_logs
        from .story import tell

        fits, open_turn = False, False
        try:
            with LogFile(listing.path, disk) as file:
                for chapter in tell(open_reader(file).events()):
                    open_turn = chapter.open
                    fits = fits or any(self._fits(c.name, c.code) for c in chapter.calls)
        except (SessionError, OSError):
            pass
        wanted = self.tool is None and self.code is None
        return (wanted or fits) and (open_turn or not self.open_turn)

    def _fits(self, name: str, code: str | None) -> bool:
        if self.tool is not None and name != self.tool:
            return False
        return self.code is None or (code or "NONE") == self.code.upper()
