# PROBE priority-host: lower a host process's priority
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: os.setpriority(os.PRIO_PROCESS, HOSTPID, 5))
