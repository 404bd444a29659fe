# PROBE tmpfile-link: make an unnamed file and link it outside
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())


def link():
    fd = os.open(TMP, os.O_TMPFILE | os.O_RDWR)
    os.link("/proc/self/fd/%d" % fd, OUT + "/linked", follow_symlinks=True)


attempt(link)
