# PROBE pivot-root: change the root file system
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(155 if X86 else 41, b"/", b"/") and None)
