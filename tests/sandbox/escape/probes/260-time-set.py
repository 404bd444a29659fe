# PROBE time-set: set the machine's clock
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import time

attempt(lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))
