# PROBE devices-read: read raw disks and the kernel's log
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import glob

paths = [
    "/dev/kmsg",
    "/dev/mem",
    "/dev/port",
    "/dev/loop0",
    *glob.glob("/dev/[svx]d*"),
    *glob.glob("/dev/nvme*"),
]
opened = []
for path in paths:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        opened.append(path)
    except OSError:
        continue
done(bool(opened), opened)
