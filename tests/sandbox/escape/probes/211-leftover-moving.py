# PROBE leftover-moving: leave a process behind that forks away all the time
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import time

if os.fork() == 0:
    os.setsid()
    code = "import os,sys\nwhile True:\n  if os.fork(): os._exit(0)\n  os.setsid()\n"
    os.execvp(sys.executable, [TAG, "-I", "-S", "-c", code])
time.sleep(0.3)
print("STARTED", flush=True)
os._exit(0)
