# PROBE oom-host: make a host process the first to be killed
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())


def adjust():
    fd = os.open("/proc/%d/oom_score_adj" % HOSTPID, os.O_WRONLY)
    os.write(fd, b"1")


attempt(adjust)
