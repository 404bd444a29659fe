"""An event loop on a thread of its own, which no body can bring down."""

from __future__ import annotations

import asyncio
import logging
import threading

_log = logging.getLogger(__name__)

#: Seconds for the loop's thread to end once it is told to; a body that blocks it keeps it longer.
_JOIN = 1.0


class LoopThread:
    """Runs an event loop until :meth:`stop`. Made and stopped from any other thread.

    A ``SystemExit`` or ``KeyboardInterrupt`` out of a task that a body left behind would end
    ``run_forever``; it is logged and the loop goes on.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop and its remaining tasks; wait shortly."""
        self._stopping = True
        try:
            self.loop.call_soon_threadsafe(self.loop.stop)
        except RuntimeError:
            return  # closed already
        self._thread.join(_JOIN)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._stopping:
            try:
                self.loop.run_forever()
            except BaseException:
                _log.exception("a task that a body left behind stopped its event loop; it goes on")
        self._end_tasks()
        self.loop.close()

    def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            # One round is enough for those that listen; the others end with the process.
            self.loop.call_later(_JOIN / 2, self.loop.stop)
            ended = asyncio.gather(*tasks, return_exceptions=True)
            ended.add_done_callback(lambda _: self.loop.stop())
            try:
                self.loop.run_forever()
            except BaseException:
                _log.exception("a task that a body left behind raised while it was ended")
