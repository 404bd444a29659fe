# PROBE sysv-shm: make System V shared memory that the host can attach
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(29 if X86 else 194, int(os.environ["TAGNUM"]) + 1, 4096, 0o1600) and None)
