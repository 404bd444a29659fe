# PROBE openat2-write: write outside with openat2
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
how = (ctypes.c_uint64 * 3)(os.O_CREAT | os.O_WRONLY, 0o600, 0)
attempt(lambda: syscall(437, -100, (OUT + "/opened").encode(), how, 24) and None)
