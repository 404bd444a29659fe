# PROBE memory-100g: take 100 GB of memory, without touching it
import os

exec(open(os.path.dirname(os.path.abspath(__file__)) + "/_lib.py").read())
import mmap

attempt(
    lambda: bool(
        [mmap.mmap(-1, 1 << 30, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(100)]
    )
)
