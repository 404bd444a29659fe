# PROBE x32-mount: mount by the x32 numbers that a filter may not know
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
if not X86:
    done(False, "not this architecture")
attempt(lambda: syscall(0x40000000 + 165, b"none", TMP.encode(), b"tmpfs", 0, None) and None)
