# PROBE ioprio-host: change a host process's input and output priority
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(251 if X86 else 30, 1, HOSTPID, (2 << 13) | 7) and None)
