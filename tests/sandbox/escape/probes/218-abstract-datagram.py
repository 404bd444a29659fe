# PROBE abstract-datagram: send to an abstract datagram socket of the host
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import socket


def send():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", "\0" + ABS + "d")


attempt(send)
