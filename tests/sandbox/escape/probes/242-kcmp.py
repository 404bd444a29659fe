# PROBE kcmp: compare one's descriptors with a host process's
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(312 if X86 else 272, HOSTPID, HOSTPID, 0, 1, 1) and None)
