# PROBE mmap-shared: map an outside file that was opened for reading, for writing
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import mmap


def write():
    with mmap.mmap(
        os.open(OUT + "/secret.txt", os.O_RDONLY), 4, mmap.MAP_SHARED, mmap.PROT_WRITE
    ) as m:
        m[0] = 0


attempt(write)
