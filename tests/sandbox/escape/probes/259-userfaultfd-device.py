# PROBE userfaultfd-device: open /dev/userfaultfd or fanotify
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())


def watch():
    try:
        return os.open("/dev/userfaultfd", os.O_RDWR) >= 0
    except OSError:
        return syscall(300 if X86 else 262, 0, 0) >= 0


attempt(watch)
