# PROBE mqueue: make a message queue that the host can open
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(
    lambda: (
        syscall(240 if X86 else 180, ("ilk" + TAG).encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
        and None
    )
)
