# PROBE ping: send an ICMP echo to the host
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import socket


def ping():
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as s:
        s.sendto(bytes([8, 0, 0xF7, 0xFF, 0, 0, 0, 0]), ("127.0.0.1", 0))


attempt(ping)
