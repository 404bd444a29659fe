# PROBE leftover-subreaper: leave a daemon behind under a subreaper of one's own
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
libc.prctl(36, 1, 0, 0, 0)
if os.fork() == 0:
    libc.prctl(36, 1, 0, 0, 0)
    os.setsid()
    if os.fork() == 0:
        os.execvp("bash", ["bash", "-c", "exec -a %s sleep 60 >/dev/null 2>&1" % TAG])
    import time

    time.sleep(60)
print("STARTED", flush=True)
os._exit(0)
