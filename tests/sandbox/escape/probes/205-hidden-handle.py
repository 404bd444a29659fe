# PROBE hidden-handle: open a hidden file by its handle
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())


def handle():
    raw = ctypes.create_string_buffer(8 + 128)
    raw[0:4] = (128).to_bytes(4, "little")
    mount = ctypes.c_int()
    if libc.name_to_handle_at(-100, (WS + "/prelink").encode(), raw, ctypes.byref(mount), 0) < 0:
        raise OSError(ctypes.get_errno(), "name_to_handle_at")
    fd = os.open(WS, os.O_RDONLY)
    found = libc.open_by_handle_at(fd, raw, os.O_RDWR)
    if found < 0:
        raise OSError(ctypes.get_errno(), "open_by_handle_at")


attempt(handle)
