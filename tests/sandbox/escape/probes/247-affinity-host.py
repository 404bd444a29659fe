# PROBE affinity-host: move a host process to one processor
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: os.sched_setaffinity(HOSTPID, os.sched_getaffinity(0)))
