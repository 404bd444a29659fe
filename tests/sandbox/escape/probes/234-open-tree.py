# PROBE open-tree: clone a mount without mounting it
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: os.close(syscall(428, -100, b"/", 1)))
