# PROBE priority-user: lower the priority of everything that the user runs
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
before = os.getpriority(os.PRIO_PROCESS, 0)
attempt(
    lambda: (os.setpriority(os.PRIO_USER, 0, before + 1), os.path.exists("/proc/%d" % HOSTPID))[1]
)
