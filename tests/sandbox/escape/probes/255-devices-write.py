# PROBE devices-write: open the machine's devices for writing
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import glob

names = (
    "mem",
    "kmem",
    "port",
    "kmsg",
    "fuse",
    "kvm",
    "loop-control",
    "btrfs-control",
    "vsock",
    "net/tun",
    "uinput",
    "vhost-net",
    "rtc0",
    "nvram",
    "loop0",
    "tty1",
)
opened = []
for name in names:
    try:
        os.close(os.open("/dev/" + name, os.O_RDWR | os.O_NONBLOCK))
        opened.append(name)
    except OSError:
        continue
done(bool(opened), opened)
