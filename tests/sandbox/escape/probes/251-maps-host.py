# PROBE maps-host: read where a host process's memory lies
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: bool(open("/proc/%d/maps" % HOSTPID).read()))
