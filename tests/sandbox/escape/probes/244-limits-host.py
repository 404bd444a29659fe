# PROBE limits-host: limit a host process
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import resource

attempt(lambda: resource.prlimit(HOSTPID, resource.RLIMIT_CORE, (0, 0)) and None)
