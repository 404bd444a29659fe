"""What all tests share."""

from __future__ import annotations

import signal
import threading

if threading.current_thread() is threading.main_thread():
    # A test run started in the background may have been told to ignore Ctrl-C, and so would
    # every program that the tests start and press Ctrl-C for.
    signal.signal(signal.SIGINT, signal.default_int_handler)
