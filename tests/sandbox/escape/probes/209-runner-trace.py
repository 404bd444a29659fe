# PROBE runner-trace: trace the process that watches the command
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(101 if X86 else 117, 0x4206, os.getppid(), 0, 0))
