# PROBE links-host: read what a host process runs and where
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: bool(os.readlink("/proc/%d/cwd" % HOSTPID)))
