# PROBE netlink: see the host's network interfaces
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import socket

attempt(lambda: any(name != "lo" for _, name in socket.if_nameindex()))
