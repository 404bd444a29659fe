# PROBE env-secret: find a secret of the host's environment
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
found = []
for pid in ("self", *filter(str.isdigit, os.listdir("/proc"))):
    try:
        found.append(b"HOST_SECRET=hunter2" in open("/proc/%s/environ" % pid, "rb").read())
    except OSError:
        pass
done(any(found))
