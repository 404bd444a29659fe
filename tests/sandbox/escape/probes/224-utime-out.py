# PROBE utime-out: change the times of an outside file
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: os.utime(OUT + "/meta.txt", (1, 1)))
