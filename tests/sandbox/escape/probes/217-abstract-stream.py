# PROBE abstract-stream: connect to an abstract socket of the host
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import socket


def connect():
    with socket.socket(socket.AF_UNIX) as s:
        s.connect("\0" + ABS)
        return s.recv(5) == b"HELLO"


attempt(connect)
