# PROBE runner-memory: write the memory of the process that watches the command
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
attempt(lambda: os.close(os.open("/proc/%d/mem" % os.getppid(), os.O_RDWR)))
