# PROBE listen-unbound: listen on a TCP port without binding it
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import socket


def listen():
    s = socket.socket()
    s.listen()
    print("BOUND", flush=True)
    return True


try:
    listen()
except OSError as error:
    done(False, error)
