# PROBE fchdir-write: write by a relative path after entering an outside directory
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())


def write():
    os.fchdir(os.open(OUT, os.O_RDONLY))
    os.close(os.open("entered", os.O_CREAT | os.O_WRONLY))


attempt(write)
