# PROBE sysv-sem: make a System V semaphore that the host can use
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(64 if X86 else 190, int(os.environ["TAGNUM"]) + 1, 1, 0o1600) and None)
