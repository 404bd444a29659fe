# PROBE sethostname: change the machine's name
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import socket

attempt(lambda: socket.sethostname(socket.gethostname()))
