# PROBE mptcp: connect with multipath TCP to a host service
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import socket


def connect():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as s:
        s.settimeout(3)
        s.connect(("127.0.0.1", PORT))
        return s.recv(5) == b"HELLO"


attempt(connect)
