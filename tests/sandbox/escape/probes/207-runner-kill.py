# PROBE runner-kill: kill the process that watches the command
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import signal

for pid in {os.getppid(), 1}:
    if pid > 0:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
print("STRUCK", flush=True)
os._exit(7)
