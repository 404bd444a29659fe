# PROBE status-forge: write a status record to every descriptor that can be named
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
record = b'{"exit-code": 0, "signal": 0}\n{"over": true}\n'
for pid in ("self", *filter(str.isdigit, os.listdir("/proc"))):
    try:
        names = os.listdir("/proc/%s/fd" % pid)
    except OSError:
        continue
    for name in names:
        path = "/proc/%s/fd/%s" % (pid, name)
        try:
            if (
                pid == "self"
                and int(name) < 3
                or os.readlink(path) in map(os.readlink, ("/proc/self/fd/1", "/proc/self/fd/2"))
            ):
                continue
            fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
            os.write(fd, record)
        except OSError:
            continue
print("FORGED", flush=True)
os._exit(7)
