# PROBE bind-mount: bind an outside directory into the workspace
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(165 if X86 else 40, OUT.encode(), TMP.encode(), None, 4096, None) and None)
