# PROBE unshare-userns: make a user namespace with unshare
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: syscall(272 if X86 else 97, 0x10000000) and None)
