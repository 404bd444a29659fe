"""Standard error passed through, with its end kept: what a refused command complains about."""

from __future__ import annotations

import contextlib
import os
import threading
from types import TracebackType
from typing import Self

#: Bytes of the end that are kept.
KEPT = 8192
#: Seconds to wait for the last bytes once the command has ended.
LAST_BYTES = 2.0


class ErrorTee:
    """While entered, this process's stderr leads through us to where it led before.

    A command that inherits it sees a terminal where there was one. Its order with stdout is not
    kept where both lead to the same place. Use it in one thread at a time.
    """

    def __init__(self) -> None:
        self.end = b""
        self._saved = -1
        self._reader = -1
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._saved = os.dup(2)
        self._reader, writer = _terminal() if os.isatty(2) else os.pipe()
        os.dup2(writer, 2)
        os.close(writer)
        self._thread = threading.Thread(target=self._pass_on, name="interlock-stderr", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Ours was the last writing end: nothing the command started is left (S7).
        os.dup2(self._saved, 2)
        if self._thread is not None:
            self._thread.join(LAST_BYTES)
            if self._thread.is_alive():
                return  # somebody still holds the other end: leave it to the thread
        os.close(self._reader)
        os.close(self._saved)

    def _pass_on(self) -> None:
        while True:
            try:
                piece = os.read(self._reader, 65536)
            except OSError:  # a pseudo-terminal's end, once nobody holds the other side
                return
            if not piece:
                return
            self.end = (self.end + piece)[-KEPT:]
            with contextlib.suppress(OSError):
                rest = memoryview(piece)
                while rest:
                    rest = rest[os.write(self._saved, rest) :]


def _terminal() -> tuple[int, int]:
    """A pseudo-terminal of the same size that changes nothing on the way: (our side, theirs)."""
    import fcntl
    import termios
    import tty

    ours, theirs = os.openpty()
    tty.setraw(theirs)
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(2, termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, size)
    return ours, theirs
