# PROBE scheduler-host: change a host process's scheduling
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: os.sched_setscheduler(HOSTPID, os.SCHED_BATCH, os.sched_param(0)))
